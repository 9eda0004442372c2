package compilecache

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"pinfold/sandbox"
)

// An entry's file is, from its beginning: the products' content one after the
// other; the index, in JSON; the footer: a word that tells the format, the
// index's length in eight bytes, and the SHA-256 of the key and of everything
// before it. With the key in the hash, an entry under another's name is a
// damaged one. Nothing is synced to the disk: what a crash has torn does not
// fit its hash.
const (
	format     = "pinfold1"
	footerSize = len(format) + 8 + sha256.Size
	maxIndex   = 8 << 20
)

// ErrNotKept says why an outcome does not go into the cache. Nothing is wrong
// with the outcome.
var ErrNotKept = errors.New("not kept in the compile cache")

// Said is what the compiler said.
type Said struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

// File is one product.
type File struct {
	Path   string `json:"path"` // as the sandbox named it; never a name on the host
	Size   int64  `json:"size"`
	SHA256 []byte `json:"sha256"`
}

type index struct {
	Said  Said   `json:"said"`
	Files []File `json:"files"`
}

// Entry is what a compile step made, checked as a whole. Its file is open, so
// it stays whole when the cache drops it.
type Entry struct {
	Said  Said
	Files []File

	file *os.File
	next int64 // where the next file's content begins
}

var errDamaged = errors.New("it does not fit its hash")

// readEntry opens an entry and checks it.
func readEntry(root *os.Root, name string, k Key) (*Entry, error) {
	info, err := root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() { // opening a pipe would wait
		err = errDamaged
	}
	if err != nil {
		return nil, err
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	e, err := checkEntry(f, k)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return e, nil
}

func checkEntry(f *os.File, k Key) (*Entry, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	body := info.Size() - int64(footerSize)
	if !info.Mode().IsRegular() || body < 0 || info.Size() > MaxEntryBytes+maxIndex {
		return nil, errDamaged
	}
	footer := make([]byte, footerSize)
	if _, err := f.ReadAt(footer, body); err != nil {
		return nil, err
	}
	sum := newHash(k)
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, body)); err != nil {
		return nil, err
	}
	_, _ = sum.Write(footer[:len(format)+8])
	length := binary.BigEndian.Uint64(footer[len(format):])
	if !bytes.Equal(sum.Sum(nil), footer[len(format)+8:]) || string(footer[:len(format)]) != format || length > maxIndex || int64(length) > body {
		return nil, errDamaged
	}
	return readIndex(f, body-int64(length), body)
}

func readIndex(f *os.File, from, to int64) (*Entry, error) {
	var x index
	if err := json.NewDecoder(io.NewSectionReader(f, from, to-from)).Decode(&x); err != nil {
		return nil, errDamaged
	}
	left := from
	for _, file := range x.Files {
		left -= file.Size
		if file.Size < 0 || left < 0 || sandbox.CheckGuestPath("", file.Path) != nil {
			return nil, errDamaged
		}
	}
	if left != 0 || len(x.Files) > MaxFiles {
		return nil, errDamaged
	}
	return &Entry{Said: x.Said, Files: x.Files, file: f}, nil
}

func newHash(k Key) hash.Hash {
	h := sha256.New()
	_, _ = h.Write(k[:]) // a hash takes everything
	return h
}

// Content returns the content of the next file, to be read to its end before
// the one after it. It is checked once more on its way: instead of the end it
// gives an error when it is not what was put down.
func (e *Entry) Content(f File) io.Reader {
	r := &content{from: io.NewSectionReader(e.file, e.next, f.Size), sum: sha256.New(), want: f.SHA256}
	e.next += f.Size
	return r
}

// Close closes the entry's file.
func (e *Entry) Close() error { return e.file.Close() }

// content reads one file and checks it.
type content struct {
	from io.Reader
	sum  hash.Hash
	want []byte
}

