//go:build !lean

package wiring

import (
	"context"
	"slices"
	"sync"

	"pinfold/internal/image"
	"pinfold/internal/language"
	"pinfold/internal/template"
)

// images are the templates that are images, in a store's directory. They are safe for
// concurrent use.
type images struct {
	dir string

	mu    sync.Mutex
	known map[template.ID]image.Template // what never changes
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
	i.mu.Lock()
	defer i.mu.Unlock()
	found, ok := i.known[t.Image.ID]
	if !ok {
		if found, err = s.Resolve(name, programs()); err != nil {
			return image.Template{}, err
		}
		if i.known == nil || len(i.known) >= maxKnown {
			i.known = map[template.ID]image.Template{}
		}
		i.known[t.Image.ID] = found
	}
	found.Name = name
	return found, nil
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
