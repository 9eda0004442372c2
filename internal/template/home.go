package template

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"pinfold/internal/filetree"
	"pinfold/internal/image"
)

// page is what the file systems of sandboxes are made of, in bytes.
const page = 4096

// maxHome bounds how much of a home is looked at: no sandbox has room for so many files.
const maxHome = 1_000_000

var errEnough = errors.New("that is enough")

// homeOf measures what the image shows below a directory, up to maxHome entries.
func (u *Use) homeOf(ctx context.Context, dir string) (h image.Home, err error) {
	err = u.Walk(ctx, strings.TrimPrefix(dir, "/"), func(s Shown) error {
		if h.Entries++; h.Entries > maxHome {
			return errEnough
		}
		if s.Info.Mode().IsRegular() {
			h.Bytes += (s.Info.Size() + page - 1) / page * page
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return h, err
}

// WriteHome writes what the image shows below a directory, as a place of that name.
func (u *Use) WriteHome(ctx context.Context, dir, place string, w *filetree.Writer) error {
	dir = strings.TrimPrefix(dir, "/")
	h := &homeWriter{to: w, at: dir}
	if err := w.Entry(filetree.Entry{Kind: filetree.Place, Name: place}); err != nil {
		return err
	}
	err := u.Walk(ctx, dir, h.visit)
	if err == nil {
		err = h.leave(dir)
	}
	if err != nil {
		return err
	}
	return w.Entry(filetree.Entry{Kind: filetree.Up, Mode: dirMode})
}

// homeWriter makes a stream, which goes into directories and comes out of them, of a walk.
type homeWriter struct {
	to     *filetree.Writer
	dirs   []fs.FileInfo // those that it is in
	at     string        // the path of the last
	buffer []byte
}

// leave comes out of directories until it is in that one.
func (h *homeWriter) leave(dir string) error {
	for h.at != dir {
		last := h.dirs[len(h.dirs)-1]
		if err := h.to.Entry(filetree.Entry{Kind: filetree.Up, Mode: dirMode, MtimeNS: last.ModTime().UnixNano()}); err != nil {
			return err
		}
		h.dirs, h.at = h.dirs[:len(h.dirs)-1], path.Dir(h.at)
	}
	return nil
}

func (h *homeWriter) visit(s Shown) error {
	if err := h.leave(path.Dir(s.Path)); err != nil {
		return err
	}
	e := filetree.Entry{Name: path.Base(s.Path), MtimeNS: s.Info.ModTime().UnixNano()}
	switch mode := s.Info.Mode(); {
	case mode.IsDir():
		e.Kind, h.dirs, h.at = filetree.Dir, append(h.dirs, s.Info), s.Path
		return h.to.Entry(e)
	case mode&fs.ModeSymlink != 0:
		e.Kind, e.Target = filetree.Symlink, s.Link
		return h.to.Entry(e)
	case !mode.IsRegular():
		h.to.LeaveOut()
		return nil
	}
	e.Kind, e.Size, e.Mode = filetree.File, s.Info.Size(), fileMode
	if s.Info.Mode()&0o100 != 0 {
		e.Mode = programMode
	}
	if err := h.to.Entry(e); err != nil {
		return err
	}
	return h.content(s)
}

// content writes a file's, which has the size that was said: what is in a layer never changes.
func (h *homeWriter) content(s Shown) error {
	f, err := s.Open()
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if h.buffer == nil {
		h.buffer = make([]byte, filetree.MaxData)
	}
	for left := s.Info.Size(); left > 0; {
		n, err := io.ReadFull(f, h.buffer[:min(left, filetree.MaxData)])
		if err != nil {
			return err
		}
		if err := h.to.Data(h.buffer[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}
