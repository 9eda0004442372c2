package records

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"pinfold/sandbox"
)

// fullDisk is a store that keeps one of each, where it can.
type fullDisk struct {
	Store

	full bool
	info sandbox.Info
	run  Run
	days []DayUsage
}

func (f *fullDisk) may() error {
	if f.full {
		return errors.New("no space left on device")
	}
	return nil
}

func (f *fullDisk) SaveSandbox(_ context.Context, _ string, info sandbox.Info) error {
	if err := f.may(); err != nil {
		return err
	}
	f.info = info
	return nil
}

func (f *fullDisk) LoadSandbox(context.Context, string, string) (sandbox.Info, error) {
	return f.info, nil
}

func (f *fullDisk) FinishRun(_ context.Context, _, _ string, r *sandbox.Result) error {
	if err := f.may(); err != nil {
		return err
	}
	f.run = f.run.Finished(r)
	return nil
}

func (f *fullDisk) LoadRun(context.Context, string, string) (Run, error) { return f.run, nil }

func (f *fullDisk) AddUsage(_ context.Context, _ string, _ time.Time, u Consumption) error {
	if err := f.may(); err != nil {
		return err
	}
	f.days = append(f.days, DayUsage{Consumption: u})
	return nil
}

func (f *fullDisk) UsageOf(context.Context, string, time.Time, time.Time) ([]DayUsage, error) {
	return f.days, nil
}

// What a store cannot take now is told from memory, to its tenant alone, and is written
// when the store can: once, and the newest.
func TestNothingIsLostOnAFullDisk(t *testing.T) {
	store := &fullDisk{full: true, info: sandbox.Info{ID: "s", State: sandbox.StateRunning}, run: Run{ID: "r"}}
	k := NewKeeper(store, slog.New(slog.DiscardHandler))
	k.KeepSandbox("alice", sandbox.Info{ID: "s", State: sandbox.StateEnding})
	k.KeepSandbox("alice", sandbox.Info{ID: "s", State: sandbox.StateEnded})
	k.KeepResult("alice", "r", &sandbox.Result{Status: sandbox.StatusSucceeded})
	k.Account("alice", Consumption{Runs: 1})
	k.Account("alice", Consumption{Runs: 2})
	for range 2 { // the first time from memory
		if info, err := k.LoadSandbox(t.Context(), "alice", "s"); err != nil || info.State != sandbox.StateEnded {
			t.Errorf("the sandbox: %+v, %v", info, err)
		}
		if r, err := k.LoadRun(t.Context(), "alice", "r"); err != nil || r.Result == nil || r.State != sandbox.RunFinished {
			t.Errorf("the run: %+v, %v", r, err)
		}
		if store.full {
			if n := k.Unwritten(); n != 2 {
				t.Errorf("%d wait to be written, not 2", n)
			}
			if info, _ := k.LoadSandbox(t.Context(), "bob", "s"); info.State == sandbox.StateEnded {
				t.Error("another tenant learns of it")
			}
		}
		store.full = false
		k.Flush()
	}
	if n := k.Unwritten(); n != 0 || store.info.State != sandbox.StateEnded || store.run.Result == nil {
		t.Errorf("%d wait; written: %+v, %+v", n, store.info, store.run)
	}
	if days, err := k.UsageOf(t.Context(), "alice", time.Time{}, time.Time{}); err != nil || len(days) != 1 || days[0].Runs != 3 {
		t.Errorf("the account: %+v, %v", days, err)
	}
	var none *Keeper
	none.KeepSandbox("alice", sandbox.Info{})
	none.KeepResult("alice", "r", &sandbox.Result{})
	none.Account("alice", Consumption{})
	none.Flush()
	if none.Unwritten() != 0 {
		t.Error("a nil keeper keeps something")
	}
}
