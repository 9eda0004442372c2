package cgroup

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Controller is one kind of resource that groups limit or count.
type Controller string

// The controllers that we use. Swap is not a controller of the kernel's: it is
// the part of the memory controller that can be missing by itself. IO is only
// read, never limited; version 1 calls it blkio.
const (
	Memory  Controller = "memory"
	Swap    Controller = "swap"
	Pids    Controller = "pids"
	CPU     Controller = "cpu"
	CPUAcct Controller = "cpuacct"
	IO      Controller = "io"
)

// Controllers lists them in the order in which reports name them.
func Controllers() []Controller {
	return []Controller{Memory, Swap, Pids, CPU, CPUAcct, IO}
}

// Answer is what a probe says. The zero value is Unknown, which never counts
// as yes. The numbers are those of driver.Answer.
type Answer int

// A probe has three answers.
const (
	Unknown Answer = iota // could not tell
	Yes
	No
)

// Support says whether a controller can be used by us here, why, and, unless
// the answer is Yes, what would change that.
type Support struct {
	Answer  Answer
	Because string
	Fix     string
	Command bool // Fix is for a shell
}

// problem is a known bad state of a host: what it means and what helps.
type problem int

const (
	noPermission problem = iota
	readOnly
	occupied
	notDelegated
	notInKernel
	notMounted
	noMount
	threaded
	noSwapControl
)

// fixes are the commands that help, for an ordinary user and for root, on
// hosts with systemd. Without systemd the user's fix is to be root.
var fixes = map[problem]struct{ user, root string }{
	noPermission:  {user: userScope, root: outside},
	readOnly:      {user: remount, root: remount},
	occupied:      {user: userScope, root: rootScope},
	notDelegated:  {user: delegate, root: rootScope},
	notInKernel:   {user: enable, root: enable},
	notMounted:    {user: "sudo " + strings.ReplaceAll(mountV1, "&& ", "&& sudo "), root: mountV1},
	noMount:       {user: mount, root: mount},
	threaded:      {user: userScope, root: rootScope},
	noSwapControl: {user: swapoff, root: swapoff},
}

// The scopes and asRoot start a shell in which Pinfold can do more.
const (
	userScope = `systemd-run --user --scope -p Delegate=yes "$SHELL"`
	rootScope = `systemd-run --scope -p Delegate=yes "$SHELL"`
	delegate  = `sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\nDelegate=cpu io memory pids\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload && sudo systemctl restart "user@$(id -u)"`
	outside   = "run pinfold outside this container, or start the container with --privileged"
	remount   = "start the container with --privileged, or mount /sys/fs/cgroup writable in it"
	enable    = "add cgroup_enable={c} to the kernel command line and reboot"
	mountV1   = "mkdir -p /sys/fs/cgroup/{c} && mount -t cgroup -o {c} cgroup /sys/fs/cgroup/{c}"
	mount     = "sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup"
	swapoff   = "sudo swapoff -a, or boot with swapaccount=1"
	asRoot    = "sudo -s"
)

// no makes a negative answer with the fix that fits who we are.
func (h host) no(c Controller, p problem, because string) Support {
	fix := fixes[p].user
	if h.root {
		fix = fixes[p].root
	}
	if !h.systemd && (strings.HasPrefix(fix, "systemd-run") || fix == delegate) {
		fix = asRoot
	}
	return Support{
		Answer: No, Because: because, Fix: strings.ReplaceAll(fix, "{c}", kernelName(c)),
		Command: !slices.Contains([]string{outside, remount, enable, swapoff}, fix),
	}
}

// denied makes a negative answer from the error of a permission check.
func (h host) denied(c Controller, dir string, err error) Support {
	p := noPermission
	if errors.Is(err, unix.EROFS) {
		p = readOnly
	}
	return h.no(c, p, fmt.Sprintf("cannot make groups in %s: %v", dir, err))
}

// kernelName is what version 1 calls the controller.
func kernelName(c Controller) string {
	switch c {
	case IO:
		return "blkio"
	case Swap:
		return string(Memory)
	}
	return string(c)
}
