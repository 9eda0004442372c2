package archive

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"pinfold/sandbox"
)

// Unpack unpacks an archive into a directory, which is made if it is not there.
// A regular file of the same name is replaced; a directory is kept. An archive
// that breaks a rule is an error of code unsafe_archive that names the
// entry, and nothing has changed then. When the sink fails while the checked files
// are put in their places, those that were not there before are removed again.
//
// r is read by the caller's goroutine.
func Unpack(ctx context.Context, r io.Reader, root string, f Format, limits Limits, sink Sink) (Summary, error) {
	limits = limits.withDefaults()
	u := &unpacking{
		ctx: ctx, sink: sink, root: root, lim: limits, names: newNames(limits.Entries),
		stage: path.Join(root, ".pinfold-unpack-"+rand.Text()),
	}
	if err := u.look(); err != nil {
		return Summary{}, err
	}
	in := &input{r: r}
	err := u.read(in, f)
	if in.err != nil { // rather than what the format makes of it
		err = sandbox.Errorf(sandbox.CodeRequestInvalid, "the archive did not come whole: %w", in.err)
	}
	if errors.Is(err, errDamaged) && in.format() != "" && in.format() != f {
		err = &sandbox.Error{
			Code: sandbox.CodeUnsafeArchive, Field: "format", Message: fmt.Sprintf("the archive looks like %s, and not like %s", in.format(), f),
			Hint: fmt.Sprintf("nothing was unpacked; say that its format is %s", in.format()),
		}
	}
	if err == nil {
		err = u.place()
	}
	if err != nil {
		u.undo()
		return Summary{}, err
	}
	return u.sum, u.clear()
}

// unpacking is one archive on its way in.
type unpacking struct {
	ctx   context.Context //nolint:containedctx // the call's own
	sink  Sink
	root  string
	lim   Limits
	names *names
	sum   Summary

	stage   string // where files wait
	staged  bool   // something may be there
	missing string // the topmost directory above root that was not there; "" when root was
	empty   bool   // root was there and held nothing
	files   []placed
	dirs    []placed
	made    []string // in their places, and not there before; in order
}

// placed is an entry that has been checked.
type placed struct {
	name string
	mode uint32
}

// look finds out what there is of root.
func (u *unpacking) look() error {
	for dir := u.root; ; dir = path.Dir(dir) {
		info, err := u.sink.Stat(u.ctx, dir)
		if err == nil {
			if info.Type != sandbox.FileDir {
				return &sandbox.Error{Code: sandbox.CodePathInvalid, Message: fmt.Sprintf("\"%s\" is not a directory", sandbox.SafeText(dir, 200))}
			}
			return u.lookInside()
		}
		if sandbox.AsError(err).Code != sandbox.CodeFileNotFound || dir == path.Dir(dir) {
			return err
		}
		u.missing = dir
	}
}

// lookInside finds out whether root holds something. In a fresh directory
// nothing is in the way, and need not be asked for name by name.
func (u *unpacking) lookInside() error {
	if u.missing != "" {
		return nil
	}
	list, err := u.sink.List(u.ctx, u.root, 1, 1)
	u.empty = len(list.Items) == 0 && !list.More && list.Unprintable == 0
	return err
}

func (u *unpacking) read(in *input, f Format) error {
	switch f {
	case Tar:
		return u.readTar(in, in, f)
	case TarGzip:
		return u.readGzip(in)
	case Zip:
		return u.readZip(in)
	}
	_, err := ParseFormat(string(f))
	return err
}

// dir takes up a directory.
func (u *unpacking) dir(name string, mode uint32) error {
	p, err := clean(name, true)
	if err != nil || p == "" {
		return err
	}
	if err := u.names.add(p, aDir); err != nil {
		return err
	}
	u.dirs = append(u.dirs, placed{p, mode&0o777 | 0o700}) // we are to write in it
	return nil
}

// file takes up a regular file and writes it where it waits.
func (u *unpacking) file(name string, mode uint32, size int64, r io.Reader) error {
	p, err := clean(name, false)
	if err != nil {
		return err
	}
	if size < 0 || size > u.lim.Bytes-u.sum.Bytes {
		return refuse(name, "is larger than is accepted, alone or together with those before it")
	}
	if err := u.names.add(p, aFile); err != nil {
		return err
	}
	u.staged = true
	body := &content{r: r}
	err = u.sink.WriteFile(u.ctx, u.waiting(len(u.files)), mode&0o777, size, body)
	switch {
	case body.err != nil:
		return body.err
	case body.n > size || err == nil && body.n != size:
		return refuse(name, "does not have the size that it says")
	case err != nil:
		return u.named(err, len(u.files), p)
	}
	u.files = append(u.files, placed{p, mode})
	u.sum.Bytes += size
	return nil
}

