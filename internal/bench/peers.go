package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
)

// find looks for a contender's program.
func find(program, debian string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s is not installed%s", program, inBrackets(debian))
	}
	return path, nil
}

// bareName is the contender beside which the others are put.
const bareName = "bare"

func bare() *contender {
	return command(bareName, "no isolation", func(w workload) []string { return w.args })
}

func bubblewrap() (*contender, error) {
	path, err := find("bwrap", "apt-get install bubblewrap")
	if err != nil {
		return nil, err
	}
	base := []string{path, "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr"}
	for _, dir := range rootDirs() {
		if target, err := os.Readlink("/" + dir); err == nil {
			base = append(base, "--symlink", target, "/"+dir)
		} else {
			base = append(base, "--ro-bind-try", "/"+dir, "/"+dir)
		}
	}
	for _, name := range debianEtc() {
		base = append(base, "--ro-bind", name, name)
	}
	base = append(base, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--setenv", "HOME", "/tmp", "--setenv", "MPLCONFIGDIR", "/tmp")
	return command("bubblewrap", "fresh, no limits", func(w workload) []string {
		return slices.Concat(base, w.args)
	}), nil
}

// rootDirs are the directories that programs need beside /usr, which are links
// into it on most hosts.
func rootDirs() []string {
	var all []string
	for _, dir := range []string{"lib", "lib32", "lib64", "bin", "sbin"} {
		if _, err := os.Lstat("/" + dir); err == nil {
			all = append(all, dir)
		}
	}
	return all
}

// debianEtc is what Debian's Python modules need of /etc: libraries for numbers
// are found through alternatives, and matplotlib has its configuration there.
func debianEtc() []string {
	var all []string
	for _, name := range []string{"/etc/alternatives", "/etc/matplotlibrc"} {
		if _, err := os.Stat(name); err == nil {
			all = append(all, name)
		}
	}
	return all
}

// ociRuntime is a program that runs a bundle.
type ociRuntime struct {
	name, note, install string
	flags               []string
}

func ociRuntimes() []ociRuntime {
	return []ociRuntime{
		{"runc", "fresh, memory limit", "apt-get install runc", nil},
		{"crun", "fresh, memory limit", "apt-get install crun", nil},
		{"runsc", "fresh, gVisor", "https://gvisor.dev/docs/user_guide/install", []string{"--network=none"}},
	}
}

// oci runs bundles whose root shows the host's /usr, one bundle for each
// workload.
func (s *session) oci(r ociRuntime) (*contender, error) {
	name := r.name
	path, err := find(name, r.install)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%s needs root", name)
	}
	dir := filepath.Join(s.dir, name)
	root := filepath.Join(dir, "root")
	if err := makeRoot(root); err != nil {
		return nil, err
	}
	base := append(append([]string{path}, r.flags...), "--root", filepath.Join(dir, "state"))
	bundles := map[string]string{}
	for _, w := range s.workloads() {
		bundles[w.id] = filepath.Join(dir, w.id)
		if err := makeBundle(s.ctx, path, bundles[w.id], root, w.args); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	var count atomic.Int64
	id := func() string { return fmt.Sprintf("pinfold-bench-%d-%s-%d", os.Getpid(), name, count.Add(1)) }
	c := &contender{name: name + " run", note: r.note}
	c.run = func(ctx context.Context, w workload) error {
		id := id()
		err := once(ctx, append(slices.Clip(base), "run", "--bundle", bundles[w.id], id), w.want)
		if err != nil && ctx.Err() == nil { // it may have left a container
			_ = once(ctx, append(slices.Clip(base), "delete", "--force", id), "") // what failed is said above
		}
		return err
	}
	return c, nil
}

// Bundle makes an OCI bundle for a command of the host's in a directory: its root shows the
// host's /usr, its limits are those that Pinfold has by default.
func Bundle(ctx context.Context, runtime, dir string, args []string) error {
	root := filepath.Join(dir, "root")
	if err := makeRoot(root); err != nil {
		return err
	}
	return makeBundle(ctx, runtime, dir, root, args)
}

// makeRoot makes the root of bundles, in which /usr is the host's.
func makeRoot(root string) error {
	for _, d := range []string{"usr", "proc", "dev", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil { //nolint:gosec // a container's root
			return err
		}
	}
	for _, l := range rootDirs() {
		target, err := os.Readlink("/" + l)
		if err != nil {
			return fmt.Errorf("/%s is no link into /usr, which the bundle shows", l)
		}
		if err := os.Symlink(target, filepath.Join(root, l)); err != nil {
			return err
		}
	}
	return nil
}

// makeBundle writes a bundle that runs one command.
func makeBundle(ctx context.Context, runtime, bundle, root string, args []string) error {
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, runtime, "spec") //nolint:gosec // a runtime that was looked up
	cmd.Dir = bundle
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("spec: %w: %.200q", err, out)
	}
	config := filepath.Join(bundle, "config.json")
	b, err := os.ReadFile(config) //nolint:gosec // below our own directory
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(b, &spec); err != nil {
		return err
	}
	if err := editSpec(spec, root, args); err != nil {
		return err
	}
	if b, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(config, b, 0o600)
}

