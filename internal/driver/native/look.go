//go:build linux

package native

import (
	"golang.org/x/sys/unix"
)

// lookBytes is how much of a directory Look reads: a few dozen names.
const lookBytes = 2 << 10

// Look implements driver.Looker. It goes through the sandbox's root, which the
// host holds open, follows no link, and reads nothing but names.
func (m *machine) Look(dir string) (names []string, ok bool) {
	fd, err := m.meter.openDir(dir)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	b := make([]byte, lookBytes)
	for range 2 { // the second time there must be nothing left
		n, err := unix.ReadDirent(fd, b)
		if err != nil {
			return nil, false
		}
		if n == 0 {
			return names, true
		}
		if names != nil {
			break
		}
		_, _, names = unix.ParseDirent(b[:n], -1, []string{})
	}
	return nil, false
}

// openDir opens a directory below the sandbox's root.
func (t *meter) openDir(dir string) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.root < 0 {
		return -1, unix.EBADF
	}
	return unix.Openat2(t.root, rel(dir), &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}
