package build

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"pinfold/internal/archive"
	"pinfold/internal/template"
	"pinfold/sandbox"
)

// What a sandbox's places hold comes out as a tar that whoever ran in there could have
// written. It is kept in a file, since it is read twice: to see what is as the image has
// it, and to write the rest as a layer. Names are looked at here only to compare; whether
// they may be unpacked is for the store to say.

// held is what the image has under a name.
type held struct {
	kind byte // as in tar
	exec bool
	link string
	sum  [sha256.Size]byte
}

// packPlaces writes what the image has in the places, and returns it.
func (s *stepping) packPlaces(ctx context.Context, t *tar.Writer) (map[string]held, error) {
	base := map[string]held{}
	for _, place := range s.d.Places() {
		err := s.use.Walk(ctx, strings.TrimPrefix(place, "/"), func(e template.Shown) error {
			if len(base) >= boxInodes {
				return &sandbox.Error{Code: sandbox.CodeTooLarge, Field: "base", Message: fmt.Sprintf("the base has more than %d files in %s and the like, more than a build can change", boxInodes, place), Hint: "take a base with fewer there"}
			}
			h, err := packOne(t, e)
			base[e.Path] = h
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return base, nil
}

func packOne(t *tar.Writer, e template.Shown) (held, error) {
	switch {
	case e.Info.IsDir():
		return held{kind: tar.TypeDir}, header(t, tar.TypeDir, e.Path+"/", e.Info.ModTime().Unix(), true, 0, "")
	case e.Info.Mode()&fs.ModeSymlink != 0:
		return held{kind: tar.TypeSymlink, link: e.Link}, header(t, tar.TypeSymlink, e.Path, epoch, false, 0, e.Link)
	case !e.Info.Mode().IsRegular():
		return held{}, nil // a layer has no other kinds
	}
	h := held{kind: tar.TypeReg, exec: e.Info.Mode().Perm()&0o100 != 0}
	if err := header(t, tar.TypeReg, e.Path, e.Info.ModTime().Unix(), h.exec, e.Info.Size(), ""); err != nil {
		return h, err
	}
	f, err := e.Open()
	if err != nil {
		return h, err
	}
	defer f.Close() //nolint:errcheck // only read
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(t, sum), f, e.Info.Size()); err != nil {
		return h, err
	}
	sum.Sum(h.sum[:0])
	return h, nil
}

// keepChanges adds a layer of what differs in the places from what the image had there.
func (s *stepping) keepChanges(ctx context.Context, image template.Image, base map[string]held) (template.Image, error) {
	spool, err := s.store.Spool()
	if err != nil {
		return image, err
	}
	defer spool.Close() //nolint:errcheck // it has no name
	args := []string{"tar", "-c", "-f", "-", "-C", "/"}
	for _, p := range s.d.Places() {
		args = append(args, strings.TrimPrefix(p, "/"))
	}
	// A header is at most a few blocks for each file; what is beyond was made to fill the host's disk.
	most := s.limits.disk + boxInodes*(4<<10)
	if err := s.exec(ctx, "layer", sandbox.Command{Args: args}, nil, &atMost{w: spool, left: most}); err != nil {
		return image, err
	}
	c := &changes{spool: spool, base: base, places: s.d.Places()}
	if err := c.look(ctx); err != nil {
		return image, err
	}
	return s.add(ctx, image, layered(func(t *tar.Writer) error { return c.write(ctx, t) }))
}

// atMost fails when more is written.
type atMost struct {
	w    io.Writer
	left int64
}

// Write implements io.Writer.
func (a *atMost) Write(b []byte) (int, error) {
	if a.left -= int64(len(b)); a.left < 0 {
		return 0, &sandbox.Error{Code: sandbox.CodeTooLarge, Field: "limits.disk", Message: "what the build made is larger than its disk", Hint: "raise limits.disk, or have the last command remove what is not needed"}
	}
	return a.w.Write(b)
}

// synced is a writer for two goroutines.
type synced struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (s *synced) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// changes are the differences between an image and what came out of its sandbox.
type changes struct {
	spool  *os.File
	base   map[string]held
	places []string

	found map[string]held
	at    map[string]section // of regular files: where their content is
	timed map[string]bool    // compiled files of Python that go by a time
}

// section is a part of the archive.
type section struct{ offset, size int64 }

// maxNames bounds the names and links of an archive together, in bytes: all are in memory.
// How many there are the sandbox's inodes bound, unless another program than tar wrote it.
const maxNames = 64 << 20

func tooMany() error {
	return &sandbox.Error{
		Code: sandbox.CodeTooLarge, Field: "layer", Message: fmt.Sprintf("what came out of the sandbox has more than %d files, or names of more than %s together", boxInodes, sandbox.FormatSize(maxNames)),
		Hint: "have the last command remove what is not needed",
	}
}

// each calls do for every entry of the archive whose kind a layer has. The name is clean,
// and content begins at the offset.
func (c *changes) each(ctx context.Context, do func(name string, h *tar.Header, offset int64) error) error {
	size, err := c.spool.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	all := io.NewSectionReader(c.spool, 0, size)
	files, names := 0, 0
	for t := tar.NewReader(all); ; {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, tar.ErrInsecurePath):
			return noArchive(err)
		}
		offset, err := all.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if !slices.ContainsFunc(c.places, func(p string) bool { return within("/"+name, p) && "/"+name != p }) {
			continue
		}
		if files, names = files+1, names+len(name)+len(h.Linkname); files > boxInodes || names > maxNames {
			return tooMany()
		}
		if strings.Contains("/"+name, "/.wh.") { // in a layer it would hide a file
			return &sandbox.Error{
				Code: sandbox.CodeBuildFailed, Field: "layer", Message: fmt.Sprintf("\"%s\" is a name that no file of a layer can have", sandbox.SafeText(name, 200)),
				Hint: "have the last command rename or remove it",
			}
		}
		if archive.Sparse(h) {
			return noArchive(errors.New("it has a sparse file"))
		}
		if err := do(name, h, offset); err != nil {
			return err
		}
	}
}