func editSpec(spec map[string]any, root string, args []string) error {
	process, ok1 := spec["process"].(map[string]any)
	mounts, ok2 := spec["mounts"].([]any)
	if !ok1 || !ok2 {
		return errors.New("an OCI spec of an unknown shape")
	}
	process["terminal"], process["args"] = false, args
	env, _ := process["env"].([]any)
	process["env"] = append(env, "HOME=/tmp", "MPLCONFIGDIR=/tmp")
	spec["root"] = map[string]any{"path": root, "readonly": true}
	ro := []string{"rbind", "ro", "nosuid", "nodev"}
	mounts = append(mounts, map[string]any{"destination": "/usr", "type": "none", "source": "/usr", "options": ro},
		map[string]any{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "nodev"}})
	for _, name := range debianEtc() {
		mounts = append(mounts, map[string]any{"destination": name, "type": "none", "source": name, "options": ro})
	}
	spec["mounts"] = mounts
	linux, ok := spec["linux"].(map[string]any)
	if !ok { // runsc's has none
		linux = map[string]any{}
		spec["linux"] = linux
	}
	linux["resources"] = map[string]any{"memory": map[string]any{"limit": memoryLimit}, "pids": map[string]any{"limit": processLimit}}
	return nil
}

// The limits that Pinfold has by default, for those that can have some.
const (
	memoryLimit  = 256 << 20
	processLimit = 64
)

// ourLimits is what Pinfold's sandboxes of this user are: an ordinary one may
// have no cgroup. "pinfold doctor" says more.
func ourLimits() string {
	if os.Geteuid() == 0 {
		return "fresh, all limits"
	}
	return "fresh, the limits of an ordinary user"
}

// pinfoldRun is our own command line: a process of ours, an engine and a
// sandbox for each run.
func (s *session) pinfoldRun() (*contender, error) {
	files := map[string][]string{}
	for _, w := range s.workloads() {
		name, text := filepath.Join(s.dir, w.id+".py"), w.code+"\n"
		if w.code == "" {
			name, text = filepath.Join(s.dir, w.id+".sh"), "exec "+strings.Join(w.args, " ")+"\n"
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return nil, err
		}
		files[w.id] = []string{s.o.Program, "run", name}
	}
	// A server that PINFOLD_SERVER names is somebody else's contender.
	c := &contender{name: "pinfold run", note: ourLimits(), ours: true}
	c.run = func(ctx context.Context, w workload) error {
		return once(ctx, append([]string{"/usr/bin/env", "-u", "PINFOLD_SERVER"}, files[w.id]...), w.want)
	}
	return c, nil
}
