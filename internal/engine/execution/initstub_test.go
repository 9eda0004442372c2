package execution

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
)

// stubbed is a machine with an init stub, and notes what it is asked for. Its agent is
// another machine's.
type stubbed struct {
	driver.Machine

	mu    sync.Mutex
	asked []string
	fails error // KillGuest does
	mute  bool  // the agent hangs up
}

func (a *stubbed) note(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, what)
}

func (a *stubbed) Abilities() driver.MachineAbilities { return driver.MachineAbilities{InitStub: a} }

func (a *stubbed) KillGuest(context.Context) error {
	a.note("kill")
	return a.fails
}

func (a *stubbed) Dial(ctx context.Context) (driver.Conn, error) {
	a.note("dial")
	if a.mute {
		ours, theirs := net.Pipe()
		return ours, theirs.Close()
	}
	return a.Machine.Dial(ctx)
}

// An init stub becomes the agent once, when that is needed, and after the guest's end
// if the guest has run. Where that fails, it is not tried again.
func TestAgentStartsOnce(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		name   string
		handed bool
		fails  error
		mute   bool
		use    func(*testing.T, *Session)
		asked  []string
	}{
		{"never needed", true, nil, false, func(*testing.T, *Session) {}, nil},
		{"before the program", false, nil, false, func(t *testing.T, s *Session) { wantAgent(t, s, true) }, []string{"dial"}},
		{"after it", true, nil, false, func(t *testing.T, s *Session) { wantAgent(t, s, true) }, []string{"kill", "dial"}},
		{"by many", true, nil, false, func(t *testing.T, s *Session) {
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() { wantAgent(t, s, true) })
			}
			all.Wait()
		}, []string{"kill", "dial"}},
		{"the guest's end only", true, nil, false, func(t *testing.T, s *Session) {
			if !s.KillGuest(t.Context(), time.Second) {
				t.Error("the guest did not end")
			}
		}, []string{"kill"}},
		{"the guest's end where the agent runs", true, nil, false, func(t *testing.T, s *Session) {
			wantAgent(t, s, true)
			if !s.KillGuest(t.Context(), time.Second) {
				t.Error("the guest did not end")
			}
		}, []string{"kill", "dial"}},
		{"a guest that does not end", true, broken, false, func(t *testing.T, s *Session) {
			wantAgent(t, s, false)
			wantAgent(t, s, false)
		}, []string{"kill"}},
		{"an agent that hangs up", true, nil, true, func(t *testing.T, s *Session) {
			wantAgent(t, s, false)
			wantAgent(t, s, false)
		}, []string{"kill", "dial"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := fake.New(fake.Options{})
			report, err := d.Probe(t.Context(), imagetest.Host(t))
			if err != nil {
				t.Fatal(err)
			}
			plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), imagetest.Host(t), report, "stubbed")
			if err != nil {
				t.Fatal(err)
			}
			m, err := d.Create(t.Context(), plan)
			if err != nil {
				t.Fatal(err)
			}
			a := &stubbed{Machine: m, fails: test.fails, mute: test.mute}
			s := &Session{Plan: plan, Machine: a, handed: test.handed}
			if s.Dead() {
				t.Error("it is dead because no agent runs")
			}
			test.use(t, s)
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if !slices.Equal(a.asked, test.asked) {
				t.Errorf("it was asked to %q, not %q", a.asked, test.asked)
			}
		})
	}
}

func wantAgent(t *testing.T, s *Session, want bool) {
	t.Helper()
	g, err := s.Agent(t.Context())
	if (err == nil) != want || (g != nil) != want {
		t.Errorf("the agent: %v, %v", g, err)
	}
}
