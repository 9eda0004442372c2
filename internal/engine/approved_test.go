package engine_test

import (
	"io"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// Who approves a run has seen behind which wall it will be: where the host cannot make that
// any more, it runs behind none that is weaker.
func TestApprovedIsTheWallThatWasShown(t *testing.T) {
	var gone atomic.Bool
	var ran atomic.Int64
	script := func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			ran.Add(1)
			_, _ = io.WriteString(p.Stdout, "ran\n")
			return fake.Exit{}
		}}
	}
	p := one(sandbox.PolicyRule{ID: "ask", Then: sandbox.PolicyThen{Ask: "who wants that?"}})
	s, _ := ruled(t, p, func(o *engine.Options) {
		o.Drivers = []driver.Driver{
			fake.New(fake.Options{Name: "machines", Level: sandbox.LevelVM, Script: script, Report: func(r *driver.Report) {
				if gone.Load() {
					r.Blocked = &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: "no machines any more"}
				}
			}}),
			fake.New(fake.Options{Name: "plain", Script: script}),
		}
	})
	r, err := s.Start(by("asker"), program("x"))
	if err != nil {
		t.Fatal(err)
	}
	if shown, err := s.Approval("alice", r.ID); err != nil || shown.Isolation != sandbox.LevelVM || shown.Driver != "machines" {
		t.Fatalf("%+v, %v", shown, err)
	}
	gone.Store(true)
	time.Sleep(1100 * time.Millisecond) // what is known of the host is believed for a second
	if _, err := s.Decide(by("boss"), "alice", r.ID, sandbox.VerdictApproved, ""); err != nil {
		t.Fatal(err)
	}
	done, err := s.AwaitRun(soon(t), "alice", r.ID)
	if err != nil || done.Result.Error == nil || ran.Load() != 0 {
		t.Errorf("behind %s: %+v, %v", done.Result.Isolation.Driver, done.Result.Error, err)
	}
}
