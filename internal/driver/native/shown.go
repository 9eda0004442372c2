//go:build linux

package native

import (
	"maps"
	"sync"

	"pinfold/internal/image"
	"pinfold/internal/linux/layers"
)

// shown is what the sandboxes of one template have in common on this host.
type shown struct {
	host     *host
	template image.Template
	skeleton int64 // inodes of the template, see initSpec
	mounts   hostMounts
	prepared preparedPool

	mu     sync.Mutex
	living int            // machines of an image
	layers *layers.Layers // while there are any; else of nothing
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
		s = &shown{host: h, template: t, layers: &layers.Layers{}, skeleton: (&initSpec{template: t}).skeletonInodes()}
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
		taken, err := layers.Take(s.template)
		if err != nil {
			return err
		}
		s.layers = taken
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
		s.layers.Close()
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
