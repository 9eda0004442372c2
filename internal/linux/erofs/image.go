//go:build linux

package erofs

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Sizes and places in the format.
const (
	blockSize  = 4096
	superAt    = 1024
	magic      = 0xE0F5E1E2
	metaBlock  = 1  // where inodes begin
	slot       = 32 // an inode's number counts these
	firstSlot  = 2  // programs take a file of number 0 for a deleted one
	inodeSize  = 64
	direntSize = 12

	plain  = 0 << 1 // data are in blocks of their own
	inline = 2 << 1 // the last part stands behind the inode
	long   = 1      // an extended inode
)

// ErrChanged is the answer to who reads a file that is not what it was.
var ErrChanged = errors.New("the file has changed since the image was made")

// Image is a read-only file system. It is safe for concurrent use.
type Image struct {
	meta    []byte // the first blocks: what describes files
	extents []extent
	dirs    []string
	size    int64
	files   int

	summing sync.Once
	sum     string
}

// Sum is the same for images that show the same files, which have not changed in between, at
// the same places.
func (i *Image) Sum() string {
	i.summing.Do(func() {
		sum := sha256.New()
		_, _ = sum.Write(i.meta)
		for _, e := range i.extents {
			dir := ""
			if e.content == nil {
				dir = i.dirs[e.stamp.dir]
			}
			_, _ = fmt.Fprintf(sum, "%d %d %q %q %d %d %d %d %q\n", e.start, e.size, dir, e.name, e.stamp.dev, e.stamp.ino, e.stamp.sec, e.stamp.nsec, e.content)
		}
		i.sum = hex.EncodeToString(sum.Sum(nil))
	})
	return i.sum
}

// extent is where a file's data are in the image.
type extent struct {
	start, size int64
	name        string
	stamp       stamp
	content     []byte // of a file that is nowhere else
}

// layout gives out places.
type layout struct {
	image *Image
	nodes []*node // in the order of their numbers
	names map[*node]string
	at    int64 // bytes of inodes so far
}

// Image makes what was collected an image. The builder is of no use any more.
func (b *Builder) Image() (*Image, error) {
	l := &layout{image: &Image{dirs: b.dirs}, names: map[*node]string{}, at: firstSlot * slot}
	l.place(b.root, b.root)
	next := int64(metaBlock) + (l.at+blockSize-1)/blockSize // the next free block
	for _, n := range l.nodes {                             // directories and links first: they are part of what is kept in memory
		if !n.is(unix.S_IFREG) {
			next = n.take(next)
		}
	}
	l.image.meta = make([]byte, next*blockSize)
	for _, n := range l.nodes {
		if n.is(unix.S_IFREG) {
			next = l.extent(n, next)
		}
		if next > math.MaxUint32 {
			return nil, errors.New("the files are larger than an image can be")
		}
	}
	l.image.size, l.image.files = next*blockSize, len(l.nodes)
	l.super()
	for i, n := range l.nodes {
		l.inode(n, uint32(i+1)) //nolint:gosec // below MaxFiles
	}
	return l.image, nil
}

// place gives a file and all below it a number.
func (l *layout) place(n, above *node) {
	if n.is(unix.S_IFDIR) {
		n.sort(above)
		n.size = dirSize(n.sorted)
	}
	need := int64(inodeSize)
	if n.inline() {
		need += n.size % blockSize
	}
	if left := blockSize - l.at%blockSize; left < need { // none is cut by a block's end
		l.at += left
	}
	n.nid = uint64(l.at / slot) //nolint:gosec // positive
	l.at += (need + slot - 1) / slot * slot
	l.nodes = append(l.nodes, n)
	for _, e := range n.sorted {
		if e.name == "." || e.name == ".." {
			continue
		}
		if e.to.is(unix.S_IFREG) {
			l.names[e.to] = e.name
		}
		l.place(e.to, n)
	}
}

// inline says whether the last part of a directory or link stands behind its inode.
func (n *node) inline() bool {
	return !n.is(unix.S_IFREG) && n.size%blockSize > 0 && n.size%blockSize <= blockSize-inodeSize
}

// take gives what does not stand behind the inode blocks from next on.
func (n *node) take(next int64) int64 {
	blocks := (n.size + blockSize - 1) / blockSize
	if n.inline() {
		blocks = n.size / blockSize
	}
	n.block = uint32(next) //nolint:gosec // bounded by MaxFiles
	return next + blocks
}

// extent gives a file's data blocks from next on.
func (l *layout) extent(n *node, next int64) int64 {
	if n.size == 0 {
		return next
	}
	n.block = uint32(next) //nolint:gosec // Image looks
	e := extent{start: next * blockSize, size: n.size, content: n.content}
	if n.host != nil {
		e.name, e.stamp = l.names[n], *n.host
	}
	l.image.extents = append(l.image.extents, e)
	return next + (n.size+blockSize-1)/blockSize
}

// dirSize is the size of a directory: blocks of entries, the last one as long as it is.
func dirSize(entries []entry) (size int64) {
	for _, block := range blocksOf(entries) {
		used := int64(0)
		for _, e := range block {
			used += direntSize + int64(len(e.name))
		}
		size = (size+blockSize-1)/blockSize*blockSize + used
	}
	return size
}

