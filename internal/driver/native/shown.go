//go:build linux

package native

import (
	"sync"

	"pinfold/internal/image"
)

// shown is what the sandboxes of one template have in common on this host.
type shown struct {
	host     *host
	template image.Template
	skeleton int64 // inodes of the template, see initSpec
	mounts   hostMounts
	prepared preparedPool
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
		s.prepared = preparedPool{views: s.views, make: prepareMounts, from: prepareFrom, off: !h.ids.root}
		if h.shown.all == nil {
			h.shown.all = map[string]*shown{}
		}
		h.shown.all[t.ID] = s
	}
	return s
}

// views lists what every sandbox is shown, when the host looks like this.
func (s *shown) views(state mountState) []hostView {
	return hostViews(s.template, s.host.layered(state), s.host.features.devices == nil, state.nested)
}

// close gives back what is kept ready.
func (s *shownTemplates) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		t.prepared.close()
	}
}
