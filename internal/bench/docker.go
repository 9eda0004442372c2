package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// docker is a Docker daemon with an image made of the host's Python.
type docker struct {
	base   []string // the client and where its daemon is
	daemon *child   // nil: somebody else's
	image  string
}

const dockerTimeout = 30 * time.Second

// openDocker takes the daemon that answers; as root, where dockerd is installed
// and none answers, it starts one of its own, with its own directories.
func (s *session) openDocker() (*docker, error) {
	client, err := find("docker", "apt-get install docker.io")
	if err != nil {
		return nil, err
	}
	d := &docker{base: []string{client}, image: fmt.Sprintf("pinfold-bench-%d", os.Getpid())}
	if d.do(s.ctx, "version", "--format", "{{.Server.Version}}") != nil {
		if err := s.startDocker(d); err != nil {
			return nil, err
		}
	}
	if err := d.importImage(s.ctx); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (s *session) startDocker(d *docker) error {
	daemon, err := find("dockerd", "apt-get install docker.io")
	if err != nil {
		return errors.New("no Docker daemon answers, and dockerd is not installed")
	}
	if os.Geteuid() != 0 {
		return errors.New("no Docker daemon answers; one of our own needs root")
	}
	// Distributions have a client of the daemon's own version beside it.
	if beside := filepath.Join("/usr/bin", "docker"); executable(beside) && strings.HasPrefix(daemon, "/usr/") {
		d.base[0] = beside
	}
	dir := filepath.Join(s.dir, "docker")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	socket := "unix://" + filepath.Join(dir, "sock")
	args := []string{
		daemon, "--host=" + socket, "--bridge=none", "--iptables=false", "--data-root=" + filepath.Join(dir, "data"),
		"--exec-root=" + filepath.Join(dir, "exec"), "--pidfile=" + filepath.Join(dir, "pid"),
	}
	if d.daemon, err = startChild(args, "TMPDIR="+dir); err != nil {
		return err
	}
	d.base = append(d.base, "-H", socket)
	for deadline := time.Now().Add(dockerTimeout); ; s.sleep(100 * time.Millisecond) {
		err := d.do(s.ctx, "info")
		switch {
		case err == nil:
			return nil
		case d.daemon.ended() || time.Now().After(deadline) || s.ctx.Err() != nil:
			return errors.Join(fmt.Errorf("dockerd does not start: %s", d.daemon.lastLine()), d.daemon.stop())
		}
	}
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// do runs one command of the client whose output does not matter.
func (d *docker) do(ctx context.Context, args ...string) error {
	if out, errs, err := execute(ctx, slices.Concat(d.base, args)); err != nil {
		return fmt.Errorf("docker %s: %w: %.300q", args[0], err, out+errs)
	}
	return nil
}

// importImage packs the host's Python and its modules into an image.
func (d *docker) importImage(ctx context.Context) error {
	// tar follows no links, so the links and what they lead to are both named.
	args := []string{"-C", "/", "-c"}
	patterns := []string{
		"lib", "lib64", "bin", "usr/lib64", "usr/bin/python3", "usr/bin/true", "usr/bin/sleep", "usr/bin/python3.*", "usr/lib/python3*",
		"usr/lib/*-linux-gnu", "usr/share/matplotlib", "usr/share/zoneinfo", "etc/alternatives", "etc/matplotlibrc",
	}
	if s, err := os.Stat("/usr/lib/python3/dist-packages/pandas"); err != nil || !s.IsDir() { // small: only what print(1) needs
		patterns = append(patterns[:9], "usr/lib/*-linux-gnu/lib[cmz].so*", "usr/lib/*-linux-gnu/libz.so*", "usr/lib/*-linux-gnu/libexpat.so*", "usr/lib/*-linux-gnu/ld-linux*")
	}
	for _, pattern := range patterns {
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
	ctx, cancel := context.WithTimeout(ctx, 10*commandTimeout)
	defer cancel()
	pack := exec.CommandContext(ctx, "tar", args...) //nolint:gosec // the names above
	load := exec.CommandContext(ctx, d.base[0], append(slices.Clone(d.base[1:]), "import", "-", d.image)...)
	pipe, err := pack.StdoutPipe()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	load.Stdin, load.Stdout, load.Stderr = pipe, &out, &out
	if err := pack.Start(); err != nil {
		return err
	}
	err = load.Run()
	if packErr := pack.Wait(); packErr != nil {
		return fmt.Errorf("pack an image: %w", packErr)
	}
	if err != nil {
		return fmt.Errorf("import: %w: %.300q", err, out.String())
	}
	return nil
}

// contender is "docker run", a fresh container each.
func (d *docker) contender() *contender {
	return command("docker run", "fresh, memory limit", func(w workload) []string {
		return slices.Concat(d.base, []string{
			"run", "--rm", "--network", "none", "--memory", fmt.Sprint(memoryLimit), "--pids-limit", fmt.Sprint(processLimit),
			"-e", "MPLCONFIGDIR=/tmp", d.image,
		}, w.args)
	})
}

// living starts a container that stays, and returns its name.
func (d *docker) living(ctx context.Context) (string, error) {
	name := d.image + "-living"
	return name, d.do(ctx, "run", "-d", "--network", "none", "--name", name, d.image, "/usr/bin/sleep", "3600")
}

// close removes what was made, and ends a daemon of our own.
func (d *docker) close() error {
	ctx := context.Background()
	_ = d.do(ctx, "rm", "-f", d.image+"-living") // there need not be one
	err := d.do(ctx, "rmi", "-f", d.image)
	if d.daemon == nil {
		return err
	}
	return d.daemon.stop()
}
