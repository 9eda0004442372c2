package build

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"pinfold/internal/archive"
	"pinfold/internal/template"
	"pinfold/sandbox"
)

// unpackDebs adds a layer of each Debian package beside the declaration. They are taken
// apart in a sandbox, by the image's dpkg-deb; their scripts do not run, and dpkg's table
// of what is installed does not name them.
func (b *building) unpackDebs(ctx context.Context, image template.Image) (template.Image, error) {
	if len(b.in.debs) == 0 {
		return image, nil
	}
	out := image
	err := b.inSandbox(ctx, image, func(s *stepping) error {
		for _, deb := range b.in.debs {
			b.step(deb.field, "unpack "+deb.path)
			spool, err := s.debFiles(ctx, deb)
			if err != nil {
				return err
			}
			out, err = b.add(ctx, out, layered(func(t *tar.Writer) error { return s.rewrite(ctx, spool, t) }))
			_ = spool.Close() // it has no name
			if err != nil {
				return below(deb.field, err)
			}
		}
		return nil
	})
	return out, err
}

// spooled is a file that is read from its beginning.
type spooled interface {
	io.ReadSeekCloser
	io.Writer
}

// debFiles has the sandbox write a package's files as a tar.
func (s *stepping) debFiles(ctx context.Context, deb input) (spooled, error) {
	paths, err := s.send(ctx, []input{deb})
	if err != nil {
		return nil, err
	}
	spool, err := s.store.Spool()
	if err != nil {
		return nil, err
	}
	err = s.exec(ctx, deb.field, sandbox.Command{Args: []string{"dpkg-deb", "--fsys-tarfile", paths[0]}}, nil, &atMost{w: spool, left: s.limits.disk})
	if err == nil {
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = spool.Close()
		return nil, err
	}
	return spool, nil
}

// rewrite copies a package's archive. Where the image has a link in the place of one of
// the root's directories, as Debian has for /lib, the files go to where it leads.
func (s *stepping) rewrite(ctx context.Context, from io.Reader, to *tar.Writer) error {
	files, done, err := s.use.Files()
	if err != nil {
		return err
	}
	defer done()
	for t := tar.NewReader(from); ; {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, tar.ErrInsecurePath):
			return noArchive(err)
		}
		if archive.Sparse(h) {
			return noArchive(errors.New("it has a sparse file"))
		}
		name, link := led(files, h.Name), h.Linkname
		if name == "" {
			continue
		}
		if h.Typeflag == tar.TypeLink {
			link = led(files, link)
		}
		next := &tar.Header{Typeflag: h.Typeflag, Name: name, Linkname: link, Mode: h.Mode, Size: h.Size, ModTime: h.ModTime, Format: tar.FormatPAX}
		if err := to.WriteHeader(next); err != nil {
			return err
		}
		if _, err := io.Copy(to, t); err != nil {
			return err
		}
	}
}

// led is a name with a link of the image's in the place of its first directory followed.
// The link itself, which a package brings as a directory, is "".
func led(files fs.ReadLinkFS, name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	first, rest, _ := strings.Cut(name, "/")
	if first == "" {
		return ""
	}
	says, err := files.ReadLink(first)
	if err != nil {
		return name // no link
	}
	if rest == "" {
		return ""
	}
	return path.Join(strings.TrimPrefix(path.Clean("/"+says), "/"), rest)
}
