package gvisor

import (
	"encoding/json"
	"fmt"
	"strings"

	"pinfold/internal/container"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/wire"
)

// Names in a machine's root, as runsc sees them.
const (
	bundleDir   = "/bundle"
	rootDir     = bundleDir + "/rootfs"
	skeletonDir = "/skeleton" // what lies over an image's layers
	diskDir     = "/disk"
	shownDir    = "/shown"
	stateDir    = "/state"
	configAt    = bundleDir + "/config.json"
	nothingAt   = "/nothing" // a file that nobody may open
)

// container's name for runsc. There is one in each machine's own state directory.
const containerID = "machine"

// controlSocket is where the sentry answers.
const controlSocket = stateDir + "/runsc-" + containerID + ".sock"

// Of an OCI bundle (opencontainers/runtime-spec, config.md), what we use.
type (
	ociSpec struct {
		Version  string     `json:"ociVersion"`
		Process  ociProcess `json:"process"`
		Root     ociRoot    `json:"root"`
		Hostname string     `json:"hostname"`
		Mounts   []ociMount `json:"mounts"`
		Linux    ociLinux   `json:"linux"`
	}
	ociProcess struct {
		User            ociUser         `json:"user"`
		Args            []string        `json:"args"`
		Env             []string        `json:"env"`
		Cwd             string          `json:"cwd"`
		Capabilities    ociCapabilities `json:"capabilities"`
		Rlimits         []ociRlimit     `json:"rlimits"`
		NoNewPrivileges bool            `json:"noNewPrivileges"`
	}
	ociUser struct {
		UID int `json:"uid"`
		GID int `json:"gid"`
	}
	ociCapabilities struct { // and none in the other sets
		Bounding  []string `json:"bounding"`
		Effective []string `json:"effective"`
		Permitted []string `json:"permitted"`
	}
	ociRlimit struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	ociRoot struct {
		Path     string `json:"path"`
		Readonly bool   `json:"readonly"`
	}
	ociMount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source,omitempty"`
		Options     []string `json:"options,omitempty"`
	}
	ociLinux struct {
		Namespaces []ociNamespace `json:"namespaces"`
	}
	ociNamespace struct {
		Type string `json:"type"`
	}
)

// agentCapabilities are what the agent, who is root inside, has in the sandbox's own kernel:
// to become the user, to end the user's processes, to place them on processors and to handle
// the user's files. The programs that it starts have none, are another user, and so can
// neither end nor look into it.
var agentCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_SYS_NICE",
}

// spareProcesses is how far RLIMIT_NPROC lies above limits.processes: far enough to see a
// program that goes beyond its limit.
const spareProcesses = 2

// openFiles is how many descriptors a process may have at most; limits.open_files is the
// agent's to set.
const openFiles = 1 << 16

// config is config.json of a machine.
func config(plan driver.Plan) ([]byte, error) {
	s := ociSpec{
		Version: "1.0.2", Hostname: plan.Hostname,
		Root: ociRoot{Path: rootDir, Readonly: true},
		Process: ociProcess{
			User: ociUser{0, 0}, Capabilities: ociCapabilities{agentCapabilities, agentCapabilities, agentCapabilities}, Args: []string{"pinfold-agent", announce}, Cwd: "/",
			Env: []string{"GOMAXPROCS=1", "GODEBUG=memprofilerate=0"}, NoNewPrivileges: true,
		},
		// No network namespace: the one that the process is in has nothing in it.
		Linux: ociLinux{Namespaces: []ociNamespace{{"pid"}, {"ipc"}, {"uts"}, {"mount"}}},
	}
	limit := func(name string, value uint64) {
		s.Process.Rlimits = append(s.Process.Rlimits, ociRlimit{"RLIMIT_" + strings.ToUpper(name), value, value})
	}
	for _, l := range container.Rlimits() {
		limit(l.Name, uint64(l.Value)) //nolint:gosec // not negative
	}
	limit("nofile", openFiles)
	limit("nproc", uint64(plan.Limits.Processes+wire.MaxTasks+spareProcesses)) //nolint:gosec // validated to be positive
	s.Mounts = mounts(plan)
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write config.json: %w", err)
	}
	return text, nil
}

// mounts are what a machine has over its root.
func mounts(plan driver.Plan) []ociMount {
	all := []ociMount{
		{"/proc", "proc", "proc", []string{"nosuid", "nodev", "noexec", "ro"}},
		{"/dev", "tmpfs", "tmpfs", []string{"nosuid", "noexec", "ro"}},
		{"/dev/pts", "devpts", "devpts", []string{"nosuid", "noexec"}},
		{"/sys", "bind", shownDir + "/sys", []string{"bind", "ro", "nosuid", "nodev", "noexec"}},
	}
	for _, f := range shownFiles {
		all = append(all, ociMount{f, "bind", shownDir + f, []string{"bind", "ro", "nosuid", "nodev", "noexec"}})
	}
	for _, device := range masked {
		all = append(all, ociMount{device, "bind", nothingAt, []string{"bind", "ro", "nosuid", "nodev", "noexec"}})
	}
	for _, p := range container.Places(plan.User.Home) {
		all = append(all, ociMount{p.Path, "bind", diskDir + "/" + p.Dir, []string{"bind", "rw", "nosuid", "nodev"}})
	}
	return all
}

// shownFiles are those of /proc that show a computer as large as the limits. The rest is the
// sentry's own.
var shownFiles = []string{image.CPUInfo, image.Stat, image.Meminfo}

// masked are devices of the sentry's of which programs have no use: nobody may open what is
// laid over them.
var masked = []string{"/dev/fuse", "/dev/net/tun"}

// arguments are runsc's, where socket is the agent's end of its connection and agent its
// program: descriptors of the process.
func arguments(socket, agent int) []string {
	return []string{
		"runsc", "--root=" + stateDir, "--platform=" + platform, "--network=none", "--ignore-cgroups",
		"--overlay2=none", "--host-uds=none", "--host-fifo=none", "--character-device-policy=emulated-only", "--gofer-network-namespace=host",
		"--file-access-mounts=shared", "--allow-suid=false", "--host-settings=ignore", "--allow-flag-override=false",
		"run", "--bundle=" + bundleDir,
		fmt.Sprintf("--pass-fd=%d:%d", socket, wire.ConnFD), fmt.Sprintf("--exec-fd=%d", agent), containerID,
	}
}

// platform is how the sentry gets hold of what programs do: the one that needs nothing of
// the host's but ordinary system calls.
const platform = "systrap"

// announce is the agent's Announce, and announced its AnnounceDone.
const (
	announce  = "announce"
	announced = 'k'
)
