package template

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Shown is an entry of an image's root, as sandboxes see it.
type Shown struct {
	Path string // without the leading slash
	Info fs.FileInfo
	Link string // what a symbolic link says

	layer *os.Root
	name  string // in layer
}

// Open opens a regular file. It is valid during the visit.
func (s Shown) Open() (*os.File, error) { return s.layer.Open(s.name) }

// Walk visits what the image's root shows below a directory, each directory before what
// is in it, in the order of names. A directory that is not there, or where something else
// is, shows nothing. No symbolic link is followed.
func (u *Use) Walk(ctx context.Context, dir string, visit func(Shown) error) error {
	var layers []*os.Root
	defer func() { closeRoots(layers) }()
	for _, l := range u.visible() {
		r, err := os.OpenRoot(l)
		if err != nil {
			return failed("look into the template", err)
		}
		layers = append(layers, r)
	}
	w := &walk{ctx: ctx, visit: visit}
	for part := range strings.SplitSeq(dir, "/") {
		below, err := w.enter(layers, part)
		closeRoots(layers)
		layers = below
		if err != nil {
			return failed("look into the template", err)
		}
	}
	return w.directory(layers, dir, 0)
}

func closeRoots(all []*os.Root) {
	for _, r := range all {
		_ = r.Close()
	}
}

type walk struct {
	ctx   context.Context //nolint:containedctx // the call's own
	visit func(Shown) error
}

// enter opens a directory in every layer that shows something of it, the topmost first.
func (w *walk) enter(layers []*os.Root, name string) (below []*os.Root, err error) {
	for _, l := range layers {
		info, err := l.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return below, err
		}
		if !info.IsDir() { // a whiteout, or something that hides what lies lower
			break
		}
		r, err := l.OpenRoot(name)
		if err != nil {
			return below, err
		}
		below = append(below, r)
		opaque, err := opaqueAt(r, ".")
		if err != nil {
			return below, err
		}
		if opaque {
			break
		}
	}
	return below, nil
}

// directory visits what is in a directory that these layers show.
func (w *walk) directory(layers []*os.Root, dir string, depth int) error {
	if depth > maxDepth {
		return invalid("has more than %d directories in each other", maxDepth)
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	found := map[string]Shown{}
	for _, l := range layers {
		list, _, err := entries(l)
		if err != nil {
			return failed("look into the template", err)
		}
		for _, e := range list {
			if _, hidden := found[e.Name()]; hidden {
				continue
			}
			info, err := l.Lstat(e.Name())
			if err != nil {
				return failed("look into the template", err)
			}
			found[e.Name()] = Shown{Path: path.Join(dir, e.Name()), Info: info, layer: l, name: e.Name()}
		}
	}
	names := make([]string, 0, len(found))
	for name, s := range found {
		if !isWhiteout(s.Info) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if err := w.entry(layers, found[name], depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(layers []*os.Root, s Shown, depth int) (err error) {
	if s.Info.Mode()&fs.ModeSymlink != 0 {
		if s.Link, err = s.layer.Readlink(s.name); err != nil {
			return failed("look into the template", err)
		}
	}
	if err := w.visit(s); err != nil || !s.Info.IsDir() {
		return err
	}
	below, err := w.enter(layers, s.name)
	defer func() { closeRoots(below) }()
	if err != nil {
		return failed("look into the template", err)
	}
	return w.directory(below, s.Path, depth+1)
}
