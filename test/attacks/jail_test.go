//go:build linux

package attacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// jailScript makes a throwaway world around a payload: its mounts, processes,
// network and IPC are its own, and what it writes to /etc and /usr goes to a
// tmpfs that ends with it. It is root there and nothing of ours defends the
// kernel, so the payloads ask whether a door is open and do not go through.
const jailScript = `set -e
mount --make-rprivate /
mount -t tmpfs -o size=64m tmpfs /mnt
mkdir /mnt/eu /mnt/ew /mnt/uu /mnt/uw /mnt/user
mount -t overlay -o lowerdir=/etc,upperdir=/mnt/eu,workdir=/mnt/ew overlay /etc
mount -t overlay -o lowerdir=/usr,upperdir=/mnt/uu,workdir=/mnt/uw overlay /usr
mount -t proc proc /proc
mkdir -p /home/user 2>/dev/null || { mount -t tmpfs tmpfs /home; mkdir /home/user; }
mount --bind /mnt/user /home/user
cd /home/user
export HOME=/home/user
timeout -s KILL 20 "$@" || true
`

// jail runs a payload as root without any of our defences and returns what it
// printed.
func (a *arena) jail(p Payload) (string, error) {
	ctx, cancel := context.WithTimeout(a.Context(), patience)
	defer cancel()
	program := []string{"/usr/bin/python3", "-", "jail"}
	code := a.prelude + p.Code
	if p.Language == "shell" {
		program, code = []string{"/bin/bash", "-s"}, p.Code
	}
	args := append([]string{"-c", jailScript, "jail"}, program...)
	cmd := exec.CommandContext(ctx, "/bin/sh", append(args, p.Args...)...)
	cmd.Stdin = strings.NewReader(code)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "PINFOLD_CANARY=" + a.secret}
	for k, v := range p.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	leak, err := os.Open("/")
	if err != nil {
		return "", err
	}
	defer leak.Close()
	talk, peer, err := socketPair()
	if err != nil {
		return "", err
	}
	defer talk.Close()
	defer peer.Close()
	cmd.ExtraFiles = []*os.File{leak, talk} // what a careless runtime leaves open
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return out.String(), fmt.Errorf("the control: %w: %s", err, errs.String())
	}
	if out.Len() == 0 {
		return "", fmt.Errorf("the control printed nothing: %s", errs.String())
	}
	return out.String(), nil
}

// socketPair is a connection like the agent's.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs"), nil
}
