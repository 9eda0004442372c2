//go:build linux

package native

import (
	"os"

	"golang.org/x/sys/unix"
)

// forkPipes are the standard streams of a fork.
type forkPipes struct {
	ours   [3]*os.File
	theirs [3]int
}

func newForkPipes() (*forkPipes, error) {
	p := &forkPipes{theirs: [3]int{-1, -1, -1}}
	for i := range p.theirs {
		var ends [2]int // read, write
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			p.closeTheirs()
			p.closeOurs()
			return nil, err
		}
		ours, theirs := ends[0], ends[1]
		if i == 0 {
			ours, theirs = theirs, ours
		}
		_ = unix.SetNonblock(ours, true) // on our own pipe
		p.ours[i], p.theirs[i] = os.NewFile(uintptr(ours), "stdio"), theirs
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
