package fake

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"

	"pinfold/internal/driver"
	"pinfold/internal/filetree"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Snapshot implements driver.Snapshotter.
func (m *Machine) Snapshot(ctx context.Context, w *filetree.Writer) error {
	if m.script.Snapshot != nil {
		if err := m.script.Snapshot(ctx); err != nil {
			return err
		}
	}
	m.mu.Lock()
	ended := m.ended
	m.mu.Unlock()
	if ended {
		return driver.ErrEnded
	}
	m.Files.mu.Lock()
	defer m.Files.mu.Unlock()
	for _, p := range m.Plan.Writable() {
		if _, there := m.Files.all[p.Path]; !there {
			continue
		}
		if err := m.Files.place(w, p); err != nil {
			return err
		}
	}
	return nil
}

// place writes what a place holds. f.mu is held.
func (f *Files) place(w *filetree.Writer, p driver.WritablePlace) error {
	if err := w.Entry(filetree.Entry{Kind: filetree.Place, Name: p.Name}); err != nil {
		return err
	}
	return f.below(w, p.Path)
}

// below writes what a directory holds, and its end. f.mu is held.
func (f *Files) below(w *filetree.Writer, dir string) error {
	var names []string
	for name := range f.all {
		if path.Dir(name) == dir && name != dir {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if err := f.one(w, name); err != nil {
			return err
		}
	}
	at := f.all[dir]
	return w.Entry(filetree.Entry{Kind: filetree.Up, Mode: at.mode, MtimeNS: at.mtime})
}

// one writes one file, link or directory. f.mu is held.
func (f *Files) one(w *filetree.Writer, name string) error {
	x, base := f.all[name], path.Base(name)
	switch x.kind {
	case wire.TypeDir:
		if err := w.Entry(filetree.Entry{Kind: filetree.Dir, Name: base}); err != nil {
			return err
		}
		return f.below(w, name)
	case wire.TypeSymlink:
		return w.Entry(filetree.Entry{Kind: filetree.Symlink, Name: base, MtimeNS: x.mtime, Target: x.target})
	case wire.TypeFile:
		if err := w.Entry(filetree.Entry{Kind: filetree.File, Name: base, Mode: x.mode, MtimeNS: x.mtime, Size: int64(len(x.content))}); err != nil {
			return err
		}
		for piece := range slices.Chunk(x.content, filetree.MaxData) {
			if err := w.Data(piece); err != nil {
				return err
			}
		}
		return nil
	}
	w.LeaveOut()
	return nil
}

// restore makes the files of a tree.
func (f *Files) restore(req *wire.RestoreRequest, r io.Reader) wire.Outcome {
	t := filetree.NewReader(r)
	var at []string // directories, from the place down
	for {
		e, err := t.Next()
		if err != nil {
			return failed(sandbox.CodeInternal, err.Error())
		}
		switch e.Kind {
		case filetree.End:
			return wire.Outcome{Size: t.So().Entries()}
		case filetree.Place:
			i := slices.IndexFunc(req.Places, func(p wire.RestorePlace) bool { return p.Name == e.Name })
			if i < 0 {
				return failed(sandbox.CodePathInvalid, "there is no "+e.Name+" in this sandbox to put it in")
			}
			at = []string{req.Places[i].Path}
		case filetree.Up:
			f.change(strings.Join(at, "/"), e)
			at = at[:len(at)-1]
		default:
			at = append(at, e.Name)
			if err := f.make(t, strings.Join(at, "/"), e); err != nil {
				return failed(sandbox.CodeInternal, err.Error())
			}
			if e.Kind != filetree.Dir {
				at = at[:len(at)-1]
			}
		}
	}
}

// make makes one file, link or directory.
func (f *Files) make(t *filetree.Reader, name string, e filetree.Entry) error {
	x := file{kind: wire.TypeDir, mode: 0o755}
	switch e.Kind {
	case filetree.Symlink:
		x = file{kind: wire.TypeSymlink, mode: 0o777, target: e.Target}
	case filetree.File:
		x = file{kind: wire.TypeFile, mode: e.Mode}
		for {
			gap, piece, err := t.Content()
			if err != nil {
				return err
			}
			if gap == 0 && piece == nil {
				break
			}
			x.content = append(append(x.content, make([]byte, gap)...), piece...)
		}
	}
	f.set(name, x)
	return nil
}

// change gives a directory what it had.
func (f *Files) change(name string, e filetree.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x, ok := f.all[name]; ok {
		x.mode, x.mtime = e.Mode, e.MtimeNS
		f.all[name] = x
	}
}
