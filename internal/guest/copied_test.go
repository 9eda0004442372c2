package guest_test

import (
	"io"
	"testing"

	"pinfold/internal/guest"
	"pinfold/sandbox"
)

// The state of a connection says where a copy goes on; there is none while something else
// is under way.
func TestState(t *testing.T) {
	l := startAgent(t, mode{})
	stdin, ours := io.Pipe()
	defer ours.Close()
	first, err := l.Start(deadline(t), guest.Command{Args: []string{"cat"}, Env: env}, guest.Streams{Stdin: stdin})
	if err != nil {
		t.Fatal(err)
	}
	s, err := first.State(deadline(t), "/")
	if err != nil || s.PID != first.PID() || s.Channel == 0 || s.Last <= s.Channel {
		t.Errorf("%+v, %v", s, err)
	}
	second, err := l.Start(deadline(t), guest.Command{Args: []string{"sleep", "60"}, Env: env}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.State(deadline(t), "/"); sandbox.AsError(err).Code != sandbox.CodeConflict {
		t.Errorf("while something goes on: %v", err)
	}
	if err := second.Signal(9, false); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if again, err := first.State(deadline(t), "/"); err != nil || again.Last <= s.Last {
		t.Errorf("%+v, %v", again, err)
	}
}