// Read implements io.Reader.
func (c *content) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	_, _ = c.sum.Write(p[:n])
	if errors.Is(err, io.EOF) && !bytes.Equal(c.sum.Sum(nil), c.want) {
		err = errDamaged
	}
	return n, err
}

// Writer puts an entry down. After the first error nothing more is written;
// Keep says what it was.
type Writer struct {
	cache     *Cache
	temporary string
	name      string

	file  *os.File
	out   *bufio.Writer
	sum   hash.Hash
	size  int64
	index index
	of    hash.Hash // the last file's
	err   error
}

// Put begins an entry. The caller ends it with Keep or Discard.
func (c *Cache) Put(tenant string, k Key) *Writer {
	random := make([]byte, 12)
	_, _ = rand.Read(random) // never fails on Linux
	w := &Writer{cache: c, temporary: fmt.Sprintf("%s%x", unfinished, random), name: fileName(tenant, k), sum: newHash(k)}
	w.file, w.err = c.root.OpenFile(w.temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	w.out = bufio.NewWriterSize(w.file, 64<<10)
	return w
}

// File begins a file; what is written to the writer from now on is its content.
// It never fails, so that it can stand beside another reader of the content.
func (w *Writer) File(path string) io.Writer {
	w.endFile()
	if w.err == nil && len(w.index.Files) == MaxFiles {
		w.err = fmt.Errorf("%w: more than %d files", ErrNotKept, MaxFiles)
	}
	if w.err == nil && sandbox.CheckGuestPath("", path) != nil {
		w.err = fmt.Errorf("%w: a file's name", ErrNotKept)
	}
	w.of = sha256.New()
	w.index.Files = append(w.index.Files, File{Path: path})
	return (*fileWriter)(w)
}

type fileWriter Writer

// Write implements io.Writer.
func (w *fileWriter) Write(p []byte) (int, error) {
	if w.err == nil && w.size+int64(len(p)) > MaxEntryBytes {
		w.err = fmt.Errorf("%w: more than %d bytes", ErrNotKept, MaxEntryBytes)
	}
	if w.err == nil {
		_, _ = w.of.Write(p)
		w.index.Files[len(w.index.Files)-1].Size += int64(len(p))
		(*Writer)(w).write(p)
	}
	return len(p), nil
}

func (w *Writer) endFile() {
	if n := len(w.index.Files); n > 0 {
		w.index.Files[n-1].SHA256 = w.of.Sum(nil)
	}
}

// write writes a part of what the entry's hash covers.
func (w *Writer) write(p []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(p)
		_, _ = w.sum.Write(p)
		w.size += int64(len(p))
	}
}

// Keep makes what was written an entry, in place of one that is there. An error
// means that there is none; it is ErrNotKept where the outcome itself is the
// reason.
func (w *Writer) Keep(said Said) error {
	w.endFile()
	if w.err == nil && (len(said.Stdout) > MaxSaid || len(said.Stderr) > MaxSaid) {
		w.err = fmt.Errorf("%w: the compiler said too much", ErrNotKept)
	}
	w.index.Said = said
	b, err := json.Marshal(w.index)
	if w.err == nil && (err != nil || len(b) > maxIndex) {
		w.err = fmt.Errorf("%w: its index", ErrNotKept)
	}
	w.write(b)
	w.write(binary.BigEndian.AppendUint64([]byte(format), uint64(len(b))))
	w.write(w.sum.Sum(nil))
	if w.err == nil {
		w.err = w.out.Flush()
	}
	if w.file != nil {
		w.err = errors.Join(w.err, w.file.Close())
		w.file = nil
	}
	if w.err == nil {
		w.err = w.cache.keep(w.temporary, w.name, w.size)
	}
	if w.err != nil {
		_ = w.cache.root.Remove(w.temporary) // Open removes it otherwise
	}
	return w.err
}

// Discard puts nothing down.
func (w *Writer) Discard() {
	w.err = errors.Join(w.err, ErrNotKept)
	_ = w.Keep(Said{}) // says what is known
}
