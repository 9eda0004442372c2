package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/internal/headroom"
	"pinfold/sandbox"
)

// Records ask for memory, results before they are read. What gets none fails with
// that word, and nothing else comes of it.
func TestRecordsAskForRoom(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const size = 1 << 20
	r := records.Run{ID: "run_a", Tenant: "t", CreatedAt: time.Now(), Language: "sh", IdempotencyKey: "k", Metadata: map[string]string{"m": strings.Repeat("x", 4000)}}
	if _, err := s.BeginRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := s.FinishRun(t.Context(), "t", "run_a", &sandbox.Result{ID: "run_a", Status: sandbox.StatusSucceeded, Stdout: strings.Repeat("x", size)}); err != nil {
		t.Fatal(err)
	}
	again := r
	again.ID = "run_b"
	for name, c := range map[string]struct {
		read func(ctx context.Context) error
		size int64
	}{
		"a run":              {func(ctx context.Context) error { _, err := s.LoadRun(ctx, "t", "run_a"); return err }, size},
		"one asked again":    {func(ctx context.Context) error { _, err := s.BeginRun(ctx, again); return err }, size},
		"a page of metadata": {func(ctx context.Context) error { _, err := s.ListRuns(ctx, "t", records.Query{}); return err }, 4000},
	} {
		var taken int64
		if err := c.read(headroom.With(t.Context(), func(n int64) error { taken += n; return nil })); err != nil || taken < answerCopies*c.size || taken > 2*answerCopies*c.size {
			t.Errorf("%s: %d bytes, %v", name, taken, err)
		}
		full := &sandbox.Error{Code: sandbox.CodeBusy, Message: "full"}
		if err := c.read(headroom.With(t.Context(), func(int64) error { return full })); sandbox.AsError(err) != full {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.LoadRun(t.Context(), "t", "run_b"); sandbox.AsError(err).Code != sandbox.CodeNotFound {
		t.Errorf("the refused request was recorded: %v", err)
	}
}
