//go:build linux

package native

import (
	"fmt"
	"testing"

	"pinfold/internal/image"
)

// What is remembered of templates is bounded, and that of which machines live is kept.
func TestShownTemplatesAreBounded(t *testing.T) {
	h := &host{}
	of := func(i int) image.Template {
		return image.Template{ID: fmt.Sprint(i), Layers: image.Layers{Dirs: []string{"x"}}}
	}
	used := h.shows(of(0))
	used.living = 1
	for i := range 10 * maxShown {
		h.shows(of(i))
	}
	if n := len(h.shown.all); n > maxShown || h.shows(of(0)) != used {
		t.Errorf("%d templates are remembered, the one in use: %v", n, h.shown.all["0"] == used)
	}
}
