package main

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
	"syscall"
	"time"
)

func find(program, debian string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s is not installed (apt-get install %s)", program, debian)
	}
	return path, nil
}

func bubblewrap(context.Context, string) (*contender, error) {
	path, err := find("bwrap", "bubblewrap")
	if err != nil {
		return nil, err
	}
	return &contender{name: "bubblewrap", note: "fresh, no limits", args: []string{
		path, "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr",
		"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/bin", "/bin",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", python, "-c", "print(1)",
	}}, nil
}

func runc(_ context.Context, dir string) (*contender, error) { return ociRuntime("runc", dir) }
func crun(_ context.Context, dir string) (*contender, error) { return ociRuntime("crun", dir) }

// ociRuntime runs a bundle whose root shows the host's /usr.
func ociRuntime(name, dir string) (*contender, error) {
	path, err := find(name, name)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%s needs root", name)
	}
	bundle := filepath.Join(dir, name)
	root := filepath.Join(bundle, "root")
	for _, d := range []string{"usr", "proc", "dev", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil { //nolint:gosec // a container's root
			return nil, err
		}
	}
	for _, l := range []string{"lib", "lib64", "bin"} {
		if err := os.Symlink("usr/"+l, filepath.Join(root, l)); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(path, "spec")
	cmd.Dir = bundle
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s spec: %w: %s", name, err, out)
	}
	if err := editSpec(filepath.Join(bundle, "config.json"), root); err != nil {
		return nil, err
	}
	return &contender{
		name: name + " run", note: "fresh, memory limit",
		args: []string{path, "run", "--bundle", bundle, "pinfold-bench-" + name},
	}, nil
}

func editSpec(path, root string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(b, &spec); err != nil {
		return err
	}
	process, ok1 := spec["process"].(map[string]any)
	linux, ok2 := spec["linux"].(map[string]any)
	mounts, ok3 := spec["mounts"].([]any)
	if !ok1 || !ok2 || !ok3 {
		return errors.New("an OCI spec of an unknown shape")
	}
	process["terminal"], process["args"] = false, []string{python, "-c", "print(1)"}
	spec["root"] = map[string]any{"path": root, "readonly": true}
	spec["mounts"] = append(mounts, map[string]any{
		"destination": "/usr", "type": "none", "source": "/usr", "options": []string{"rbind", "ro", "nosuid", "nodev"},
	})
	linux["resources"] = map[string]any{"memory": map[string]any{"limit": 256 << 20}, "pids": map[string]any{"limit": 64}}
	b, err = json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// docker starts a daemon of its own, with its own directories, and imports an
// image made of the host's Python.
func docker(ctx context.Context, dir string) (*contender, error) {
	daemon, err := find("dockerd", "docker.io")
	if err != nil {
		return nil, err
	}
	client := "/usr/bin/docker" // Debian's, of the daemon's own version
	if _, err := os.Stat(client); err != nil {
		return nil, errors.New("docker is not installed (apt-get install docker.io)")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("dockerd needs root")
	}
	socket := "unix://" + filepath.Join(dir, "docker.sock")
	log, err := os.Create(filepath.Join(dir, "dockerd.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, daemon, "--storage-driver=overlay2", "--host="+socket, "--bridge=none", "--iptables=false",
		"--data-root="+filepath.Join(dir, "docker"), "--exec-root="+filepath.Join(dir, "dockerx"), "--pidfile="+filepath.Join(dir, "dockerd.pid"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	for range 100 {
		if exec.CommandContext(ctx, client, "-H", socket, "info").Run() == nil {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	if err := importImage(ctx, client, socket); err != nil {
		stop()
		return nil, fmt.Errorf("docker: %w", err)
	}
	return &contender{name: "docker run", note: "fresh, memory limit", close: stop, args: []string{
		client, "-H", socket, "run", "--rm", "--network", "none", "--memory", "256m", "pinfold-bench", python, "-c", "print(1)",
	}}, nil
}

func importImage(ctx context.Context, client, socket string) error {
	// tar follows no links, so the links and what they lead to are both named.
	args := []string{"-C", "/", "-c", "lib", "lib64", "bin", "usr/lib64", "usr/bin/python3", "usr/bin/true", "usr/bin/sleep"}
	for _, pattern := range []string{"usr/bin/python3.*", "usr/lib/python3.*", "usr/lib/*-linux-gnu/lib[cmz].so*", "usr/lib/*-linux-gnu/libz.so*", "usr/lib/*-linux-gnu/libexpat.so*", "usr/lib/*-linux-gnu/ld-linux*"} {
		found, err := filepath.Glob("/" + pattern)
		if err != nil {
			return err
		}
		for _, f := range found { // a file that is named twice would become a link to itself
			if name := strings.TrimPrefix(f, "/"); !slices.Contains(args, name) {
				args = append(args, name)
			}
		}
	}
	pack := exec.CommandContext(ctx, "tar", args...)
	load := exec.CommandContext(ctx, client, "-H", socket, "import", "-", "pinfold-bench")
	pipe, err := pack.StdoutPipe()
	if err != nil {
		return err
	}
	load.Stdin = pipe
	if err := pack.Start(); err != nil {
		return err
	}
	out, err := load.CombinedOutput()
	if packErr := pack.Wait(); packErr != nil {
		return fmt.Errorf("pack an image: %w", packErr)
	}
	if err != nil {
		return fmt.Errorf("import: %w: %s", err, out)
	}
	return nil
}

// dockerExec measures /bin/true in a living container, by Docker's command line.
func dockerExec(ctx context.Context, rounds int) (sample, error) {
	dir, err := os.MkdirTemp("", "pinfold-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	c, err := docker(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer c.close()
	base := c.args[:3] // the client and its socket
	docker := func(args ...string) error {
		cmd := exec.CommandContext(ctx, base[0], append(slices.Clone(base[1:]), args...)...) //nolint:gosec // the arguments below
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("docker %s: %w: %s", args[0], err, out)
		}
		return nil
	}
	if err := docker("run", "-d", "--network", "none", "--name", "living", "pinfold-bench", "/usr/bin/sleep", "3600"); err != nil {
		return nil, err
	}
	var times sample
	for range max(rounds, 5) {
		began := time.Now()
		if err := docker("exec", "living", "/usr/bin/true"); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	return times, docker("rm", "-f", "living")
}
