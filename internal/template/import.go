package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"pinfold/sandbox"
)

// Format is what an archive holds.
type Format string

// The formats. What Auto finds is told by the archive's content.
const (
	Auto   Format = ""
	Images Format = "images" // an OCI layout, or what docker save wrote
	Root   Format = "root"   // the files of a root file system, as docker export writes them
)

// Import says what to import.
type Import struct {
	Name      string // of the template; empty for the one that the archive gives its image
	Format    Format
	Reference string // which of several images of an archive
	Progress  func(Event)
}

// check looks at the name before anything is read.
func (o Import) check() error {
	if o.Name == "" && o.Format == Images {
		return nil
	}
	return CheckName(o.Name)
}

// ImportDir adds an image of an OCI layout in a directory.
func (s *Store) ImportDir(ctx context.Context, dir string, o Import) (Template, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Template{}, &sandbox.Error{Code: sandbox.CodeFileNotFound, Message: "cannot open the directory: " + err.Error(), Err: err}
	}
	defer root.Close() //nolint:errcheck // only read
	c, err := content(ctx, layoutDir{root}, o.Reference)
	if err != nil {
		return Template{}, err
	}
	return s.addNamed(ctx, c, o)
}

// Import adds an image from an archive, a tar, which may be compressed with gzip or zstd.
// One that is not an uncompressed file is kept on the disk meanwhile, but not where
// Format is Root: it is unpacked as it comes, once and from its beginning.
func (s *Store) Import(ctx context.Context, r io.Reader, o Import) (Template, error) {
	if err := o.check(); err != nil {
		return Template{}, err
	}
	if o.Format == Root {
		return s.importRoot(ctx, io.NopCloser(r), -1, o)
	}
	lock, err := s.lock(false, true) // what is kept meanwhile is not for others to remove
	if err != nil {
		return Template{}, err
	}
	defer lock.Close() //nolint:errcheck // only a lock
	file, size, done, err := s.seekable(ctx, r)
	if err != nil {
		return Template{}, failed("read the archive", err)
	}
	defer done()
	p, err := indexTar(ctx, file, size)
	if errors.Is(err, errRoot) {
		if o.Format == Images {
			return Template{}, invalid("is not in the archive: it has neither index.json and oci-layout nor manifest.json")
		}
		return s.importRoot(ctx, io.NopCloser(io.NewSectionReader(file, 0, size)), size, o)
	}
	if err != nil {
		return Template{}, failed("read the archive", err)
	}
	c, err := content(ctx, p, o.Reference)
	if err != nil {
		return Template{}, failed("read the archive", err)
	}
	return s.addNamed(ctx, c, o)
}

// addNamed adds an image under the name that was chosen, or under the one that its
// archive gives it. Whoever made the archive must not replace a template by that.
func (s *Store) addNamed(ctx context.Context, c Content, o Import) (Template, error) {
	if o.Name != "" {
		return s.Add(ctx, o.Name, c, o.Progress)
	}
	name := c.From.Reference
	if name == "" {
		return Template{}, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Message: "the archive gives the image no name", Hint: "name the template: --name NAME"}
	}
	if is, err := s.Get(name); err == nil && (is.From.Digest == "" || is.From.Digest != c.From.Digest) {
		return Template{}, &sandbox.Error{
			Code: sandbox.CodeConflict, Message: fmt.Sprintf("there is a template \"%s\" already, and the archive names its image so, too", sandbox.SafeText(name, 60)),
			Hint: "name it: --name NAME, which may be the same",
		}
	}
	return s.Add(ctx, name, c, o.Progress)
}

// importRoot adds an image of one layer.
func (s *Store) importRoot(ctx context.Context, r io.ReadCloser, size int64, o Import) (Template, error) {
	open := func(context.Context) (io.ReadCloser, error) { return r, nil }
	return s.Add(ctx, o.Name, Content{Layers: []Blob{{Size: size, Open: open}}, From: Origin{Kind: "root"}}, o.Progress)
}

// seekable returns the archive as a file in which one can go back: itself where it is
// one, otherwise a copy, uncompressed. done removes the copy.
func (s *Store) seekable(ctx context.Context, r io.Reader) (file *os.File, size int64, done func(), err error) {
	if f, ok := r.(*os.File); ok {
		if plain, size := plainFile(f); plain {
			return f, size, func() {}, nil
		}
	}
	staged, err := s.staging()
	if err != nil {
		return nil, 0, nil, err
	}
	drop := func() { _ = os.RemoveAll(staged) } // what is left of it is removed by the next Open
	file, err = os.OpenFile(filepath.Join(staged, "archive"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		drop()
		return nil, 0, nil, errSpool(err)
	}
	done = func() { _ = file.Close(); drop() }
	if size, err = s.copyPlain(ctx, file, r); err != nil {
		done()
	}
	return file, size, done, err
}

// copyPlain copies an archive, uncompressed.
func (s *Store) copyPlain(ctx context.Context, to io.Writer, r io.Reader) (int64, error) {
	in := newStream(ctx, r, -1, s.limits.Bytes+s.limits.Entries*headerRoom+headerExtra, s.limits.Ratio)
	defer in.close()
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, in, make([]byte, copyBuffer))
	if err != nil && in.failure() == nil {
		err = errSpool(err)
	}
	return n, err
}

// plainFile says whether a file is a regular one, read from its beginning, that is not
// compressed.
func plainFile(f *os.File) (bool, int64) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, 0
	}
	if at, err := f.Seek(0, io.SeekCurrent); err != nil || at != 0 {
		return false, 0
	}
	magic := make([]byte, 4)
	n, _ := f.ReadAt(magic, 0)
	return compressionOf(magic[:n]) == uncompressedFile, info.Size()
}
