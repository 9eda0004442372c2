package kernels

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"pinfold/test/kernels/vm"
)

// pythons are the Pythons of Debian's suites, but for that of the machine the
// tests run on, which all other tests have.
var pythons = []struct {
	version string
	tree    vm.Debian
	numpy   bool
	forever bool // it counts no references to what lives for ever
}{
	{"3.9", vm.Debian{Suite: "bullseye", Arch: "amd64", Packages: []string{"python3"}, Hook: mergeUsr}, false, false},
	{"3.13", trixie, true, true},
	{"3.14", vm.Debian{Suite: "sid", Arch: "amd64", Packages: []string{"python3.14", "python3", "python3-numpy"}}, true, true},
	{"3.15", vm.Debian{Suite: "sid", Arch: "amd64", Packages: []string{"python3.15"}, Hook: `ln -sf python3.15 "$1/usr/bin/python3"`}, false, true},
}

// pythonSuites run in each of those roots, on this machine's kernel.
var pythonSuites = []suite{
	{name: "cold and warm", pkg: attacksPkg, args: []string{"-test.run=^Test(WarmResultsAreCold|ForkHooks|ModuleNamedAsKeyword|PythonOfThisRoot)$"}, programs: nativePrograms[:1]},
	{name: "forks", pkg: nativePkg, args: []string{"-test.run=^Test(Fork|ForkedPosture|UnfitZygotes)$"}, programs: nativePrograms},
}

// TestPythons has the same results, cold and warm, with every Python that Debian
// has packages of.
func TestPythons(t *testing.T) {
	onRequest(t, false) // the newest come from a suite that moves
	need(t, vm.MissingForDebian())
	for _, p := range pythons {
		t.Run(p.version, func(t *testing.T) {
			tree, err := p.tree.Make(t.Context())
			if err != nil {
				t.Fatalf("no root file system: %v", err)
			}
			b := builder{T: t, arch: p.tree.Arch, built: map[string]bool{}, dir: t.TempDir(), image: vm.NewImage()}
			jobs := b.jobs(chosen(t, pythonSuites, 2))
			files := t.TempDir()
			if err := b.image.Unpack(files); err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				j.Env = append(j.Env, "PINFOLD_TEST_PYTHON="+p.version)
				if p.numpy {
					j.Env = append(j.Env, "PINFOLD_TEST_NUMPY=1")
				}
				if p.forever {
					j.Env = append(j.Env, "PINFOLD_TEST_FOREVER=1")
				}
				t.Run(j.Name, func(t *testing.T) { inRoot(t, tree.Dir, filepath.Join(files, vm.TestsDir), j).check(t) })
			}
		})
	}
}

// mergeUsr makes a root as every Debian since 12 is: with all programs in /usr.
const mergeUsr = `for dir in bin sbin lib lib64; do
	[ -L "$1/$dir" ] || { cp -a "$1/$dir/." "$1/usr/$dir/" && rm -r "$1/$dir" && ln -s "usr/$dir" "$1/$dir"; }
done`

// enter makes a directory the root of a mount namespace of its own, with this
// machine's kernel and what the tests need.
const enter = `set -e
root=$1 tests=$2; shift 2
mount --bind "$root" "$root"
for dir in proc sys dev run; do mount --rbind "/$dir" "$root/$dir"; done
mount -t tmpfs -o mode=1777 none "$root/tmp"
mount -t tmpfs none "$root/mnt"
mkdir "$root/mnt/test" "$root/mnt/old"
mount --bind "$tests" "$root/mnt/test"
cd "$root"
pivot_root . mnt/old
umount -l /mnt/old
[ -d /test ] || mkdir /test
mount --move /mnt/test /test
umount /mnt
cd "$1"; shift
exec "$@"`

// inRoot runs a job in a root file system.
func inRoot(t *testing.T, root, tests string, j vm.Job) *result {
	t.Helper()
	args := append([]string{"--mount", "--propagation=private", "sh", "-c", enter, "enter", root, tests, j.Dir, j.Path}, j.Args...)
	cmd := exec.CommandContext(t.Context(), "unshare", args...)
	cmd.Env = append([]string{"PATH=/usr/bin:/usr/sbin:/bin:/sbin", "HOME=/root", "TMPDIR=/tmp"}, j.Env...)
	cmd.WaitDelay = time.Second
	began, r := time.Now(), &result{exit: &vm.Event{}}
	cmd.Stdout, cmd.Stderr = &r.output, &r.output
	if err := cmd.Run(); err != nil {
		r.exit.Exit, r.exit.Error = cmd.ProcessState.ExitCode(), err.Error()
	}
	r.exit.Took = time.Since(began)
	return r
}
