//go:build linux

// Package layers takes what an image is made of into use on this host: its layers stay
// where they are, and are open, so that an overlay can be made of them in a mount namespace
// that does not find them by name any more.
package layers

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"pinfold/internal/image"
	"pinfold/internal/linux/spawn"
	"pinfold/sandbox"
)

// Layers are an image's, in use until Close. The zero value is of no image.
type Layers struct {
	Under *os.File   // the directory below which they are
	Files []*os.File // the topmost first; their names are relative to Under

	held io.Closer
}

// Take opens a template's layers. The error is of code template_unknown where they are
// gone. A template that is no image has none.
func Take(t image.Template) (*Layers, error) {
	held, err := t.Hold()
	if err != nil {
		return nil, err
	}
	l := &Layers{held: held}
	if len(t.Layers.Dirs) == 0 {
		return l, nil
	}
	if err := l.open(t.Layers); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Layers) open(of image.Layers) (err error) {
	if l.Under, err = openDir(unix.AT_FDCWD, of.Under); err != nil {
		return err
	}
	for _, dir := range of.Dirs {
		layer, err := openDir(int(l.Under.Fd()), dir)
		if err != nil {
			return err
		}
		l.Files = append(l.Files, layer)
	}
	return nil
}

func openDir(at int, dir string) (*os.File, error) {
	fd, err := unix.Openat(at, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: fmt.Sprintf("cannot open %s of the template: %v", dir, err), Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil //nolint:gosec // a descriptor
}

// CloseFiles closes what only the making of an overlay needs. They stay where they are.
func (l *Layers) CloseFiles() {
	for _, f := range append(l.Files, l.Under) {
		if f != nil {
			_ = f.Close()
		}
	}
	l.Under, l.Files = nil, nil
}

// Close ends the use.
func (l *Layers) Close() {
	l.CloseFiles()
	if l.held != nil {
		_ = l.held.Close()
		l.held = nil
	}
}

// Reopen opens layers once more, as the program's own mount namespace has them: the kernel
// makes an overlay of nothing else. Their names are relative to the working directory, which
// must be what Layers.Under is there. After a change of user the way to them may be barred.
// The program must keep the files' descriptors, which then are of those.
func Reopen(p *spawn.Program, files []*os.File) {
	for _, l := range files {
		fd := p.Result("open layer", unix.SYS_OPENAT, unix.AT_FDCWD, l.Name(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		p.Call("keep layer", unix.SYS_DUP3, fd.Ref(), int(l.Fd()), unix.O_CLOEXEC)
	}
}

// Lowers names open layers for an overlay (mount.Overlay), as long as /proc is there.
func Lowers(files []*os.File) []string {
	names := make([]string, len(files))
	for i, l := range files {
		names[i] = fmt.Sprintf("/proc/self/fd/%d", l.Fd())
	}
	return names
}
