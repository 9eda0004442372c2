package execution

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"pinfold/internal/image"
)

// Who a program is, and where its home lies, is the plan's to say; whoever asks for
// another value gets it.
func TestEnvironment(t *testing.T) {
	u := image.User{Name: "ann", Home: "/srv/ann"}
	got := Environment(u, []string{"PATH=/bin", "TERM=dumb"}, map[string]string{"A": "1", "TERM": "vt100"}, map[string]string{"HOME": "/tmp", "A": "2"})
	want := []string{"HOME=/tmp", "LOGNAME=ann", "PATH=/bin", "TERM=vt100", "USER=ann", "A=2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
