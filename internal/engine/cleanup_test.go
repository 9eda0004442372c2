package engine

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/pool"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// clings is a machine that cannot be destroyed as long as held is set.
func clings(held *atomic.Bool, program func(*fake.Process) fake.Exit) func(driver.Plan) fake.Script {
	return always(fake.Script{Program: program, Destroy: func() error {
		if held.Load() {
			return errors.New("processes do not end")
		}
		return nil
	}})
}

// A sandbox that does not end in time changes nothing of what became of the
// program: the result says both, and its place is free when it is gone.
func TestLateCleanup(t *testing.T) {
	for name, c := range map[string]struct {
		limits  sandbox.Limits
		program func(*fake.Process) fake.Exit
		want    fate
	}{
		"a limit":   {sandbox.Limits{WallTimeMS: 20}, sleeps, fate{sandbox.StatusKilled, sandbox.CauseWallTime, -1, "SIGKILL", true}},
		"its own":   {sandbox.Limits{}, exits(fake.Exit{}), fate{sandbox.StatusSucceeded, sandbox.CauseExited, 0, "", false}},
		"a failure": {sandbox.Limits{}, exits(fake.Exit{Code: 3}), fate{sandbox.StatusFailed, sandbox.CauseExited, 3, "", false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var held atomic.Bool
				held.Store(true)
				e, d := newEngine(t, clings(&held, c.program))
				r := run(t, e, shell(c.limits))
				if got := fateOf(r); got != c.want {
					t.Errorf("fate %+v, want %+v", got, c.want)
				}
				if r.Error != nil || r.Cleanup == nil || r.Cleanup.Hint == "" {
					t.Errorf("error %v, cleanup %+v", r.Error, r.Cleanup)
				}
				if s := e.Stats(); s.Runs != 1 {
					t.Errorf("%d runs hold a place while the sandbox is there", s.Runs)
				}
				time.Sleep(2 * pool.DestroyRetry) // of the test's clock
				synctest.Wait()
				if s := e.Stats(); s.Undestroyed != 1 {
					t.Errorf("%d sandboxes are told to be left", s.Undestroyed)
				}
				held.Store(false)
				time.Sleep(2 * pool.DestroyRetry)
				synctest.Wait()
				if s := e.Stats(); s.Runs != 0 || s.Undestroyed != 0 || d.Living() != 0 {
					t.Errorf("afterwards %d runs, %d left, %d machines", s.Runs, s.Undestroyed, d.Living())
				}
			})
		})
	}
}

// An engine that is closed waits for nothing that may never come: the next one
// on the host removes it.
func TestCloseGivesUpLateCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Bool
		held.Store(true)
		e, _ := openEngine(t, clings(&held, sleeps))
		if r := run(t, e, shell(sandbox.Limits{WallTimeMS: 20})); r.Cleanup == nil {
			t.Error("the result does not say that the sandbox is left")
		}
		before := time.Now()
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(before); took > pool.DestroyRetry { // by the test's clock
			t.Errorf("Close waited %v", took)
		}
	})
}

// A place in the capacity is free when nothing of the run is on the host any more,
// whichever of its two sandboxes is late, and however the other one ends.
func TestLateCompileSandboxKeepsItsPlace(t *testing.T) {
	for name, later := range map[string]bool{"destroyed before the answer": false, "destroyed after it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var held atomic.Bool
				held.Store(true)
				e, d := newEngine(t, func(p driver.Plan) fake.Script {
					if !strings.HasSuffix(p.ID, "-c") {
						return fake.Script{Program: exits(fake.Exit{})}
					}
					return clings(&held, func(p *fake.Process) fake.Exit {
						p.Machine.Files.Put("/tmp/.pinfold/program", "compiled")
						return fake.Exit{}
					})(p)
				}, func(o *Options) { o.DestroyLater = later })
				r := run(t, e, runs.Request{Spec: sandbox.Spec{Language: "c", Code: "int main;"}})
				if r.Status != sandbox.StatusSucceeded || r.Cleanup == nil {
					t.Errorf("%s, cleanup %+v", r.Status, r.Cleanup)
				}
				time.Sleep(10 * pool.DestroyRetry) // of the test's clock
				synctest.Wait()
				if s := e.Stats(); s.Runs != 1 || s.Undestroyed != 1 || d.Living() != 1 {
					t.Errorf("the compile sandbox is there: %d runs, %d left, %d machines", s.Runs, s.Undestroyed, d.Living())
				}
				held.Store(false)
				time.Sleep(2 * pool.DestroyRetry)
				synctest.Wait()
				if s := e.Stats(); s.Runs != 0 || s.Undestroyed != 0 || d.Living() != 0 {
					t.Errorf("afterwards %d runs, %d left, %d machines", s.Runs, s.Undestroyed, d.Living())
				}
			})
		})
	}
}
