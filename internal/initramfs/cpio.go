// Package initramfs makes the file system that a kernel starts with: an archive in
// memory, of which it runs /init. It finds the kernel modules that a machine needs, in
// the order in which they can be loaded. It starts nothing.
package initramfs

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"math"
)

// Archive writes the "newc" format, the one that the kernel unpacks: see
// Documentation/driver-api/early-userspace/buffer-format.rst.
type Archive struct {
	w     *bufio.Writer
	inode int
	at    int64
}

// NewArchive begins one.
func NewArchive(w io.Writer) *Archive { return &Archive{w: bufio.NewWriterSize(w, 1<<20)} }

// Entry is one file. Size bytes are read from Content; a symbolic link's
// content is its target.
type Entry struct {
	Name     string // without a leading slash
	Mode     uint32 // type and permission bits as in stat(2)
	UID, GID int
	Size     int64
	Content  io.Reader
}

// Unix file types, of which Entry.Mode has one.
const (
	TypeDir  = 0o040000
	TypeFile = 0o100000
	TypeLink = 0o120000
)

// Add adds a file. The directories above it come before it.
func (c *Archive) Add(e Entry) error {
	if e.Size < 0 || e.Size > math.MaxUint32 || e.Name == "" || e.Name[0] == '/' || !fs.ValidPath(e.Name) {
		return fmt.Errorf("initramfs: cannot hold %q of %d bytes", e.Name, e.Size)
	}
	c.inode++
	if err := c.header(e); err != nil {
		return err
	}
	if e.Size == 0 {
		return nil
	}
	n, err := io.CopyN(c.w, e.Content, e.Size)
	if err != nil {
		return fmt.Errorf("initramfs: %s ended after %d of %d bytes: %w", e.Name, n, e.Size, err)
	}
	c.at += n
	return c.pad()
}

func (c *Archive) header(e Entry) error {
	fields := [13]int64{
		0: int64(c.inode), 1: int64(e.Mode), 2: int64(e.UID), 3: int64(e.GID), 4: 1,
		6: e.Size, 11: int64(len(e.Name)) + 1,
	}
	n, err := io.WriteString(c.w, "070701")
	for _, f := range fields {
		if err == nil {
			var m int
			m, err = fmt.Fprintf(c.w, "%08x", f)
			n += m
		}
	}
	if err == nil {
		var m int
		m, err = io.WriteString(c.w, e.Name+"\x00")
		n += m
	}
	c.at += int64(n)
	if err != nil {
		return err
	}
	return c.pad()
}

func (c *Archive) pad() error {
	for ; c.at%4 != 0; c.at++ {
		if err := c.w.WriteByte(0); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the archive. It leaves the writer open.
func (c *Archive) Close() error {
	if err := c.header(Entry{Name: "TRAILER!!!"}); err != nil {
		return err
	}
	return c.w.Flush()
}
