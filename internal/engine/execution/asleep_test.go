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
	"pinfold/sandbox"
)

// asleep is a machine that sleeps, and notes what it is asked for. Its agent is
// another machine's.
type asleep struct {
	driver.Machine

	mu    sync.Mutex
	asked []string
	fails error // EndGuest does
	mute  bool  // the agent hangs up
}

func (a *asleep) note(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, what)
}

func (a *asleep) Abilities() driver.MachineAbilities { return driver.MachineAbilities{Sleeper: a} }

func (a *asleep) EndGuest(context.Context) error {
	a.note("end")
	return a.fails
}

func (a *asleep) Dial(ctx context.Context) (driver.Conn, error) {
	a.note("dial")
	if a.mute {
		ours, theirs := net.Pipe()
		return ours, theirs.Close()
	}
	return a.Machine.Dial(ctx)
}

// An agent that sleeps is woken once, when it is needed, and after the guest's end
// if the guest has run. What cannot be woken stays so.
func TestAgentIsWokenOnce(t *testing.T) {
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
		{"after it", true, nil, false, func(t *testing.T, s *Session) { wantAgent(t, s, true) }, []string{"end", "dial"}},
		{"by many", true, nil, false, func(t *testing.T, s *Session) {
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() { wantAgent(t, s, true) })
			}
			all.Wait()
		}, []string{"end", "dial"}},
		{"the guest's end only", true, nil, false, func(t *testing.T, s *Session) {
			if !s.EndGuest(t.Context(), time.Second) {
				t.Error("the guest did not end")
			}
		}, []string{"end"}},
		{"the guest's end where it is awake", true, nil, false, func(t *testing.T, s *Session) {
			wantAgent(t, s, true)
			if !s.EndGuest(t.Context(), time.Second) {
				t.Error("the guest did not end")
			}
		}, []string{"end", "dial"}},
		{"a guest that does not end", true, broken, false, func(t *testing.T, s *Session) {
			wantAgent(t, s, false)
			wantAgent(t, s, false)
		}, []string{"end"}},
		{"an agent that hangs up", true, nil, true, func(t *testing.T, s *Session) {
			wantAgent(t, s, false)
			wantAgent(t, s, false)
		}, []string{"end", "dial"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := fake.New(fake.Options{})
			report, err := d.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), report, "asleep")
			if err != nil {
				t.Fatal(err)
			}
			m, err := d.Create(t.Context(), plan)
			if err != nil {
				t.Fatal(err)
			}
			a := &asleep{Machine: m, fails: test.fails, mute: test.mute}
			s := &Session{Plan: plan, Machine: a, handed: test.handed}
			if s.Dead() {
				t.Error("it is dead because it sleeps")
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
