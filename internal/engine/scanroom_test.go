package engine_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// many has so many runs of alice's be asked for at once, which end with the test.
func many(t *testing.T, s *served, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range n {
		all.Go(func() { _, _ = s.Run(ctx, program("x")) })
	}
	t.Cleanup(func() { cancel(); all.Wait() })
}

func bobs(code string) runs.Request {
	req := program(code)
	req.Tenant = "bob"
	return req
}

// seen is a policy under which every run is scanned.
func seen() sandbox.Policy {
	return one(sandbox.PolicyRule{ID: "no", When: sandbox.PolicyWhen{Severity: "danger"}, Then: sandbox.PolicyThen{Refuse: "no"}})
}

// usedUp serves an engine whose scans of "x" need a sandbox, with a quota of one run that
// a run of alice's has until it is cancelled.
func usedUp(t *testing.T, c admission.Capacity) (s *served, held string, scans *atomic.Int32) {
	t.Helper()
	scans = &atomic.Int32{}
	s, _ = ruled(t, seen(), func(o *engine.Options) {
		o.Capacity, o.Quota = c, func(string) admission.Quota { return admission.Quota{Runs: 1} }
		o.Scan = func(ctx context.Context, req sandbox.ScanRequest, run func(context.Context, sandbox.Spec) (*sandbox.Result, error)) (*sandbox.ScanReport, error) {
			if req.Code == "x" {
				scans.Add(1)
				if _, err := run(ctx, sandbox.Spec{Language: "sh", Code: "reads"}); err != nil {
					return nil, err
				}
			}
			return &sandbox.ScanReport{Findings: []sandbox.Finding{}}, nil
		}
		o.Drivers = []driver.Driver{fake.New(fake.Options{Script: func(driver.Plan) fake.Script {
			return fake.Script{Program: func(p *fake.Process) fake.Exit {
				if slices.Contains(p.Env, "HOLD=1") {
					p.Sleep(time.Hour)
				}
				return fake.Exit{}
			}}
		}})}
	})
	hold := program("hold")
	hold.Spec.Env = map[string]string{"HOLD": "1"}
	r, err := s.Start(by("alices"), hold)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has the tenant's share", func() bool {
		now, err := s.RunRecord(soon(t), "alice", r.ID)
		return err == nil && now.State == sandbox.RunRunning
	})
	t.Cleanup(func() { _, _ = s.CancelRun(soon(t), "alice", r.ID) })
	return s, r.ID, scans
}

// With a policy every run may be scanned first. A tenant whose scans wait for room that it has
// used up itself keeps nobody else waiting.
func TestScansThatWaitForRoomHoldUpNobody(t *testing.T) {
	s, _, scans := usedUp(t, admission.Capacity{})
	many(t, s, 40)
	eventually(t, "scans wait", func() bool { return scans.Load() >= 2 })
	ctx, cancel := context.WithTimeout(soon(t), 10*time.Second)
	defer cancel()
	if r, err := s.Run(ctx, bobs("x")); err != nil || r.Status != sandbox.StatusSucceeded {
		t.Errorf("%+v, %v", r, err)
	}
}

// Nor does one that asks for very many.
func TestTenantsTakeTurnsToBeScanned(t *testing.T) {
	var scanned atomic.Int32
	s, _ := ruled(t, seen(), func(o *engine.Options) {
		o.Scan = func(ctx context.Context, req sandbox.ScanRequest, _ func(context.Context, sandbox.Spec) (*sandbox.Result, error)) (*sandbox.ScanReport, error) {
			if req.Code == "x" {
				scanned.Add(1)
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
				}
			}
			return &sandbox.ScanReport{Findings: []sandbox.Finding{}}, ctx.Err()
		}
	})
	many(t, s, 400)
	eventually(t, "scans wait", func() bool { return scanned.Load() >= 20 })
	before := scanned.Load()
	if r, err := s.Run(soon(t), bobs("harmless")); err != nil || r.Status != sandbox.StatusSucceeded {
		t.Errorf("%+v, %v", r, err)
	}
	if n := scanned.Load() - before; n > 100 {
		t.Errorf("%d scans of another tenant's came first", n)
	}
}

// That there is no room for a scan says nothing of the program: it is not taken for the worst.
// A run for which nobody waits has it scanned when there is room.
func TestNoRoomForAScanIsNoFinding(t *testing.T) {
	s, held, scans := usedUp(t, admission.Capacity{QueueTimeout: 50 * time.Millisecond})
	if _, err := s.Run(soon(t), program("x")); code(err) != sandbox.CodeBusy {
		t.Errorf("%v", err)
	}
	before := scans.Load()
	late, err := s.Start(by("alices"), program("x"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is scanned", func() bool { return scans.Load() > before })
	time.Sleep(200 * time.Millisecond)
	if now, err := s.RunRecord(soon(t), "alice", late.ID); err != nil || now.State == sandbox.RunFinished {
		t.Fatalf("%+v, %v", now.Result, err)
	}
	if _, err := s.CancelRun(soon(t), "alice", held); err != nil {
		t.Fatal(err)
	}
	if done, err := s.AwaitRun(soon(t), "alice", late.ID); err != nil || done.Result.Status != sandbox.StatusSucceeded {
		t.Errorf("%+v, %v", done.Result, err)
	}
}
