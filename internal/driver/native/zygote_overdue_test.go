//go:build linux

package native

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/test/ledger"
)

// A zygote that hangs, and so does not say that a fork has ended, is ended while
// its run goes on, whether anybody watches it or not; one whose fork still runs is not.
func TestZygoteThatHangsDuringARun(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	agenttest.Bytes(t)
	ledger.Check(t, state)
	d := newDriver(t, state)
	made, plan, err := newPythonZygote(t, d)
	if errors.Is(err, errors.ErrUnsupported) {
		return // not root
	}
	if err != nil {
		t.Fatal(err)
	}
	p := made.(*zygoteMachine)
	if p.machine.cgroup == nil {
		t.Skip("without cgroups nobody can tell")
	}
	plan.ID += "-fork"
	m, f, err := p.Fork(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		closeFiles([]*os.File{f.Stdin, f.Stdout, f.Stderr})
	}()
	hand(t, f, "import time; time.sleep(6)")
	stickZygote(t, p)
	begun := time.Now()
	if _, err := m.Abilities().RunMeter.BeginRun(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case e, ok := <-f.Exited:
		took := time.Since(begun)
		if ok || took < 6*time.Second+reapTimeout || took > time.Minute+reapTimeout {
			t.Fatalf("%+v (%t) after %v", e, ok, took)
		}
		<-p.Dead()
	case <-time.After(2 * time.Minute):
		t.Fatal("nobody noticed")
	}
}
