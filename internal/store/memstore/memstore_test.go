package memstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/internal/store/storetest"
	"pinfold/sandbox"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(now func() time.Time) (records.Store, func(), error) {
		return New(Options{Now: now}), func() {}, nil
	})
}

func TestMemoryIsBounded(t *testing.T) {
	ctx := context.Background()
	s := New(Options{Objects: 3, Bytes: 5000, Days: 2})
	finish := func(i int, output string) {
		id := fmt.Sprintf("run_%02d", i)
		if _, err := s.BeginRun(ctx, records.Run{ID: id, Tenant: "t", IdempotencyKey: id}); err != nil {
			t.Fatal(err)
		}
		if err := s.FinishRun(ctx, "t", id, &sandbox.Result{ID: id, Status: sandbox.StatusSucceeded, Stdout: output}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.BeginRun(ctx, records.Run{ID: "run_alive", Tenant: "t"}); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		finish(i, "")
		if err := s.SaveSandbox(ctx, "t", sandbox.Info{ID: fmt.Sprint("sbx_", i), State: sandbox.StateEnded}); err != nil {
			t.Fatal(err)
		}
		if err := s.AddUsage(ctx, "t", time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC), records.Consumption{Runs: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.runs.rows) != 4 || len(s.sandboxes.rows) != 3 || len(s.keys) != 3 || len(s.usage) != 2 {
		t.Fatalf("%d runs, %d sandboxes, %d keys and %d days are kept", len(s.runs.rows), len(s.sandboxes.rows), len(s.keys), len(s.usage))
	}
	finish(30, strings.Repeat("x", 100_000))
	if _, err := s.LoadRun(ctx, "t", "run_30"); err != nil || len(s.runs.ended) != 1 {
		t.Fatal("the newest result is kept, and large ones drive out the others:", len(s.runs.ended), err)
	}
	finish(31, "")
	if _, err := s.LoadRun(ctx, "t", "run_30"); sandbox.AsError(err) == nil || len(s.runs.ended) != 1 {
		t.Fatal("what is too large stays only while it is the newest", err)
	}
	if _, err := s.LoadRun(ctx, "t", "run_alive"); err != nil {
		t.Fatal("what is alive was dropped", err)
	}
}
