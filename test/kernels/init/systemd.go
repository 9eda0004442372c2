package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"pinfold/test/kernels/vm"
)

// startUnit runs a job as a service of its own, as documents tell people to: of
// the system's systemd, or of the user's as somebody who has logged in.
func startUnit(r *reporter, j vm.Job) error {
	ctx, cancel := context.WithTimeout(context.Background(), j.Timeout+20*time.Second) // systemd ends it before
	defer cancel()
	home := "/root"
	args := []string{"--quiet", "--pipe", "--wait", "--collect", "--working-directory=" + cmp.Or(j.Dir, "/tmp")}
	if j.UID != 0 {
		home = "/home/user"
		args = append(args, "--user")
	}
	if j.Delegate {
		args = append(args, "-p", "Delegate=yes")
	}
	// A process that is still there after the job is the job's fault, but must
	// not keep the machine waiting.
	args = append(args, "-p", "TasksMax=infinity", "-p", "LimitNOFILE=65536", "-p", "TimeoutStopSec=5s", "-p", fmt.Sprintf("RuntimeMaxSec=%d", int(j.Timeout.Seconds())))
	for _, v := range append([]string{"PATH=/usr/local/bin:/usr/bin:/usr/sbin", "HOME=" + home, "TMPDIR=/tmp"}, j.Env...) {
		args = append(args, "--setenv="+v)
	}
	cmd := exec.CommandContext(ctx, "systemd-run", append(append(args, "--", j.Path), j.Args...)...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = r, r
	cmd.WaitDelay = time.Second
	if j.UID != 0 {
		bus := fmt.Sprintf("/run/user/%d", j.UID)
		if err := await(ctx, bus+"/bus"); err != nil {
			return err
		}
		cmd.Env = []string{"PATH=/usr/bin", "HOME=" + home, "XDG_RUNTIME_DIR=" + bus, "DBUS_SESSION_BUS_ADDRESS=unix:path=" + bus + "/bus"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(j.UID), Gid: uint32(j.UID)}}
	}
	err := cmd.Run()
	if ctx.Err() != nil {
		return fmt.Errorf("ran longer than %v: %w", j.Timeout, ctx.Err())
	}
	return err
}

// await waits for a file: the user's systemd starts after the boot.
func await(ctx context.Context, file string) error {
	for {
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not come: %w", file, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
