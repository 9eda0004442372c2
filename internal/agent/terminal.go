//go:build linux

package agent

import (
	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
)

// newTerminal makes a terminal of the sandbox's own devpts for a process that
// is being started. It becomes the user's, so that programs can find it again
// by its name.
func (a *agent) newTerminal(req *wire.StartRequest) (*pipes, error) {
	if !req.Terminal.Valid() {
		return nil, unix.EINVAL
	}
	master, err := sysOpen("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f, err := newPollFile(master, "terminal")
	if err != nil {
		_ = sysClose(master)
		return nil, err
	}
	f.tty = true
	f.setSize(*req.Terminal)
	slave, err := a.otherEnd(master, req)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	p := &pipes{terminal: true, theirs: [wire.Streams]int{slave, slave, slave}}
	p.ours[wire.Stdin], p.ours[wire.Stdout] = f, f
	return p, nil
}

// otherEnd opens the process's end. No path is involved.
func (a *agent) otherEnd(master int, req *wire.StartRequest) (int, error) {
	if err := sysIoctlPointer(master, unix.TIOCSPTLCK, new(int32)); err != nil {
		return -1, err
	}
	slave, err := sysIoctl(master, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if a.hello.SwitchUser {
		if err := sysFchown(slave, req.UID, req.GID); err != nil {
			_ = sysClose(slave)
			return -1, err
		}
	}
	if err := sysFchmod(slave, 0o600); err != nil {
		_ = sysClose(slave)
		return -1, err
	}
	return slave, nil
}

// master is our end of the terminal, or nil.
func (p *pipes) master() *pollFile {
	if !p.terminal {
		return nil
	}
	return p.ours[wire.Stdout]
}

// setSize tells the terminal and its programs how large it is.
func (f *pollFile) setSize(t wire.TerminalSize) {
	size := &unix.Winsize{Row: uint16(t.Rows), Col: uint16(t.Cols)} //nolint:gosec // at most MaxTerminal
	_ = f.raw.Control(func(fd uintptr) { _ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) })
}
