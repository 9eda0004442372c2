//go:build linux

package native

import (
	"os"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/mount"
)

// forkPipes are the standard streams of a fork.
type forkPipes struct {
	ours   [3]*os.File
	theirs [3]int
}

// newForkPipes makes them. They belong to the fork's user, who could otherwise not
// open them by their names: /dev/stdout, /dev/stderr, /proc/self/fd.
func newForkPipes(owner mount.Owner) (*forkPipes, error) {
	p := &forkPipes{theirs: [3]int{-1, -1, -1}}
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

func (p *forkPipes) closeTheirs() {
	for _, fd := range p.theirs {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (p *forkPipes) closeOurs() {
	for _, f := range p.ours {
		if f != nil {
			_ = f.Close()
		}
	}
}
