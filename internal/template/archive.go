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

	"pinfold/sandbox"
)

// An archive of images (an OCI layout, or what docker save writes) names its parts
// before or after it holds them. So it is read from a file in which one can go back.

// parts is where an image's parts are found by their names.
type parts interface {
	// open opens a part. The error is fs.ErrNotExist where there is none.
	open(name string) (r io.ReadCloser, size int64, err error)
}

// layoutDir is an OCI layout in a directory.
type layoutDir struct{ root *os.Root }

func (l layoutDir) open(name string) (io.ReadCloser, int64, error) {
	info, err := l.root.Stat(name) // before the open, which would wait for a pipe's other end
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, invalid("has a part \"%s\" that is no file", sandbox.SafeText(name, 100))
	}
	f, err := l.root.Open(name)
	return f, info.Size(), err
}

// layoutTar is an archive of images in a tar.
type layoutTar struct {
	file io.ReaderAt
	at   map[string]section
}

type section struct {
	offset, size int64
	link         string // another name, where it is a link
}

// maxParts bounds what of a tar is noted.
const maxParts = 4096

// errRoot means that a tar is no archive of images.
var errRoot = errors.New("no manifest is in the archive")

// indexTar looks through a tar for the parts of an archive of images. It holds the names
// of at most maxParts of them; a tar in which no manifest is found is errRoot.
func indexTar(ctx context.Context, file io.ReaderAt, size int64) (layoutTar, error) {
	l := layoutTar{file: file, at: map[string]section{}}
	r := io.NewSectionReader(file, 0, size)
	for tr := tar.NewReader(r); ; {
		if err := ctx.Err(); err != nil {
			return l, err
		}
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return l, invalid("is no whole tar archive: %s", ended(err))
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if !isPart(name) {
			continue
		}
		if len(l.at) >= maxParts {
			break // a root file system with many such names; a manifest comes among the first
		}
		switch h.Typeflag {
		case tar.TypeReg:
			begin, err := r.Seek(0, io.SeekCurrent)
			if err != nil {
				return l, err
			}
			l.at[name] = section{offset: begin, size: h.Size}
		case tar.TypeSymlink:
			l.at[name] = section{link: strings.TrimPrefix(path.Join("/", path.Dir(name), h.Linkname), "/")}
		case tar.TypeLink:
			l.at[name] = section{link: strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")}
		}
	}
	if _, ok := l.at["index.json"]; ok && l.has("oci-layout") {
		return l, nil
	}
	if l.has("manifest.json") {
		return l, nil
	}
	return l, errRoot
}

func (l layoutTar) has(name string) bool { _, ok := l.at[name]; return ok }

// isPart says whether a name may be one of an archive of images.
func isPart(name string) bool {
	dir, file := path.Split(name)
	switch {
	case dir == "":
		return file == "index.json" || file == "oci-layout" || strings.HasSuffix(file, ".json") || strings.HasSuffix(file, ".tar")
	case dir == "blobs/sha256/", file == "layer.tar":
		return true
	}
	return false
}

func (l layoutTar) open(name string) (io.ReadCloser, int64, error) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	for range 4 { // docker save has links to layers that stand in it twice
		s, ok := l.at[name]
		if !ok {
			return nil, 0, fs.ErrNotExist
		}
		if s.link == "" {
			return io.NopCloser(io.NewSectionReader(l.file, s.offset, s.size)), s.size, nil
		}
		name = s.link
	}
	return nil, 0, invalid("has a part that is a link to a link")
}

// readPart reads a small part.
func readPart(p parts, name string) ([]byte, error) {
	r, size, err := p.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, invalid("lacks its part \"%s\"", sandbox.SafeText(name, 100))
	}
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // only read
	if size > MaxDocument {
		return nil, tooMuch("has a part \"%s\" with %d bytes, more than %d", sandbox.SafeText(name, 100), size, MaxDocument)
	}
	return readMost(r, MaxDocument)
}

// content puts together what the archive holds. reference names one of several images.
func content(ctx context.Context, p parts, reference string) (Content, error) {
	r, _, err := p.open("oci-layout")
	if err == nil {
		_ = r.Close()
		text, err := readPart(p, "index.json")
		if err != nil {
			return Content{}, err
		}
		return Follow(ctx, text, reference, inParts{p})
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Content{}, err
	}
	return dockerContent(p, reference)
}

// blobName is where an OCI layout has what a digest names.
func blobName(d string) string { return "blobs/sha256/" + ID(d).Hex() }

// inParts is the Source of an OCI layout.
type inParts struct{ parts parts }

// Document implements Source.
func (s inParts) Document(_ context.Context, d Descriptor) ([]byte, error) {
	return readPart(s.parts, blobName(d.Digest))
}

// Layer implements Source.
func (s inParts) Layer(ctx context.Context, d Descriptor) (io.ReadCloser, error) {
	return opener(s.parts, blobName(d.Digest))(ctx)
}

func opener(p parts, name string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) {
		r, _, err := p.open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, invalid("lacks its part \"%s\"", sandbox.SafeText(name, 100))
		}
		return r, err
	}
}

// dockerContent follows the manifest.json of docker save.
func dockerContent(p parts, reference string) (Content, error) {
	text, err := readPart(p, "manifest.json")
	if err != nil {
		return Content{}, err
	}
	var images []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := unmarshal(text, &images); err != nil {
		return Content{}, invalid("has a manifest that cannot be read: %w", err)
	}
	var tags []string
	chosen := -1
	for i, m := range images {
		tags = append(tags, m.RepoTags...)
		if reference == "" && len(images) == 1 || reference != "" && contains(m.RepoTags, reference) {
			chosen = i
		}
	}
	if chosen < 0 {
		e := invalid("is one of %d in the archive", len(images))
		e.Hint = "name the one that is meant with --reference: " + sandbox.SafeText(strings.Join(tags, ", "), 200)
		return Content{}, e
	}
	m := images[chosen]
	config, err := readPart(p, m.Config)
	if err != nil {
		return Content{}, err
	}
	c := Content{Config: config, From: Origin{Kind: "archive", Reference: sandbox.SafeText(strings.Join(m.RepoTags[:min(1, len(m.RepoTags))], ""), 200)}}
	for _, l := range m.Layers {
		c.Layers = append(c.Layers, Blob{Size: -1, Open: opener(p, l)})
	}
	return c, nil
}

// contains finds a tag, with or without the name before its colon.
func contains(tags []string, want string) bool {
	for _, t := range tags {
		if t == want || strings.HasSuffix(t, ":"+want) {
			return true
		}
	}
	return false
}

// errSpool says what went wrong while an archive was copied.
func errSpool(err error) error { return fmt.Errorf("keep the archive meanwhile: %w", err) }
