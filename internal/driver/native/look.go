//go:build linux

package native

import (
	"errors"
	"slices"

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

// Read implements driver.Looker. The file is the guest's: it is opened without
// waiting for anybody, through no link, and is read only if it is a regular one, as
// far as it was allowed to be long.
func (m *machine) Read(path string, most int) (content []byte, ok bool) {
	fd, err := m.meter.openBelow(path, 0)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > int64(most) {
		return nil, false
	}
	content = make([]byte, 0, st.Size+1) // one more, to see the end
	for len(content) <= most {
		content = slices.Grow(content, 1)
		n, err := unix.Read(fd, content[len(content):cap(content)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, false
		case n == 0:
			return content, true
		default:
			content = content[:len(content)+n]
		}
	}
	return nil, false
}

// openDir opens a directory below the sandbox's root.
func (t *meter) openDir(dir string) (int, error) { return t.openBelow(dir, unix.O_DIRECTORY) }

// openBelow opens what is below the sandbox's root, for reading.
func (t *meter) openBelow(path string, flags uint64) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.root < 0 || len(t.machine.plan.Mounts) > 0 { // what is mounted in there is not seen
		return -1, unix.EBADF
	}
	return unix.Openat2(t.root, rel(path), &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY | flags,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}
