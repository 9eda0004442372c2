//go:build linux

package native

import (
	"os"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/mount"
)

// childPipes are the standard streams of a zygote's child.
type childPipes struct {
	ours   [3]*os.File
	theirs [3]int
}

// newChildPipes makes them. They belong to the child's user, who could otherwise not
// open them by their names: /dev/stdout, /dev/stderr, /proc/self/fd.
func newChildPipes(owner mount.Owner) (*childPipes, error) {
	p := &childPipes{theirs: [3]int{-1, -1, -1}}
	for i := range p.theirs {
		var ends [2]int // read, write
		err := unix.Pipe2(ends[:], unix.O_CLOEXEC)
		if err == nil {
			ours, theirs := ends[0], ends[1]
			if i == 0 {
				ours, theirs = theirs, ours
			}
			_ = unix.SetNonblock(ours, true) // on our own pipe
			p.ours[i], p.theirs[i] = os.NewFile(uintptr(ours), "stdio"), theirs
			err = unix.Fchown(theirs, owner.UID, owner.GID)
		}
		if err != nil {
			p.closeTheirs()
			p.closeOurs()
			return nil, err
		}
	}
	return p, nil
}

func (p *childPipes) closeTheirs() {
	for _, fd := range p.theirs {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (p *childPipes) closeOurs() {
	for _, f := range p.ours {
		if f != nil {
			_ = f.Close()
		}
	}
}
