package template

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"
)

// merged shows layers as an overlay of them would, without one being mounted. It follows
// no symbolic link. It reads what never changes, so it is safe for concurrent use.
type merged struct {
	layers []*os.Root    // the topmost first
	looks  *atomic.Int64 // that are left: an image can make each as dear as it likes
}

// maxLooks bounds how many entries of layers are looked at.
const maxLooks = 300_000

// spent says whether there were more: then what was not found may be there.
func (m merged) spent() bool { return m.looks.Load() < 0 }

// Files shows the files of the image's root. Whoever looks something up must follow
// symbolic links himself (package image does), for they lead inside: Open, Lstat and
// ReadLink fail where a link is on the way. Directories can be stated, not listed. close
// must be called.
func (u *Use) Files() (root merged, done func(), err error) {
	root, done, err = merge(u.visible())
	return root, done, failed("look into the template", err)
}

// Directories shows the directories of somebody else's overlay in the same way, the topmost
// first.
func Directories(dirs []string) (root fs.FS, done func(), err error) { return merge(dirs) }

func merge(dirs []string) (m merged, done func(), err error) {
	m.looks = new(atomic.Int64)
	m.looks.Store(maxLooks)
	done = func() {
		for _, l := range m.layers {
			_ = l.Close()
		}
	}
	for _, dir := range dirs {
		l, err := os.OpenRoot(dir)
		if err != nil {
			done()
			return merged{}, nil, err
		}
		m.layers = append(m.layers, l)
	}
	return m, done, nil
}

// find returns the layer that has what a name stands for.
func (m merged) find(op, name string) (layer *os.Root, info fs.FileInfo, err error) {
	if !fs.ValidPath(name) {
		return nil, nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	for _, l := range m.layers {
		info, hides, err := m.look(l, name)
		if err != nil {
			return nil, nil, err
		}
		if info != nil {
			return l, info, nil
		}
		if hides {
			break
		}
	}
	return nil, nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// look looks for a name in one layer. hides says that lower layers do not show it, either.
func (m merged) look(l *os.Root, name string) (info fs.FileInfo, hides bool, err error) {
	for i := range len(name) + 1 {
		last := i == len(name)
		if !last && name[i] != '/' {
			continue
		}
		if m.looks.Add(-1) < 0 {
			return nil, true, nil
		}
		info, err = l.Lstat(name[:i])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, hides, nil
		case err != nil:
			return nil, true, err
		case isWhiteout(info):
			return nil, true, nil
		case last:
			return info, true, nil
		case !info.IsDir():
			return nil, true, nil
		}
		opaque, err := opaqueAt(l, name[:i])
		if err != nil {
			return nil, true, err
		}
		hides = hides || opaque
	}
	return info, hides, nil
}

func opaqueAt(l *os.Root, dir string) (bool, error) {
	f, err := l.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // only looked at
	return isOpaque(f)
}

// Open implements fs.FS.
func (m merged) Open(name string) (fs.File, error) {
	l, info, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return l.Open(name)
}

// Lstat implements fs.ReadLinkFS.
func (m merged) Lstat(name string) (fs.FileInfo, error) {
	_, info, err := m.find("lstat", name)
	return info, err
}

// ReadLink implements fs.ReadLinkFS.
func (m merged) ReadLink(name string) (string, error) {
	l, _, err := m.find("readlink", name)
	if err != nil {
		return "", err
	}
	return l.Readlink(strings.TrimPrefix(path.Clean("/"+name), "/"))
}
