package packages

import (
	"strings"

	"pinfold/sandbox"
)

// What an installer leaves in its home, and how it says that there is none.
const (
	lockFile        = "lock.json"
	treeFile        = "set.tar"
	exitNoInstaller = 97
)

// Limits of an installer's sandbox. Its disk holds packages twice: as they came, or
// unpacked, and in the archive.
const (
	fetchTimeMS  = 5 * 60 * 1000
	fetchMemory  = 1 << 30
	fetchDisk    = 3 * maxSetBytes
	fetchTraffic = 2 << 30
)

// scripts install what the arguments and the files say. No script of a package runs: pip
// takes wheels only, npm leaves scripts and programs out. Python compiles to files that go
// by the source's content, since nobody can write them later.
var scripts = map[string]string{
	sandbox.PackagesPython: `set -eu
python3 -m pip --version >/dev/null || exit 97
mkdir set
python3 -m pip install --quiet --index-url "$1" --only-binary :all: --no-compile --target set --report lock.json -r requirements.txt
python3 -m compileall -q --invalidation-mode unchecked-hash set >/dev/null || true
rm -rf set/bin
tar -cf set.tar -C set .
`,
	sandbox.PackagesNPM: `set -eu
registry=$1
shift
npm --version >/dev/null || exit 97
mkdir set
cd set
echo '{"private": true}' >package.json
npm install --registry "$registry" "$@"
mkdir -p node_modules
cp node_modules/.package-lock.json ../lock.json
rm -rf node_modules/.package-lock.json node_modules/.bin
tar -cf ../set.tar -C node_modules .
`,
}

// installEnv keeps installers from everything that they were not told.
var installEnv = map[string]map[string]string{
	sandbox.PackagesPython: {
		"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INPUT": "1", "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
		"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_NO_WARN_SCRIPT_LOCATION": "1", "PIP_PROGRESS_BAR": "off", "PIP_NO_COLOR": "1",
		"PIP_TIMEOUT": "15", "PIP_RETRIES": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
	},
	sandbox.PackagesNPM: {
		"npm_config_userconfig": "/dev/null", "npm_config_globalconfig": "/tmp/none", // npm wants two
		"npm_config_ignore_scripts": "true", "npm_config_bin_links": "false",
		"npm_config_audit": "false", "npm_config_fund": "false", "npm_config_update_notifier": "false", "npm_config_cache": "/tmp/npm",
		"npm_config_loglevel": "error", "npm_config_color": "false", "npm_config_progress": "false", "npm_config_save_exact": "true",
		"npm_config_fetch_retries": "1", "npm_config_fetch_timeout": "30000", "npm_config_logs_max": "0",
	},
}

// installer is the run that installs a set.
func (w *Sets) installer(one set) (sandbox.Spec, error) {
	network, err := one.index.Network()
	if err != nil {
		return sandbox.Spec{}, err
	}
	network.Limits.BytesDown = fetchTraffic
	spec := sandbox.Spec{
		Language: "sh", Code: scripts[one.Kind], Args: []string{one.Index}, Env: map[string]string{},
		Artifacts: []string{lockFile, treeFile}, Cold: true,
		Template: w.inside.template(), Driver: w.inside.Driver, Isolation: w.inside.Isolation, Network: network,
		Limits: sandbox.Limits{
			WallTimeMS: fetchTimeMS, CPUTimeMS: fetchTimeMS, MemoryBytes: fetchMemory, DiskBytes: fetchDisk, FileSizeBytes: fetchDisk,
			Inodes: 2 * maxSetFiles, Processes: 256, OpenFiles: 1024, // what every host allows a process
		},
	}
	for name, value := range installEnv[one.Kind] {
		spec.Env[name] = value
	}
	if one.Kind == sandbox.PackagesPython {
		spec.Files = []sandbox.File{{Path: "requirements.txt", Content: strings.Join(one.Asked, "\n") + "\n"}}
		if host := one.index.insecure(); host != "" {
			spec.Env["PIP_TRUSTED_HOST"] = host
		}
		return spec, nil
	}
	names := one.names
	if names == nil {
		names = one.Asked
	}
	for _, text := range names {
		name, _, _ := strings.Cut(text, " ") // its digest is looked at afterwards
		spec.Args = append(spec.Args, name)
	}
	return spec, nil
}
