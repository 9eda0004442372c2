//go:build linux

package native

import (
	"errors"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
)

// quota is one limit of a user namespace.
type quota struct {
	file  string // below /proc/sys/user
	value int
}

// sharedQuotas are small because the kernel charges what they count not only to
// the sandbox's user but, through the parents of its user namespace, also to
// the user that made it. Without them one program takes all of root's 128
// inotify instances, and every service and sandbox of the host has none.
var sharedQuotas = []quota{
	{"max_inotify_instances", 4},
	{"max_inotify_watches", 4096},
	{"max_user_namespaces", 0},
}

// maxPendingSignals is charged in the same way (RLIMIT_SIGPENDING): queued
// signals and timers. A host process that gets EAGAIN for a timer has met a
// user whose limit is used up.
const maxPendingSignals = 512

// settable returns the quotas that can be set on this host. Where /proc/sys is
// read-only, as in some containers, they stay as they are.
func settable() []quota {
	return slices.DeleteFunc(slices.Clone(sharedQuotas), func(q quota) bool {
		err := unix.Access("/proc/sys/user/"+q.file, unix.W_OK)
		return errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOENT)
	})
}

// limitShared sets the quotas of the sandbox's user namespace, through the
// host's /proc, in which each process sees those of its own.
func limitShared(p *spawn.Program, quotas []quota) {
	for _, q := range quotas {
		file, value := "/proc/sys/user/"+q.file, strconv.Itoa(q.value)
		fd := p.Result("open "+file, unix.SYS_OPENAT, unix.AT_FDCWD, file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		p.Positive("set "+file, unix.SYS_WRITE, fd.Ref(), value, len(value))
		p.Call("close "+file, unix.SYS_CLOSE, fd.Ref())
	}
}
