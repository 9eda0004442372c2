package pool

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/planner"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// A pool of a template that was removed keeps nothing and says why; when there is one of
// that name again it is filled, with what the name stands for now.
func TestTemplateOfAPool(t *testing.T) {
	var now atomic.Pointer[image.Template]
	now.Store(&image.Template{Name: "tiny", ID: "first"})
	d := fake.New(fake.Options{})
	pools := New(Options{Log: slog.New(slog.DiscardHandler), Planner: planner.New([]driver.Driver{d}, func(string) (image.Template, error) {
		if found := now.Load(); found != nil {
			return *found, nil
		}
		return image.Template{}, &sandbox.Error{Code: sandbox.CodeTemplateUnknown, Message: "no such template"}
	}, nil)})
	t.Cleanup(func() {
		pools.Drain(errors.New("over"))
		pools.Close()
		if n := d.Living(); n > 0 {
			t.Errorf("%d machines live", n)
		}
	})
	if _, err := pools.Set(t.Context(), sandbox.PoolSpec{Name: "p", Template: "tiny", Min: 2}); err != nil {
		t.Fatal(err)
	}
	holds := func(what string, ok func(p *pool, i sandbox.PoolInfo) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			pools.mu.Lock()
			p := pools.pools["p"]
			pools.mu.Unlock()
			if ok(p, p.info()) {
				return
			}
			select {
			case p.check <- struct{}{}:
			default:
			}
			if ctx.Err() != nil {
				t.Fatalf("%s: %+v", what, p.info())
			}
			time.Sleep(time.Millisecond)
		}
	}
	full := func(id string) func(*pool, sandbox.PoolInfo) bool {
		return func(p *pool, i sandbox.PoolInfo) bool {
			return i.Available == 2 && p.shape.template == id && i.Error == nil
		}
	}
	holds("full", full("first"))
	now.Store(nil)
	holds("removed", func(_ *pool, i sandbox.PoolInfo) bool {
		return i.Available == 0 && i.Error != nil && i.Error.Code == sandbox.CodeTemplateUnknown
	})
	now.Store(&image.Template{Name: "tiny", ID: "second"})
	holds("another", full("second"))
}

// A driver may show something else than the template that was asked for: then a pool is of
// that, until the driver shows another.
func TestPoolOfWhatADriverShows(t *testing.T) {
	var shows atomic.Pointer[image.Template]
	shows.Store(&image.Template{Name: "host", ID: "first"})
	d := fake.New(fake.Options{Report: func(r *driver.Report) { r.Template = shows.Load() }})
	plans := planner.New([]driver.Driver{d}, func(string) (image.Template, error) { return image.Template{Name: "host", ID: "host"}, nil }, nil)
	pools := New(Options{Log: slog.New(slog.DiscardHandler), Planner: plans})
	t.Cleanup(func() {
		pools.Drain(errors.New("over"))
		pools.Close()
	})
	if _, err := pools.Set(t.Context(), sandbox.PoolSpec{Name: "p", Template: "host", Min: 1}); err != nil {
		t.Fatal(err)
	}
	now := func() *pool {
		pools.mu.Lock()
		defer pools.mu.Unlock()
		return pools.pools["p"]
	}
	first := now()
	for range 3 { // each is taken after the one before was looked into
		first.check <- struct{}{}
	}
	if p := now(); p != first || p.shape.template != "first" {
		t.Fatalf("it is another pool, of %s", p.shape.template)
	}
	shows.Store(&image.Template{Name: "host", ID: "second"})
	plans.Forget()
	for deadline := time.Now().Add(time.Minute); now().shape.template != "second"; time.Sleep(time.Millisecond) {
		select {
		case first.check <- struct{}{}:
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("it stays a pool of %s", now().shape.template)
		}
	}
}
