package vm

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"math"
)

// cpio writes the "newc" format, the one that the kernel unpacks: see
// Documentation/driver-api/early-userspace/buffer-format.rst.
type cpio struct {
	w     *bufio.Writer
	inode int
	at    int64
}

func newCPIO(w io.Writer) *cpio { return &cpio{w: bufio.NewWriterSize(w, 1<<20)} }

// entry is one file. Size bytes are read from content; a symbolic link's
// content is its target.
type entry struct {
	name     string // without a leading slash
	mode     uint32 // type and permission bits as in stat(2)
	uid, gid int
	size     int64
	content  io.Reader
}

// Unix file types, of which entry.mode has one.
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
)

func (c *cpio) add(e entry) error {
	if e.size < 0 || e.size > math.MaxUint32 || e.name == "" || e.name[0] == '/' || !fs.ValidPath(e.name) {
		return fmt.Errorf("cpio: cannot hold %q of %d bytes", e.name, e.size)
	}
	c.inode++
	if err := c.header(e); err != nil {
		return err
	}
	if e.size == 0 {
		return nil
	}
	n, err := io.CopyN(c.w, e.content, e.size)
	if err != nil {
		return fmt.Errorf("cpio: %s ended after %d of %d bytes: %w", e.name, n, e.size, err)
	}
	c.at += n
	return c.pad()
}

func (c *cpio) header(e entry) error {
	fields := [13]int64{
		0: int64(c.inode), 1: int64(e.mode), 2: int64(e.uid), 3: int64(e.gid), 4: 1,
		6: e.size, 11: int64(len(e.name)) + 1,
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
		m, err = io.WriteString(c.w, e.name+"\x00")
		n += m
	}
	c.at += int64(n)
	if err != nil {
		return err
	}
	return c.pad()
}

func (c *cpio) pad() error {
	for ; c.at%4 != 0; c.at++ {
		if err := c.w.WriteByte(0); err != nil {
			return err
		}
	}
	return nil
}

func (c *cpio) close() error {
	if err := c.header(entry{name: "TRAILER!!!"}); err != nil {
		return err
	}
	return c.w.Flush()
}