// blocksOf says which entries are in which block.
func blocksOf(entries []entry) (blocks [][]entry) {
	first, used := 0, 0
	for i, e := range entries {
		need := direntSize + len(e.name)
		if used+need > blockSize {
			blocks, first, used = append(blocks, entries[first:i]), i, 0
		}
		used += need
	}
	return append(blocks, entries[first:])
}

// super writes the superblock.
func (l *layout) super() {
	b, le := l.image.meta[superAt:], binary.LittleEndian
	le.PutUint32(b[0:], magic)
	b[12] = 12 // blkszbits
	le.PutUint16(b[14:], firstSlot)
	le.PutUint64(b[16:], uint64(len(l.nodes)))
	le.PutUint32(b[36:], uint32(l.image.size/blockSize)) //nolint:gosec // Image has looked
	le.PutUint32(b[40:], metaBlock)
}

// inode writes a file's inode, and what is kept of its data.
func (l *layout) inode(n *node, number uint32) {
	le := binary.LittleEndian
	at := metaBlock*blockSize + int64(n.nid)*slot //nolint:gosec // its own number
	b := l.image.meta[at:]
	format := uint16(long | plain)
	if n.inline() {
		format = long | inline
	}
	le.PutUint16(b[0:], format)
	le.PutUint16(b[4:], uint16(n.mode)) //nolint:gosec // 16 bits
	le.PutUint64(b[8:], uint64(n.size)) //nolint:gosec // not negative
	le.PutUint32(b[16:], n.block)
	le.PutUint32(b[20:], number)
	le.PutUint32(b[24:], n.uid)
	le.PutUint32(b[28:], n.gid)
	if !n.mtime.IsZero() {
		le.PutUint64(b[32:], uint64(n.mtime.Unix())) //nolint:gosec // as the kernel reads it
		le.PutUint32(b[40:], uint32(n.mtime.Nanosecond()))
	}
	le.PutUint32(b[44:], n.links())
	data := []byte(n.target)
	if n.is(unix.S_IFDIR) {
		data = dirData(n.sorted, n.size)
	}
	if n.is(unix.S_IFREG) {
		return
	}
	if n.inline() {
		whole := int64(len(data)) / blockSize * blockSize
		copy(b[inodeSize:], data[whole:])
		data = data[:whole]
	}
	copy(l.image.meta[int64(n.block)*blockSize:], data)
}

// links is the number of names that a file has.
func (n *node) links() uint32 {
	links := uint32(1)
	for _, e := range n.sorted {
		if e.to.is(unix.S_IFDIR) && e.name != ".." {
			links++
		}
	}
	return links
}

// dirData are a directory's entries.
func dirData(entries []entry, size int64) []byte {
	le := binary.LittleEndian
	data := make([]byte, size)
	for i, block := range blocksOf(entries) {
		b := data[i*blockSize:]
		at := direntSize * len(block)
		for j, e := range block {
			d := b[j*direntSize:]
			le.PutUint64(d, e.to.nid)
			le.PutUint16(d[8:], uint16(at)) //nolint:gosec // below a block
			d[10] = e.to.kind()
			at += copy(b[at:], e.name)
		}
	}
	return data
}

// kind is the type of a file in a directory.
func (n *node) kind() byte {
	switch n.mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return 2
	case unix.S_IFLNK:
		return 7
	}
	return 1
}

// Size is the image's, in bytes.
func (i *Image) Size() int64 { return i.size }

// Files is how many files, directories and links it shows.
func (i *Image) Files() int { return i.files }

// ReadAt implements io.ReaderAt. It fails with ErrChanged where a file has changed.
func (i *Image) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, unix.EINVAL
	}
	for n < len(p) && off+int64(n) < i.size {
		m, err := i.read(p[n:], off+int64(n))
		n += m
		if err != nil {
			return n, err
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// read reads a part of what is asked for, at least a byte of it, below the size.
func (i *Image) read(p []byte, off int64) (int, error) {
	if off < int64(len(i.meta)) {
		return copy(p, i.meta[off:]), nil
	}
	at, found := slices.BinarySearchFunc(i.extents, off, func(e extent, off int64) int {
		switch {
		case e.start > off:
			return 1
		case e.start+(e.size+blockSize-1)/blockSize*blockSize <= off:
			return -1
		}
		return 0
	})
	if !found {
		return 0, fmt.Errorf("nothing is at %d: %w", off, unix.EINVAL)
	}
	e := &i.extents[at]
	within := off - e.start
	if within >= e.size { // the rest of its last block
		rest := (e.size+blockSize-1)/blockSize*blockSize - within
		clear(p[:min(rest, int64(len(p)))])
		return int(min(rest, int64(len(p)))), nil
	}
	p = p[:min(e.size-within, int64(len(p)))]
	if e.stamp == (stamp{}) {
		return copy(p, e.content[within:]), nil
	}
	return len(p), i.readHost(e, p, within)
}

// readHost reads from a file of the host's, if it is what it was.
func (i *Image) readHost(e *extent, p []byte, at int64) error {
	name := i.dirs[e.stamp.dir] + "/" + e.name
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) { // not ours
		f, err = os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	defer f.Close() //nolint:errcheck // only read
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != e.size || (stamp{dir: e.stamp.dir, dev: st.Dev, ino: st.Ino, sec: st.Mtim.Sec, nsec: st.Mtim.Nsec}) != e.stamp {
		return fmt.Errorf("%s: %w", strings.ToValidUTF8(name, "?"), ErrChanged)
	}
	_, err = f.ReadAt(p, at)
	return err
}
