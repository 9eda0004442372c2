//go:build linux

package native

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"pinfold/internal/image"
)

// maxShownFile bounds a file of the host of which each sandbox has a copy, in bytes.
// The largest, the dynamic linker's cache, has 100 to 300 KB; a larger one is not shown.
const maxShownFile = 1 << 20

// copies are the single files of the host that the template shows, as they are now.
// It is safe for concurrent use.
type copies struct {
	mu    sync.Mutex
	known map[string]copied
}

// copied is the content of one file, and how it was known.
type copied struct {
	dev, ino, size uint64
	changed        unix.Timespec
	content        []byte
}

// of returns the files that the template shows.
func (c *copies) of(t image.Template) []image.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	var files []image.File
	for _, b := range t.Binds {
		if b.Dir {
			continue
		}
		if content, ok := c.read(b.Source); ok {
			files = append(files, image.File{Path: b.Target, Mode: 0o644, Content: content})
		}
	}
	return files
}

// read returns the content of a file, from the disk if it is another than before.
func (c *copies) read(path string) ([]byte, bool) {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || !showable(st) {
		return nil, false
	}
	if k, ok := c.known[path]; ok && k.is(st) {
		return k.content, true
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, false
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close() //nolint:errcheck // only read
	if unix.Fstat(fd, &st) != nil || !showable(st) {
		return nil, false
	}
	content := make([]byte, st.Size+1) // one more than there should be
	n, err := io.ReadFull(f, content)
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) || int64(n) != st.Size { // it is being written
		return nil, false
	}
	content = content[:n]
	if c.known == nil {
		c.known = map[string]copied{}
	}
	c.known[path] = copied{st.Dev, st.Ino, uint64(st.Size), st.Ctim, content} //nolint:gosec // not negative
	return content, true
}

func (k copied) is(st unix.Stat_t) bool {
	return k.dev == st.Dev && k.ino == st.Ino && k.size == uint64(st.Size) && k.changed == st.Ctim //nolint:gosec // not negative
}

// showable says whether it is a file that everybody may read.
func showable(st unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o004 != 0 && st.Size < maxShownFile
}
