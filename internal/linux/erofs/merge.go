//go:build linux

package erofs

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/whiteout"
)

// hidden is the mode of a mark in the place of a name that is in no layer above it. There
// is none in an image.
const hidden = unix.S_IFCHR

// merging is the merge of some layers into one directory.
type merging struct {
	*Builder
	ctx    context.Context //nolint:containedctx // the call's own
	closed map[*node]bool  // nothing of a lower layer is seen there
}

// Merge shows directories of the host's as an overlay of them would, the topmost first:
// marks (package whiteout) hide what is below them, and are not shown. It asks no more of
// the kernel that reads the image than a single directory does. No link is followed. Who
// merges layers sees all of them: what cannot be looked at is an error.
func (b *Builder) Merge(ctx context.Context, name string, layers []string) error {
	n, err := b.dir(name)
	if err != nil {
		return err
	}
	m := &merging{Builder: b, ctx: ctx, closed: map[*node]bool{}}
	for i, layer := range layers {
		if i == 0 {
			info, err := os.Lstat(layer)
			if err != nil {
				return err
			}
			n.describe(info)
		}
		if err := m.layer(n, layer); err != nil {
			return err
		}
		if m.closed[n] {
			break
		}
	}
	unmark(n)
	return nil
}

// layer adds what is in a directory of a layer and in none above it.
func (m *merging) layer(n *node, host string) error {
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	entries, opaque, err := list(host)
	if err != nil {
		return err
	}
	m.dirs = append(m.dirs, host)
	at := len(m.dirs) - 1
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		if err := m.entry(n, info, at); err != nil {
			return err
		}
	}
	if opaque {
		m.closed[n] = true
	}
	return nil
}

// list lists a directory, and says whether it is opaque.
func list(dir string) (entries []fs.DirEntry, opaque bool, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	defer f.Close() //nolint:errcheck // only read
	if entries, err = f.ReadDir(-1); err != nil {
		return nil, false, err
	}
	opaque, err = whiteout.IsOpaque(int(f.Fd()))
	return entries, opaque, err
}

// entry adds what one name of a layer stands for. What is not a directory in one layer is
// seen whole, or hides all that is below it.
func (m *merging) entry(above *node, info fs.FileInfo, at int) error {
	name, dir := info.Name(), m.dirs[at]
	there := above.children[name]
	switch {
	case there != nil && (there.children == nil || m.closed[there]):
		return nil
	case there != nil && !info.IsDir():
		m.closed[there] = true
		return nil
	case there != nil:
		return m.layer(there, filepath.Join(dir, name))
	case whiteout.Is(info):
		return m.add(above, name, &node{mode: hidden})
	case info.IsDir():
		n := &node{children: map[string]*node{}}
		n.describe(info)
		if err := m.add(above, name, n); err != nil {
			return err
		}
		return m.layer(n, filepath.Join(dir, name))
	}
	return m.Builder.entry(m.ctx, above, name, info, at)
}

// unmark takes the marks out of a directory.
func unmark(n *node) {
	for name, c := range n.children {
		if c.mode == hidden {
			delete(n.children, name)
		}
		unmark(c)
	}
}
