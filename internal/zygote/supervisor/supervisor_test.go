package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// fakeZygote makes machines that are nothing.
type fakeZygote struct {
	dead  chan struct{}
	usage driver.Usage
	fails error
}

func (z *fakeZygote) Fork(context.Context, driver.Plan) (driver.Machine, *zygote.Child, error) {
	return nil, &zygote.Child{}, z.fails
}
func (z *fakeZygote) Dead() <-chan struct{}                       { return z.dead }
func (z *fakeZygote) Usage(context.Context) (driver.Usage, error) { return z.usage, nil }
func (z *fakeZygote) Destroy(context.Context) error {
	close(z.dead) // twice would panic
	return nil
}

func (z *fakeZygote) isDead() bool {
	select {
	case <-z.dead:
		return true
	default:
		return false
	}
}

// bench is a Supervisor and all zygotes that it has started.
type bench struct {
	*Supervisor
	zygotes []*fakeZygote
	lost    atomic.Int64
	fails   error
}

func newBench() *bench {
	b := &bench{}
	b.Supervisor = New(Options{
		Start: func(context.Context) (driver.Zygote, error) {
			time.Sleep(time.Second)
			if b.fails != nil {
				return nil, b.fails
			}
			z := &fakeZygote{dead: make(chan struct{})}
			b.zygotes = append(b.zygotes, z)
			return z, nil
		},
		Lost: func() { b.lost.Add(1) },
		Go:   func(f func()) { go f() },
		Log:  slog.New(slog.DiscardHandler),
	})
	return b
}

func (b *bench) fork(t *testing.T) *Forked {
	t.Helper()
	f, ok, err := b.Fork(t.Context(), driver.Plan{})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	return f
}

// What makes no more children is replaced, and ended when nobody has one of it any more.
func TestReplacedZygotes(t *testing.T) {
	for _, test := range []struct {
		name string
		turn func(t *testing.T, b *bench)
	}{
		{"an old one", func(*testing.T, *bench) { time.Sleep(maxAge + time.Second) }},
		{"one that grew", func(_ *testing.T, b *bench) {
			b.zygotes[0].usage.MemoryBytes = maxGrowth + 1
			time.Sleep(weighInterval)
		}},
		{"one that does not fork", func(t *testing.T, b *bench) {
			b.zygotes[0].fails = errors.New("scripted")
			if _, ok, err := b.Fork(t.Context(), driver.Plan{}); !ok || err == nil {
				t.Error(ok, err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench()
				first, second := b.fork(t), b.fork(t)
				if len(b.zygotes) != 1 || !b.Ready() {
					t.Fatal("each fork has a zygote of its own")
				}
				test.turn(t, b)
				third := b.fork(t)
				if len(b.zygotes) != 2 {
					t.Fatal("it was not replaced")
				}
				first.Release()
				first.Release()
				synctest.Wait()
				if b.zygotes[0].isDead() || second.Orphaned() {
					t.Error("it was ended while a child of it lived")
				}
				second.Release()
				synctest.Wait()
				if !b.zygotes[0].isDead() || b.zygotes[1].isDead() || b.lost.Load() != 0 {
					t.Error("it lives on, or was taken for lost")
				}
				b.Close()
				third.Release()
				synctest.Wait()
				if !b.zygotes[1].isDead() {
					t.Error("a zygote outlives its pool")
				}
			})
		})
	}
}

// A zygote with too much to do is kept; one that dies is told of; one that cannot be
// forked is never tried again, but one that did not load is.
func TestZygotesInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		f := b.fork(t)
		b.zygotes[0].fails = &sandbox.Error{Code: sandbox.CodeResourceUnavailable}
		if _, _, err := b.Fork(t.Context(), driver.Plan{}); err == nil || !b.Ready() {
			t.Error("a busy zygote was given up")
		}
		close(b.zygotes[0].dead)
		synctest.Wait()
		if b.lost.Load() != 1 || b.Ready() || !f.Orphaned() {
			t.Error("nobody was told of its end")
		}
		b.fails = &zygote.UnfitError{Why: "no module", Load: true}
		if _, ok, err := b.Fork(t.Context(), driver.Plan{}); !ok || sandbox.AsError(err).Field != "warm" || b.Unfit() != nil {
			t.Error(ok, err)
		}
		b.fails = &zygote.UnfitError{Why: "a thread"}
		for range 2 {
			if f, ok, err := b.Fork(t.Context(), driver.Plan{}); f != nil || ok || err != nil || b.Unfit() == nil {
				t.Error(f, ok, err)
			}
			b.fails = nil
		}
	})
}
