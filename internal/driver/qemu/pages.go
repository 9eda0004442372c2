//go:build linux

package qemu

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// page is the size of a page of memory.
const page = 4096

// pages is a machine's memory, seen from outside while it stands still.
type pages struct {
	mem, pagemap *os.File // of QEMU
	shared       *os.File // that it maps
	areas        []area
}

// area is where QEMU has a part of the memory.
type area struct{ at, end, addr int64 }

// openPages opens the memory. Only the areas that map the machine's own file are read.
func (q *process) openPages() (p *pages, err error) {
	p = &pages{shared: q.memory}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	proc := fmt.Sprintf("/proc/%d/", q.child.PID)
	if p.mem, err = os.Open(proc + "mem"); err != nil {
		return nil, err
	}
	if p.pagemap, err = os.Open(proc + "pagemap"); err != nil {
		return nil, err
	}
	p.areas, err = areasOf(proc+"maps", q.memory)
	return p, err
}

// close closes what was opened here.
func (p *pages) close() {
	for _, f := range []*os.File{p.mem, p.pagemap} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// maxAreas bounds how many a process may have made of its mapping.
const maxAreas = 1024

// areasOf finds where a process maps a file.
func areasOf(maps string, file *os.File) (all []area, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, err
	}
	f, err := os.Open(maps)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var begin, end, offset int64
		var inode uint64
		var rights, device string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d", &begin, &end, &rights, &offset, &device, &inode); n != 6 || inode != st.Ino || !strings.Contains(lines.Text(), "memfd:") {
			continue
		}
		if all = append(all, area{offset, offset + end - begin, begin}); len(all) > maxAreas {
			return nil, errors.New("QEMU has it in too many pieces")
		}
	}
	if len(all) == 0 && lines.Err() == nil {
		return nil, errors.New("QEMU does not map it")
	}
	return all, lines.Err()
}

// read fills b, which is a window, with what is there from at on, and says whether anything is.
func (p *pages) read(b []byte, at int64) (there bool, err error) {
	next, err := unix.Seek(int(p.shared.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		clear(b)
	case err != nil:
		return false, err
	case next < at+int64(len(b)):
		there = true
		if _, err := p.shared.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
	default:
		clear(b)
	}
	for _, a := range p.areas {
		begin, end := max(a.at, at), min(a.end, at+int64(len(b)))
		if begin >= end {
			continue
		}
		own, err := p.readOwn(b[begin-at:end-at], a.addr+begin-a.at)
		if err != nil {
			return false, err
		}
		there = there || own
	}
	return there, nil
}

// What the kernel says of a page.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
)

// readOwn reads the pages that the process has of its own from an address on.
func (p *pages) readOwn(b []byte, addr int64) (some bool, err error) {
	marks := make([]byte, len(b)/page*8)
	if _, err := p.pagemap.ReadAt(marks, addr/page*8); err != nil {
		return false, err
	}
	own := func(n int) bool {
		m := binary.NativeEndian.Uint64(marks[n/page*8:])
		return m&(pagePresent|pageSwapped) != 0 && m&pageOfFile == 0
	}
	for begin := 0; begin < len(b); begin += page {
		end := begin
		for end < len(b) && own(end) {
			end += page
		}
		if end == begin {
			continue
		}
		if _, err := p.mem.ReadAt(b[begin:end], addr+int64(begin)); err != nil {
			return false, err
		}
		some, begin = true, end
	}
	return some, nil
}
