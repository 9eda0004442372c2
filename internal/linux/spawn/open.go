//go:build linux

package spawn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// OpenIn opens a file as the owner of a user namespace may: with every capability over
// what belongs to the namespace's ids, and none over anything else. namespace is its
// descriptor; flags and resolve are as openat2(2) takes them, for what exists. A process can enter a user namespace only
// while it has one thread, so that another one does it, which shares our descriptors and ends
// at once. An error of the open is its error number.
func OpenIn(namespace, dir int, name string, flags, resolve uint64) (int, error) {
	raw := make([]byte, unix.SizeofOpenHow)
	for i, v := range []uint64{flags | unix.O_CLOEXEC, 0, resolve} {
		binary.NativeEndian.PutUint64(raw[8*i:], v)
	}
	p := withRoom(3)
	p.Call("enter user namespace", unix.SYS_SETNS, namespace, unix.CLONE_NEWUSER)
	// Other capabilities make the memory undumpable that we share.
	p.Call("keep host dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	fd := p.Result("open", unix.SYS_OPENAT2, dir, name, raw, len(raw))
	out := new(outcome)
	if err := p.walkHere(out); err != nil {
		return -1, err
	}
	switch last := len(p.names) - 1; {
	case int(out.reached) > last: //nolint:gosec // an index
		return fd.value(), nil
	case out.errno == 0:
		return -1, fmt.Errorf("%s: %w", p.names[out.reached], ErrKilled)
	case int(out.reached) == last: //nolint:gosec // an index
		return -1, syscall.Errno(out.errno)
	default:
		return -1, fmt.Errorf("%s: %s", p.names[out.reached], syscall.Errno(out.errno).Error()) // none that says something of the file
	}
}

// walkHere has a process walk the steps that shares our memory and our descriptors, and waits
// until it has ended.
func (p *Program) walkHere(out *outcome) error {
	pid, err := p.sharing(out)
	if err != nil {
		return &StepError{Step: StepClone, Errno: errnoOf(err)}
	}
	for {
		if _, err = unix.Wait4(pid, nil, unix.WALL, nil); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