func noArchive(err error) error {
	return &sandbox.Error{
		Code: sandbox.CodeBuildFailed, Field: "layer", Message: "what came out of the sandbox is no archive: " + sandbox.SafeText(err.Error(), 200),
		Hint: "the base's own program tar makes it; take a base with another", Err: err,
	}
}

// look finds out what each entry is.
func (c *changes) look(ctx context.Context) error {
	c.found, c.at, c.timed = map[string]held{}, map[string]section{}, map[string]bool{}
	return c.each(ctx, func(name string, h *tar.Header, offset int64) error {
		switch h.Typeflag {
		case tar.TypeDir:
			c.found[name] = held{kind: tar.TypeDir}
		case tar.TypeSymlink:
			c.found[name] = held{kind: tar.TypeSymlink, link: h.Linkname}
		case tar.TypeLink: // it becomes a copy: the other name may be as the image has it
			first := strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")
			if at, ok := c.at[first]; ok {
				c.found[name], c.at[name] = c.found[first], at
			}
		case tar.TypeReg:
			return c.lookAt(name, h, offset)
		}
		return nil
	})
}

// pycHeader is how long the beginning of a compiled file of Python is, which says by what
// it is compared with its source. See PEP 552.
const pycHeader = 16

func (c *changes) lookAt(name string, h *tar.Header, offset int64) error {
	f, at := held{kind: tar.TypeReg, exec: h.Mode&0o100 != 0}, section{offset, h.Size}
	sum := sha256.New()
	if _, err := io.Copy(sum, c.content(at)); err != nil {
		return err
	}
	sum.Sum(f.sum[:0])
	c.found[name], c.at[name] = f, at
	start := make([]byte, pycHeader)
	n, _ := io.ReadFull(c.content(at), start)
	c.timed[name] = strings.HasSuffix(name, ".pyc") && n == pycHeader && [4]byte(start[4:8]) == [4]byte{}
	return nil
}

func (c *changes) content(at section) io.Reader {
	return io.NewSectionReader(c.spool, at.offset, at.size)
}

// write writes the layer: what is new or different, and whiteouts for what is gone. Of
// Python's compiled files those are left out that go by their source's time, which is
// another in the layer.
func (c *changes) write(ctx context.Context, t *tar.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(c.found)) {
		f := c.found[name]
		if was, ok := c.base[name]; ok && was == f || c.timed[name] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.writeOne(t, name, f); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.base)) {
		if _, ok := c.found[name]; ok || c.hidden(path.Dir(name)) {
			continue
		}
		if err := header(t, tar.TypeReg, path.Join(path.Dir(name), ".wh."+path.Base(name)), epoch, false, 0, ""); err != nil {
			return err
		}
	}
	return nil
}

// hidden says whether the directory that the image has is gone: then what is in it is, too.
func (c *changes) hidden(dir string) bool {
	if _, ok := c.base[dir]; !ok {
		return false // a place, or above one
	}
	return c.found[dir].kind != tar.TypeDir
}

func (c *changes) writeOne(t *tar.Writer, name string, f held) error {
	switch f.kind {
	case tar.TypeDir:
		return header(t, tar.TypeDir, name+"/", epoch, true, 0, "")
	case tar.TypeSymlink:
		return header(t, tar.TypeSymlink, name, epoch, false, 0, f.link)
	}
	at := c.at[name]
	if err := header(t, tar.TypeReg, name, epoch, f.exec, at.size, ""); err != nil {
		return err
	}
	_, err := io.Copy(t, c.content(at))
	return err
}
