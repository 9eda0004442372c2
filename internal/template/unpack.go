package template

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"pinfold/internal/archive"
)

// copyBuffer is how much of a file is in memory at a time, in bytes.
const copyBuffer = 256 << 10

// Of an entry's permissions, only whether it is executable is kept.
const (
	dirMode     = 0o755
	fileMode    = 0o644
	programMode = 0o755
)

// How OCI layers say that something below is hidden.
const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	whiteoutOther  = ".wh..wh." // what AUFS kept for itself
)

// unpacking is one layer on its way to the disk.
type unpacking struct {
	ctx    context.Context //nolint:containedctx // the call's own
	root   *os.Root
	left   *budget
	buffer []byte

	// here is the directory in which the last entry was put, and open is it: most
	// entries follow one of the same directory.
	here string
	open *os.Root

	times map[string]int64 // of directories, set last: each entry put into one changes its time
}

// budget is what an image may still take.
type budget struct {
	bytes, entries int64
}

// unpack unpacks a layer's tar into an empty directory that nobody else uses. It reads
// to the end of the archive, not of the stream.
func unpack(ctx context.Context, r io.Reader, dir string, left *budget) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // its files are closed
	u := &unpacking{ctx: ctx, root: root, left: left, buffer: make([]byte, copyBuffer), here: ".", open: root, times: map[string]int64{}}
	defer u.leave()
	for tr := tar.NewReader(r); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return u.setTimes()
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // names are checked below
			return broken(err)
		}
		if err := u.entry(h, tr); err != nil {
			return err
		}
	}
}

// broken is the error for bytes that are no archive.
func broken(err error) error {
	return invalid("has a layer that is no whole tar archive: %s", ended(err))
}

func (u *unpacking) leave() {
	if u.open != u.root {
		_ = u.open.Close() // only looked up in
	}
}

// clean checks an entry's name and makes it one relative to the root. Whether a name
// begins with / does not matter: the image's root is meant.
func clean(name string) (string, error) {
	if len(name) > maxPath || strings.ContainsRune(name, 0) {
		return "", refuse(name, "has a name that is too long, or holds a zero byte")
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", refuse(name, "has a name that goes up")
		}
		depth++
	}
	if depth > maxDepth {
		return "", refuse(name, fmt.Sprintf("lies more than %d directories deep", maxDepth))
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

// entry takes up one entry.
func (u *unpacking) entry(h *tar.Header, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeXGlobalHeader, tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return nil // a comment, or what no sandbox is shown
	}
	if err := u.spend(); err != nil {
		return err
	}
	p, err := clean(h.Name)
	if err != nil {
		return err
	}
	switch {
	case p == "":
		return u.rootEntry(h)
	case mountedOver(p):
		return nil
	}
	dir, name := path.Split(p)
	if archive.Sparse(h) {
		return refuse(h.Name, "is a sparse file")
	}
	if err := u.enter(path.Clean(dir), h.Name); err != nil {
		return err
	}
	if strings.HasPrefix(name, whiteoutPrefix) {
		return u.hide(name, h.Name)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(p, name, h)
	case tar.TypeReg:
		return u.file(name, h, content)
	case tar.TypeSymlink:
		return u.symlink(name, h)
	case tar.TypeLink:
		return u.link(p, name, h)
	}
	return refuse(h.Name, fmt.Sprintf("is of a kind that is not known, %q", h.Typeflag))
}

// spend counts an entry.
func (u *unpacking) spend() error {
	if u.left.entries--; u.left.entries < 0 {
		return tooMuch("has too many entries")
	}
	return nil
}

// mountedOver says whether an entry lies where every sandbox mounts what is its own. It
// is left out, even as a whiteout: nothing that an image has there may decide where such
// a mount ends up.
func mountedOver(p string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(p, whiteoutPrefix), "/")
	return first == "dev" || first == "proc" || first == "sys"
}

func (u *unpacking) rootEntry(h *tar.Header) error {
	if h.Typeflag != tar.TypeDir {
		return refuse(h.Name, "is the root, and no directory")
	}
	return nil
}

// enter opens the directory of an entry, and makes what of it is not there yet. No step
// of the way may be anything but a directory.
func (u *unpacking) enter(dir, entry string) error {
	if dir == u.here {
		return nil
	}
	u.leave()
	u.here, u.open = ".", u.root
	if dir == "." {
		return nil
	}
	at, done := u.root, ""
	for part := range strings.SplitSeq(dir, "/") {
		done = path.Join(done, part)
		next, err := u.step(at, part, done, entry)
		if at != u.root {
			_ = at.Close()
		}
		if err != nil {
			return err
		}
		at = next
	}
	u.here, u.open = dir, at
	return nil
}

// step goes into one directory, which is made if nothing has its name.
func (u *unpacking) step(at *os.Root, part, done, entry string) (*os.Root, error) {
	info, err := at.Lstat(part)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := u.mkdir(at, part, false); err != nil {
			return nil, err
		}
		if err := u.spend(); err != nil {
			return nil, err
		}
		u.times[done] = 0
	case err != nil:
		return nil, err
	case isWhiteout(info):
		if err := u.mkdir(at, part, true); err != nil {
			return nil, err
		}
		u.times[done] = 0
	case !info.IsDir():
		return nil, refuse(entry, "lies below something that is no directory, or a symbolic link")
	}
	return at.OpenRoot(part)
}