// content is an entry's bytes. It keeps the archive's error apart from the
// sink's.
type content struct {
	r   io.Reader
	n   int64
	err error
}

// Read implements io.Reader.
func (c *content) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

func (u *unpacking) waiting(i int) string { return path.Join(u.stage, strconv.Itoa(i)) }

// named says a sink's error about a file that waits with the name that it is to have.
func (u *unpacking) named(err error, i int, name string) error {
	var known *sandbox.Error
	if !errors.As(err, &known) {
		return err
	}
	e := *known
	e.Message = strings.ReplaceAll(e.Message, u.waiting(i), path.Join(u.root, sandbox.SafeText(name, 200)))
	return &e
}

// place puts everything in its place. The archive has been checked.
func (u *unpacking) place() error {
	if err := u.fits(); err != nil {
		return err
	}
	for _, d := range u.dirs {
		p := path.Join(u.root, d.name)
		if err := u.note(p); err != nil {
			return err
		}
		if err := u.sink.Mkdir(u.ctx, p, d.mode); err != nil {
			return err
		}
	}
	for i, f := range u.files {
		p := path.Join(u.root, f.name)
		if err := u.note(p); err != nil {
			return err
		}
		if err := u.sink.Move(u.ctx, u.waiting(i), p); err != nil {
			return u.named(err, i, f.name)
		}
	}
	u.sum.Files, u.sum.Directories = len(u.files), len(u.dirs)
	return nil
}

// fits sees whether what is there already leaves room for every entry, before
// the first is put in its place.
func (u *unpacking) fits() error {
	if u.missing != "" {
		return u.sink.Mkdir(u.ctx, u.root, 0o755)
	}
	if u.empty {
		return nil
	}
	for name, k := range u.names.seen {
		info, err := u.sink.Stat(u.ctx, path.Join(u.root, name))
		switch {
		case err != nil && sandbox.AsError(err).Code == sandbox.CodeFileNotFound:
		case err != nil && sandbox.AsError(err).Code == sandbox.CodePathInvalid:
			return occupied(name, "something on its way is not a directory")
		case err != nil:
			return err
		case k == aFile && info.Type != sandbox.FileRegular:
			return occupied(name, "something there is not a regular file")
		case k != aFile && info.Type != sandbox.FileDir:
			return occupied(name, "something there is not a directory")
		}
	}
	return nil
}

func occupied(name, why string) error {
	return &sandbox.Error{
		Code: sandbox.CodeNotRegularFile, Message: fmt.Sprintf("entry \"%s\" cannot be put in its place: %s", sandbox.SafeText(name, 200), why),
		Hint: "nothing was unpacked; choose an empty directory",
	}
}

// note remembers what of a path is not there yet, for undo.
func (u *unpacking) note(p string) error {
	if u.missing != "" {
		return nil // all of it goes with the root
	}
	first := ""
	for ; p != u.root; p = path.Dir(p) {
		if u.empty {
			first = p // at last the one directly below root
			continue
		}
		_, err := u.sink.Stat(u.ctx, p)
		if err == nil {
			break
		}
		if sandbox.AsError(err).Code != sandbox.CodeFileNotFound {
			return err
		}
		first = p
	}
	if n := len(u.made); first != "" && (n == 0 || u.made[n-1] != first) {
		u.made = append(u.made, first)
	}
	return nil
}

// undoTime is how long undo may take.
const undoTime = time.Minute

// undo removes what this unpacking has made. It has time of its own: the call
// may have been cancelled.
func (u *unpacking) undo() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), undoTime)
	defer cancel()
	u.ctx = ctx
	for i := len(u.made) - 1; i >= 0; i-- {
		_ = u.sink.Remove(u.ctx, u.made[i]) // gone already, or the sandbox is
	}
	_ = u.clear()
	if u.missing != "" {
		_ = u.sink.Remove(u.ctx, u.missing)
	}
}

// clear removes the place in which files waited.
func (u *unpacking) clear() error {
	if !u.staged {
		return nil
	}
	err := u.sink.Remove(u.ctx, u.stage)
	if err != nil && sandbox.AsError(err).Code == sandbox.CodeFileNotFound {
		return nil
	}
	return err
}
