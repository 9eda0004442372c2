package build

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"pinfold/internal/template"
	"pinfold/sandbox"
)

// layered is a layer that is written while the store unpacks it.
func layered(write func(*tar.Writer) error) template.Blob {
	return template.Blob{Size: -1, Open: func(context.Context) (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() {
			t := tar.NewWriter(w)
			err := write(t)
			if err == nil {
				err = t.Close()
			}
			_ = w.CloseWithError(err)
		}()
		return r, nil
	}}
}

// header writes an entry's.
func header(t *tar.Writer, kind byte, name string, seconds int64, exec bool, size int64, link string) error {
	mode := int64(0o644)
	if exec || kind == tar.TypeDir {
		mode = 0o755
	}
	return t.WriteHeader(&tar.Header{Typeflag: kind, Name: name, Linkname: link, Mode: mode, Size: size, ModTime: time.Unix(seconds, 0), Format: tar.FormatPAX})
}

// addFiles adds a layer of the declaration's files.
func (b *building) addFiles(ctx context.Context, image template.Image) (template.Image, error) {
	if len(b.in.files) == 0 {
		return image, nil
	}
	b.step("files", fmt.Sprintf("lay down %d files", len(b.in.files)))
	if err := b.checkWays(image); err != nil {
		return image, err
	}
	var failed error
	blob := layered(func(t *tar.Writer) error {
		for _, f := range b.in.files {
			if failed = header(t, tar.TypeReg, strings.TrimPrefix(f.path, "/"), epoch, f.exec, f.size, ""); failed == nil {
				failed = f.send(t)
			}
			if failed != nil {
				return failed
			}
		}
		return nil
	})
	return b.add(ctx, image, blob)
}

// add adds a layer.
func (b *building) add(ctx context.Context, image template.Image, blob template.Blob) (template.Image, error) {
	return b.store.Compose(ctx, template.Composition{Layers: image.Layers, More: []template.Blob{blob}, Config: image.Config}, b.came)
}

// lent has an image where it can be looked into, and sandboxes can be made of it in which
// the places can be written to.
func (b *building) lent(image template.Image, do func(u *template.Use) error) error {
	image.Config.Places = b.d.Places()
	image.Config.WorkingDir = "" // what the image has there may be in a place, which begins empty
	image.Config.Start = template.Config{}.Start
	return b.lentAs(image, do)
}

// lentAs has sandboxes made of the image as it is, for as long as do goes on.
func (b *building) lentAs(image template.Image, do func(u *template.Use) error) error {
	id, back, err := b.store.Lend(image)
	if err != nil {
		return err
	}
	defer back()
	u, err := b.store.Use(string(id))
	if err != nil {
		return err
	}
	defer u.Close()
	return do(u)
}

// checkWays refuses a file below what is a symbolic link in the image: a layer with a
// directory there would hide the link, and all that it leads to.
func (b *building) checkWays(image template.Image) error {
	return b.lent(image, func(u *template.Use) error {
		for _, f := range b.in.files {
			if err := checkWay(u, path.Dir(f.path)); err != nil {
				return below(f.field, err)
			}
		}
		return nil
	})
}

// checkWay refuses a directory whose way leads through something that is none.
func checkWay(u *template.Use, dir string) error {
	files, done, err := u.Files()
	if err != nil {
		return err
	}
	defer done()
	for at := range parents(dir) {
		info, err := files.Lstat(strings.TrimPrefix(at, "/"))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			says, _ := files.ReadLink(strings.TrimPrefix(at, "/"))
			return (&sandbox.Error{Code: sandbox.CodeSpecInvalid, Message: fmt.Sprintf("%s is a symbolic link in the base, to \"%s\"", at, sandbox.SafeText(says, 100))}).
				WithHint("write the path that it leads to")
		case !info.IsDir():
			return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Message: at + " is a file in the base, not a directory"}
		}
	}
	return nil
}

// parents are a directory and those above it, the highest first.
func parents(dir string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := 1; i <= len(dir); i++ {
			if (i == len(dir) || dir[i] == '/') && dir[:i] != "/" && !yield(dir[:i]) {
				return
			}
		}
	}
}
