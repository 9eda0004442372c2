package template

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"runtime"
	"time"
)

// Save writes a template as a tar that holds an OCI layout, not compressed. It is the
// same each time, and Import makes the same image of it. Other tools read it, too.
func (s *Store) Save(ctx context.Context, name string, w io.Writer) error {
	u, err := s.Use(name)
	if err != nil {
		return err
	}
	defer u.Close()
	image := u.Template.Image
	out := &saving{tar: tar.NewWriter(w)}
	if err := out.small("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	manifest := document{SchemaVersion: 2, MediaType: "application/vnd.oci.image.manifest.v1+json", Layers: []Descriptor{}}
	config := ociConfig{Architecture: runtime.GOARCH, OS: "linux"}
	config.Config.Env, config.Config.User, config.Config.WorkingDir = image.Config.Env, image.Config.User, image.Config.WorkingDir
	config.Config.Labels = labelsOf(image.Config.Start)
	config.RootFS.Type = "layers"
	for i := range u.Layers {
		dir := u.Layers[len(u.Layers)-1-i]
		d, err := out.layer(func(w io.Writer) error { return pack(ctx, dir, w) })
		if err != nil {
			return failed("save a layer", err)
		}
		manifest.Layers = append(manifest.Layers, d)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, d.Digest)
	}
	c, err := out.document(config, "application/vnd.oci.image.config.v1+json")
	if err != nil {
		return failed("save the configuration", err)
	}
	manifest.Config = &c
	m, err := out.document(manifest, manifest.MediaType)
	if err != nil {
		return failed("save the manifest", err)
	}
	m.Annotations = map[string]string{refName: u.Template.Name}
	m.Platform = &platform{Architecture: runtime.GOARCH, OS: "linux"}
	index, err := json.Marshal(document{SchemaVersion: 2, MediaType: "application/vnd.oci.image.index.v1+json", Manifests: []Descriptor{m}})
	if err != nil {
		return failed("save the index", err)
	}
	if err := out.small("index.json", index); err != nil {
		return failed("save the index", err)
	}
	return failed("save the template", out.tar.Close())
}

// saving is one archive on its way out.
type saving struct {
	tar     *tar.Writer
	written map[string]bool
}

// small writes a part that is in memory.
func (o *saving) small(name string, content []byte) error {
	if err := o.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err := o.tar.Write(content)
	return err
}

// document writes an OCI document and returns what points at it.
func (o *saving) document(v any, mediaType string) (Descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return Descriptor{}, err
	}
	d := Descriptor{MediaType: mediaType, Digest: string(hashOf(text)), Size: int64(len(text))}
	return d, o.small(blobName(d.Digest), text)
}

// layer writes a layer, which pack writes: once for its digest and length, which come first
// in the archive, and once into it.
func (o *saving) layer(pack func(io.Writer) error) (Descriptor, error) {
	h := sha256.New()
	var length lengthOf
	if err := pack(io.MultiWriter(h, &length)); err != nil {
		return Descriptor{}, err
	}
	d := Descriptor{MediaType: "application/vnd.oci.image.layer.v1.tar", Digest: string(idOf(h)), Size: int64(length)}
	if o.written[d.Digest] {
		return d, nil
	}
	if o.written == nil {
		o.written = map[string]bool{}
	}
	o.written[d.Digest] = true
	err := o.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: blobName(d.Digest), Mode: 0o644, Size: d.Size, ModTime: time.Unix(0, 0)})
	if err != nil {
		return d, err
	}
	return d, pack(o.tar)
}

type lengthOf int64

// Write implements io.Writer.
func (l *lengthOf) Write(b []byte) (int, error) {
	*l += lengthOf(len(b))
	return len(b), nil
}

// pack writes an unpacked layer as a tar from which unpack makes the same.
func pack(ctx context.Context, dir string, w io.Writer) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only read
	p := &packing{ctx: ctx, tar: tar.NewWriter(w), files: map[[2]uint64]string{}, buffer: make([]byte, copyBuffer)}
	if err := p.directory(root, ""); err != nil {
		return err
	}
	return p.tar.Close()
}

type packing struct {
	ctx    context.Context //nolint:containedctx // the call's own
	tar    *tar.Writer
	files  map[[2]uint64]string // the first names of files with several
	buffer []byte
}

func (p *packing) directory(dir *os.Root, path string) error {
	list, opaque, err := entries(dir)
	if err != nil {
		return err
	}
	if opaque {
		if err := p.header(tar.TypeReg, path+whiteoutOpaque, 0o644, 0, 0, ""); err != nil {
			return err
		}
	}
	for _, e := range list {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if err := p.entry(dir, e.Name(), path); err != nil {
			return err
		}
	}
	return nil
}

func (p *packing) header(kind byte, name string, mode fs.FileMode, size, sec int64, link string) error {
	return p.tar.WriteHeader(&tar.Header{
		Typeflag: kind, Name: name, Linkname: link, Mode: int64(mode), Size: size, ModTime: time.Unix(sec, 0),
	})
}

func (p *packing) entry(dir *os.Root, name, path string) error {
	info, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		if err := p.header(tar.TypeDir, path+name+"/", dirMode, 0, info.ModTime().Unix(), ""); err != nil {
			return err
		}
		below, err := dir.OpenRoot(name)
		if err != nil {
			return err
		}
		defer below.Close() //nolint:errcheck // only read
		return p.directory(below, path+name+"/")
	case info.Mode().IsRegular():
		return p.file(dir, name, path, info)
	case info.Mode()&fs.ModeSymlink != 0:
		says, err := dir.Readlink(name)
		if err != nil {
			return err
		}
		return p.header(tar.TypeSymlink, path+name, 0o777, 0, 0, says)
	case isWhiteout(info):
		return p.header(tar.TypeReg, path+whiteoutPrefix+name, 0o644, 0, 0, "")
	}
	return invalid("holds an entry \"%s\" of a kind that no layer has", path+name)
}

func (p *packing) file(dir *os.Root, name, path string, info fs.FileInfo) error {
	count, inode := links(info)
	if first, ok := p.files[inode]; ok && count > 1 {
		return p.header(tar.TypeLink, path+name, 0, 0, info.ModTime().Unix(), first)
	}
	if count > 1 {
		p.files[inode] = path + name
	}
	mode := fs.FileMode(fileMode)
	if info.Mode().Perm()&0o100 != 0 {
		mode = programMode
	}
	if err := p.header(tar.TypeReg, path+name, mode, info.Size(), info.ModTime().Unix(), ""); err != nil {
		return err
	}
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	_, err = io.CopyBuffer(struct{ io.Writer }{p.tar}, struct{ io.Reader }{f}, p.buffer)
	return err
}
