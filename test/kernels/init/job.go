package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pinfold/test/kernels/vm"
)

const cgroupRoot = "/sys/fs/cgroup"

// reporter numbers the events. It is the jobs' output writer, too.
type reporter struct {
	mu      sync.Mutex
	port    *os.File
	seq     int
	job     string
	systemd bool
}

func (r *reporter) send(e vm.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Seq, e.Job = r.seq, r.job
	r.seq++
	if err := vm.WriteEvent(r.port, e); err != nil {
		fmt.Println("init:", err)
	}
}

func (r *reporter) Write(p []byte) (int, error) {
	for chunk := range slices.Chunk(p, vm.MaxOutput) {
		r.send(vm.Event{Kind: vm.EventOutput, Output: chunk})
	}
	return len(p), nil
}

func runJob(r *reporter, j vm.Job) {
	r.job = j.Name
	r.send(vm.Event{Kind: vm.EventStart})
	before, began := cgroups(), time.Now()
	end := vm.Event{Kind: vm.EventExit}
	var exit *exec.ExitError
	run := start
	if r.systemd {
		run = startUnit
	}
	err := run(r, j)
	if errors.As(err, &exit) {
		end.Exit = exit.ExitCode()
	} else if err != nil {
		end.Exit = -1
	}
	if err != nil {
		end.Error = err.Error()
	}
	end.Took = time.Since(began)
	for _, dir := range cgroups() {
		if !slices.Contains(before, dir) && (!r.systemd || strings.Contains(dir, "pinfold")) { // systemd has services come and go
			end.Left = append(end.Left, dir)
		}
	}
	r.send(end)
}

func start(r *reporter, j vm.Job) error {
	ctx, cancel := context.WithTimeout(context.Background(), j.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, j.Path, j.Args...)
	cmd.Dir = cmp.Or(j.Dir, "/tmp")
	cmd.Env = append([]string{"PATH=/usr/bin:/usr/sbin", "HOME=/root", "TMPDIR=/tmp"}, j.Env...)
	cmd.Stdout, cmd.Stderr = r, r
	cmd.WaitDelay = time.Second // for output that an orphan keeps open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if j.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(j.UID), Gid: uint32(j.UID)}
		cmd.Env = append(cmd.Env, "HOME=/home/user")
	}
	if j.Delegate {
		dir, err := delegate(j.UID)
		if err != nil {
			return err
		}
		defer func() { _ = dir.Close(); remove(dir.Name()) }()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	err := cmd.Run()
	if ctx.Err() != nil {
		return fmt.Errorf("ran longer than %v: %w", j.Timeout, ctx.Err())
	}
	return err
}

// delegate makes a cgroup that belongs to the user, as systemd does with
// Delegate=yes: docs/CGROUP_DELEGATION.md of systemd.
func delegate(uid int) (*os.File, error) {
	scope := filepath.Join(cgroupRoot, vm.DelegatedScope)
	slice := filepath.Dir(scope)
	if err := os.MkdirAll(scope, 0o755); err != nil {
		return nil, err
	}
	for _, dir := range []string{cgroupRoot, slice} {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu +memory +pids"), 0)
		if err != nil {
			return nil, err
		}
	}
	for _, f := range []string{"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"} {
		if err := os.Chown(filepath.Join(scope, f), uid, uid); err != nil {
			return nil, err
		}
	}
	// A user's systemd can set only the second of these marks.
	for _, mark := range []string{"trusted.delegate", "user.delegate"} {
		if err := unix.Setxattr(scope, mark, []byte("1"), 0); err != nil {
			return nil, fmt.Errorf("%s: %w", mark, err)
		}
	}
	return os.Open(scope)
}

// remove ends a delegated scope as systemd does: with all that is below it.
func remove(scope string) {
	if err := os.WriteFile(filepath.Join(scope, "cgroup.kill"), []byte("1"), 0); err != nil {
		fmt.Println("init:", err)
	}
	for try := 0; ; try++ {
		dirs := below(filepath.Dir(scope))
		for _, dir := range slices.Backward(dirs) {
			_ = os.Remove(dir) // busy until the dead have left
		}
		if len(dirs) == 0 || try == 100 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func cgroups() []string { return below(cgroupRoot) }

// below lists a directory and all directories below it, parents first.
func below(root string) []string {
	var dirs []string
	_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, p)
		}
		return nil // what is gone is gone
	})
	return dirs
}
