package compare

import (
	"testing"

	"pinfold/internal/bench"
)

// Each attack works with nothing around it, and nothing gets through where none is made.
func TestAttacksWorkWithNothingAroundThem(t *testing.T) {
	python, err := bench.FindPython()
	if err != nil {
		t.Fatal(err)
	}
	c := &comparison{ctx: t.Context(), o: Options{}.withDefaults(), python: python, dir: t.TempDir()}
	for _, a := range attackList() {
		t.Run(a.what, func(t *testing.T) {
			if got, err := c.attack(a, ""); err != nil || !got {
				t.Errorf("it works: %v, %v", got, err)
			}
			none := a
			none.code = ""
			if got, err := c.attack(none, ""); err != nil || got {
				t.Errorf("nothing got through: %v, %v", got, err)
			}
		})
	}
}
