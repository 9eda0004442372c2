//go:build !lean

package wiring

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"pinfold/internal/filetree"
	"pinfold/internal/image"
	"pinfold/internal/language"
	"pinfold/internal/template"
	"pinfold/sandbox"
)

// images are the templates that are images, in a store's directory. They are safe for
// concurrent use.
type images struct {
	dir string

	mu    sync.Mutex
	known map[template.ID]*known
}

// known is an image that is looked at once: what it says never changes.
type known struct {
	mu    sync.Mutex
	found image.Template
	err   error // it cannot be used
}

// maxKnown bounds what is remembered: images of which there were sandboxes.
const maxKnown = 64

// get describes a template, which is looked at once.
func (i *images) get(name string) (image.Template, error) {
	s, ok, err := i.store()
	if err != nil {
		return image.Template{}, err
	}
	if !ok {
		return image.Template{}, template.Unknown(name)
	}
	t, err := s.Get(name)
	if err != nil {
		return image.Template{}, err
	}
	k := i.of(t.Image.ID)
	k.mu.Lock() // others wait for this image, and for no other
	defer k.mu.Unlock()
	if k.found.ID == "" && k.err == nil {
		if k.found, err = s.Resolve(name, programs()); err != nil && refused(err) {
			k.err = err // it will be no better
		}
	}
	if err = cmp.Or(k.err, err); err != nil {
		return image.Template{}, err
	}
	found := k.found
	found.Name = name
	return found, nil
}

// home writes what an image has in its user's home.
func (i *images) home(ctx context.Context, t image.Template, place string, w *filetree.Writer) error {
	s, ok, err := i.store()
	if err != nil || !ok {
		return cmp.Or(err, template.Unknown(t.Name))
	}
	u, err := s.Use(t.ID)
	if err != nil {
		return err
	}
	defer u.Close()
	return u.WriteHome(ctx, t.User.Home, place, w)
}

// refused says whether it is the image that is at fault.
func refused(err error) bool {
	code := sandbox.AsError(err).Code
	return code == sandbox.CodeTooLarge || code == sandbox.CodeUnsafeArchive
}

// of returns what is known of an image.
func (i *images) of(id template.ID) *known {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.known == nil || len(i.known) >= maxKnown {
		i.known = map[template.ID]*known{}
	}
	if i.known[id] == nil {
		i.known[id] = &known{}
	}
	return i.known[id]
}

// names returns those of all images; none where there is no store.
func (i *images) names(ctx context.Context) ([]string, error) {
	s, ok, err := i.store()
	if err != nil || !ok {
		return nil, err
	}
	all, err := s.List(ctx)
	names := make([]string, len(all))
	for n, t := range all {
		names[n] = t.Name
	}
	return names, err
}

func (i *images) store() (s *template.Store, ok bool, err error) {
	if i.dir == "" {
		return nil, false, nil
	}
	return template.Look(i.dir, template.Limits{})
}

// programs are all that a language may look for.
var programs = sync.OnceValue(func() (names []string) {
	for _, l := range language.Table() {
		for _, p := range l.Programs {
			names = append(names, p.Candidates...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
})
