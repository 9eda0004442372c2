//go:build linux

package native

import (
	"io"
	"maps"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"pinfold/internal/image"
)

// shown is what the sandboxes of one template have in common on this host.
type shown struct {
	host     *host
	template image.Template
	skeleton int64 // inodes of the template, see initSpec
	mounts   hostMounts
	prepared preparedPool

	mu     sync.Mutex
	living int        // machines of an image
	held   io.Closer  // while there are any: see image.Template.Hold
	under  *os.File   // likewise: see image.Layers
	layers []*os.File // likewise: the image's
}

// shownTemplates are those of which there were sandboxes. It is safe for concurrent use.
type shownTemplates struct {
	mu  sync.Mutex
	all map[string]*shown // by Template.ID
}

// shows returns what the sandboxes of a template have in common.
func (h *host) shows(t image.Template) *shown {
	h.shown.mu.Lock()
	defer h.shown.mu.Unlock()
	s := h.shown.all[t.ID]
	if s == nil {
		s = &shown{host: h, template: t, skeleton: (&initSpec{template: t}).skeletonInodes()}
		s.mounts.template = t
		// The views of prepared mounts are of the host, and an image has none.
		s.prepared = preparedPool{views: s.views, make: prepareMounts, from: prepareFrom, off: !h.ids.root || s.isImage()}
		h.shown.add(t.ID, s)
	}
	return s
}

// maxShown is of how many templates something is remembered.
const maxShown = 64

// add remembers a template's. Where there are many, images of which no machine lives are
// forgotten; who has one already may go on with it. The lock is held.
func (s *shownTemplates) add(id string, one *shown) {
	if len(s.all) >= maxShown {
		maps.DeleteFunc(s.all, func(_ string, old *shown) bool { return old.isImage() && !old.lives() })
	}
	if s.all == nil {
		s.all = map[string]*shown{}
	}
	s.all[id] = one
}

// lives says whether there is a machine of an image.
func (s *shown) lives() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.living > 0
}

// views lists what every sandbox is shown, when the host looks like this.
func (s *shown) views(state mountState) []hostView {
	return hostViews(s.template, s.host.layered(state), s.host.features.devices == nil, state.nested)
}

func (s *shown) isImage() bool { return len(s.template.Layers.Dirs) > 0 }

// enter opens what a machine of an image is made from. Each is followed by a leave, but
// after an error.
func (s *shown) enter() error {
	if !s.isImage() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.living == 0 {
		if err := s.open(); err != nil {
			s.close()
			return err
		}
	}
	s.living++
	return nil
}

// leave takes note that a machine is gone.
func (s *shown) leave() {
	if !s.isImage() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.living--; s.living == 0 {
		s.close()
	}
}

func (s *shown) open() (err error) {
	if s.held, err = s.template.Hold(); err != nil {
		return err
	}
	if s.under, err = openPath(unix.AT_FDCWD, s.template.Layers.Under); err != nil {
		return err
	}
	for _, dir := range s.template.Layers.Dirs {
		layer, err := openPath(int(s.under.Fd()), dir)
		if err != nil {
			return err
		}
		s.layers = append(s.layers, layer)
	}
	return nil
}

func openPath(at int, dir string) (*os.File, error) {
	fd, err := unix.Openat(at, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, setupError("open "+dir+" of the template", err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}

func (s *shown) close() {
	closeFiles(append(s.layers, s.under))
	s.under, s.layers = nil, nil
	if s.held != nil {
		_ = s.held.Close()
		s.held = nil
	}
}

// close gives back what is kept ready.
func (s *shownTemplates) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		t.prepared.close()
	}
}
