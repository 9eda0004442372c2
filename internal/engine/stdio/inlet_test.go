package stdio

import (
	"strings"
	"testing"

	"pinfold/sandbox"
)

// A program's end may be told more than once: of one that goes on in a copy its input had
// ended before.
func TestInletEndsOnce(t *testing.T) {
	i := NewInlet()
	i.End()
	i.End()
	if n, err := i.Write(t.Context(), strings.NewReader("x")); n > 0 || sandbox.AsError(err).Code != sandbox.CodeConflict {
		t.Errorf("%d, %v", n, err)
	}
}
