package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/engine"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// A pool whose module blocks while it is loaded does not hold up the end.
func TestEndWhileModulesLoad(t *testing.T) {
	s, _ := serveForks(t, engine.Options{}, func(ctx context.Context) error {
		<-ctx.Done()
		return &zygote.UnfitError{Why: "it took too long", Load: true}
	})
	if _, err := s.SetPool(t.Context(), sandbox.PoolSpec{Name: "p", Language: "python", Warm: []string{"endless"}}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // it may have begun
	begun := time.Now()
	if err := s.RemovePool(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

// A pool that cannot be filled makes room for others, also of the same tenant.
func TestFailingPoolsMakeRoom(t *testing.T) {
	var mended atomic.Bool
	s, _ := serveForks(t, engine.Options{}, func(context.Context) error {
		if !mended.Load() {
			return &zygote.UnfitError{Why: "no such module", Load: true}
		}
		return nil
	})
	ask := func(module string) *sandbox.Result {
		t.Helper()
		r, err := s.Run(soon(t), python(sandbox.Spec{Warm: []string{module}}))
		if err != nil {
			t.Fatal(errors.Unwrap(err))
		}
		return r
	}
	for i := range 8 {
		if r := ask(fmt.Sprintf("bad%d", i)); r.Warm {
			t.Fatalf("%+v", r)
		}
	}
	mended.Store(true)
	if r := ask("good"); !r.Warm {
		t.Errorf("%+v", r)
	}
}
