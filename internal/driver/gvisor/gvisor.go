// Package gvisor makes sandboxes whose programs meet a kernel of the sandbox's own: gVisor's
// sentry, a kernel in user space, which runsc starts. There is no daemon, and nothing of a
// machine on the host's disks.
//
// # A machine
//
// The first process of a machine is built from outside, by package spawn, in namespaces of
// its own: user ids of the host's that nobody else has, no network, a process tree that ends
// with it. Its root is a tmpfs that holds all that runsc works with, and nothing else of the
// host's:
//
//	bundle/   the OCI bundle: config.json, and in rootfs what the template shows
//	skeleton/ of an image, the sandbox's own files, which rootfs, an overlay, has over the layers
//	disk/     a tmpfs as large as the disk may be: all writable places
//	shown/    the files of /proc and /sys that are the sandbox's own
//	state/    runsc's, with the socket on which the sentry answers
//
// Then it becomes runsc, which starts the sentry (systrap, no network), and in that our
// agent, from a sealed file in memory. The agent's connection is one end of a pair of
// sockets, handed down as a descriptor (--pass-fd). So no socket of the host's can be
// connected to, made or seen inside (--host-uds=none), and a machine ends with the
// connection, or when this process dies (PR_SET_PDEATHSIG, and the pid namespace).
//
// Whoever breaks the sentry stands in its own sandbox, which runsc makes (an empty root, a
// filter), as a user of the host's that has nothing, and in the machine's control group.
//
// # Limits
//
// runsc is told to leave cgroups alone: it is born in a group of ours, with all that it
// starts. What the sentry and its helpers take to start is measured when the agent is ready,
// and does not count as the guest's. Processes are the sentry's: it keeps programs to
// RLIMIT_NPROC, and says how many there are.
package gvisor

import (
	"sync"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// Name is the driver's name in requests and results.
const Name = "gvisor"

// Options configure the driver.
type Options struct {
	// Runsc is the program, a path or a name to look up in PATH.
	Runsc string
	// Agent returns the agent's executable for this host's architecture.
	Agent func() ([]byte, error)
	// Blocks is the file of the host's id blocks. Default: /run/pinfold/blocks.
	Blocks string
}

// Driver makes machines. It is safe for concurrent use.
type Driver struct {
	o Options

	mu     sync.Mutex
	proved proof // of the runsc that there was last

	local local
}

// New returns the driver. Nothing is touched until it is first used.
func New(o Options) *Driver { return &Driver{o: o} }

// Name returns "gvisor".
func (d *Driver) Name() string { return Name }

// Abilities say that programs meet another kernel than the host's.
func (d *Driver) Abilities() driver.Abilities {
	return driver.Abilities{Level: sandbox.LevelKernel, Shows: true, Pauses: true, Snapshots: []string{sandbox.SnapshotFiles}}
}

func unavailable(message string) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: message}
}