// mkdir makes a directory. Where it takes the place of a whiteout, what lower layers
// have of it stays hidden.
func (u *unpacking) mkdir(at *os.Root, name string, hidden bool) error {
	if hidden {
		if err := at.Remove(name); err != nil {
			return err
		}
	}
	if err := at.Mkdir(name, dirMode); err != nil {
		return err
	}
	if err := at.Chmod(name, dirMode); err != nil { // not what the umask left
		return err
	}
	if !hidden {
		return nil
	}
	return u.opaque(at, name)
}

func (u *unpacking) opaque(at *os.Root, name string) error {
	dir, err := at.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only marked
	return setOpaque(dir)
}

// hide takes up a whiteout. It hides what is below this layer, not what is in it.
func (u *unpacking) hide(name, entry string) error {
	if name == whiteoutOpaque {
		return u.opaque(u.open, ".")
	}
	if strings.HasPrefix(name, whiteoutOther) {
		return nil
	}
	hidden := strings.TrimPrefix(name, whiteoutPrefix)
	if hidden == "" || hidden == "." || hidden == ".." {
		return refuse(entry, "hides something that has no name")
	}
	info, err := u.open.Lstat(hidden)
	switch {
	case err == nil && info.IsDir():
		return u.opaque(u.open, hidden)
	case err == nil:
		return nil // what this layer has is not the lower one
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	dir, err := u.open.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only marked
	return makeWhiteout(dir, hidden)
}

func (u *unpacking) directory(p, name string, h *tar.Header) error {
	info, err := u.open.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = u.mkdir(u.open, name, false)
	case err != nil:
	case isWhiteout(info):
		err = u.mkdir(u.open, name, true)
	case !info.IsDir():
		return refuse(h.Name, "is a directory in the place of something else")
	}
	u.times[p] = seconds(h.ModTime)
	return err
}

// makeRoom removes what an entry of the same name put there before: the last one counts.
func (u *unpacking) makeRoom(name string, h *tar.Header) error {
	info, err := u.open.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return refuse(h.Name, "is in the place of a directory")
	}
	return u.open.Remove(name)
}

func (u *unpacking) file(name string, h *tar.Header, content io.Reader) error {
	if h.Size < 0 || h.Size > u.left.bytes {
		return tooMuch("has more bytes than are accepted")
	}
	u.left.bytes -= h.Size
	if err := u.makeRoom(name, h); err != nil {
		return err
	}
	f, err := u.open.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	in := &reading{r: content}
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, in, u.buffer)
	mode := os.FileMode(fileMode)
	if h.Mode&0o100 != 0 {
		mode = programMode
	}
	err = errors.Join(err, f.Chmod(mode), f.Close())
	switch {
	case in.err != nil: // what else went wrong followed from it
		return broken(in.err)
	case err != nil:
		return err
	case n != h.Size:
		return broken(io.ErrUnexpectedEOF)
	}
	when := time.Unix(seconds(h.ModTime), 0)
	return u.open.Chtimes(name, when, when)
}

// reading tells an archive's error from the disk's.
type reading struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (c *reading) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

func (u *unpacking) symlink(name string, h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) > maxLink || strings.ContainsRune(h.Linkname, 0) {
		return refuse(h.Name, "is a symbolic link that says nothing, or too much")
	}
	if err := u.makeRoom(name, h); err != nil {
		return err
	}
	return u.open.Symlink(h.Linkname, name)
}

// link makes another name for a file of the same layer.
func (u *unpacking) link(p, name string, h *tar.Header) error {
	target, err := clean(h.Linkname)
	if err != nil {
		return err
	}
	if target == p {
		return nil
	}
	if err := u.regular(target, h); err != nil {
		return err
	}
	if err := u.makeRoom(name, h); err != nil {
		return err
	}
	return u.root.Link(target, p)
}

// regular says whether a path leads to a file of this layer, through no link.
func (u *unpacking) regular(target string, h *tar.Header) error {
	for i := range len(target) + 1 {
		if i < len(target) && target[i] != '/' {
			continue
		}
		info, err := u.root.Lstat(target[:i])
		if errors.Is(err, fs.ErrNotExist) {
			return refuse(h.Name, "is another name of a file that is not in its layer")
		}
		if err != nil {
			return err
		}
		if last := i == len(target); last && !info.Mode().IsRegular() || !last && !info.IsDir() {
			return refuse(h.Name, "is another name of something that is no file, or lies behind a symbolic link")
		}
	}
	return nil
}

func (u *unpacking) setTimes() error {
	for dir, seconds := range u.times {
		when := time.Unix(seconds, 0)
		if err := u.root.Chtimes(dir, when, when); err != nil {
			return err
		}
	}
	return nil
}

// maxTime is a moment that every file system can keep, in the year 2106.
const maxTime = 1<<32 - 1

// seconds is an entry's time as it is kept.
func seconds(t time.Time) int64 { return min(max(t.Unix(), 0), maxTime) }
