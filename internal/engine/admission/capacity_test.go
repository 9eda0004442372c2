package admission

import "testing"

// What was not given does not end before what was.
func TestDefaultsDoNotEndFirst(t *testing.T) {
	c := Capacity{Sandboxes: 1_000_000}.WithDefaults()
	if c.CPUs < float64(c.Sandboxes) {
		t.Errorf("%d sandboxes and %g CPUs", c.Sandboxes, c.CPUs)
	}
}
