//go:build linux

package attacks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/sandbox"
)

// laterCase is what the host mounts below a directory that a sandbox is shown, while
// the sandbox lives.
func laterCase() Case {
	return Case{
		ID: "VW-09", Title: "what the host mounts later, below a directory that is mounted in the sandbox", Level: User, Severity: HostLeak, Root: true,
		Source: "own", Expect: "it is not there",
		Do: func(t *trial) error {
			dir, err := t.shared()
			if err != nil {
				return err
			}
			out, err := t.whileMounted(dir)
			if err == nil && doorValues(out)["later"] != "[]" {
				err = fmt.Errorf("inside is %q", out)
			}
			return err
		},
		Control: Control{Without: "a view that is cut off from the host's mount", Run: func(a *arena) error {
			dir, err := a.shared()
			if err != nil {
				return err
			}
			view := filepath.Join(a.dir, "view")
			if err := errors.Join(os.Mkdir(view, 0o755), unix.Mount(dir, view, "", unix.MS_BIND, "")); err != nil {
				return err
			}
			a.Cleanup(func() { _ = unix.Unmount(view, unix.MNT_DETACH) })
			if err := a.mountLater(dir); err != nil {
				return err
			}
			_, err = os.Stat(filepath.Join(view, "sub", "secret"))
			return err
		}},
		Twin: &Twin{What: "seeing what is mounted", Payload: Payload{Code: "say('mounts', len(os.listdir('/usr')) > 3)"}, Want: "mounts True"},
	}
}

// shared returns a directory that is a mount as systemd makes them.
func (a *arena) shared() (string, error) {
	dir, err := os.MkdirTemp(a.dir, "shared")
	if err != nil {
		return "", err
	}
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) { // others must get there
		_ = os.Chmod(d, 0o755) //nolint:gosec // of the test
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		return "", err
	}
	a.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, errors.Join(
		unix.Mount("", dir, "", unix.MS_SHARED, ""),
		os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.Chown(dir, sandbox.UID, sandbox.GID)) //nolint:gosec // for everybody
}

// mountLater mounts something below.
func (a *arena) mountLater(dir string) error {
	sub := filepath.Join(dir, "sub")
	if err := unix.Mount("tmpfs", sub, "tmpfs", 0, "size=1m,mode=777"); err != nil {
		return err
	}
	a.Cleanup(func() { _ = unix.Unmount(sub, unix.MNT_DETACH) })
	return os.WriteFile(filepath.Join(sub, "secret"), []byte(a.secret), 0o644) //nolint:gosec // for everybody
}

// whileMounted mounts something below the directory while a program sees it.
func (t *trial) whileMounted(dir string) (string, error) {
	req := t.request(Payload{Code: `
open("/data/here", "w").close()
while not os.path.exists("/data/go"): time.sleep(0.01)
say("later", os.listdir("/data/sub"))
`})
	req.Spec.Mounts = []sandbox.Mount{{Host: dir, Guest: "/data", Writable: true}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	mounted := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "here")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		mounted <- errors.Join(ctx.Err(), t.mountLater(dir), os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	}()
	r, err := t.engine.Run(ctx, req)
	if err != nil {
		return "", err
	}
	if r.Status != sandboxSucceeded {
		cancel()
		return "", errors.Join(<-mounted, fmt.Errorf("%+v %s", r.Cause, strings.TrimSpace(r.Stderr)))
	}
	return r.Stdout, <-mounted
}
