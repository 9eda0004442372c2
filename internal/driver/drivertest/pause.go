//go:build linux

package drivertest

import (
	"errors"
	"sync/atomic"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/sandbox"
)

// pauseTests are for drivers whose machines can stand still.
var pauseTests = []test{
	{"stands still and goes on", (*harness).testPause},
	{"destroyed while paused", (*harness).testPauseDestroy},
	{"the machine has ended", (*harness).testPauseEnded},
	{"a fork bomb", (*harness).testPauseForkBomb},
}

// pauser is the machine's, which this host may not have.
func (h *harness) pauser(m driver.Machine) driver.Pauser {
	h.Helper()
	p := m.Abilities().Pauser
	if !h.driver.Abilities().Pauses {
		h.Fatal("the driver does not declare that its machines can be paused")
	}
	if p == nil {
		Missing(h, "there is no freezer here")
	}
	return p
}

// written counts what a program has written.
type written struct{ bytes atomic.Int64 }

// Write counts.
func (w *written) Write(b []byte) (int, error) {
	w.bytes.Add(int64(len(b)))
	return len(b), nil
}

// busy starts a program that writes for ever.
func (b *box) busy() *written {
	b.h.Helper()
	w, args := &written{}, []string{"yes"}
	if b.h.o.Kernel {
		args = []string{"/bin/sh", "-c", "while :; do echo y; done"}
	}
	if _, err := b.Start(b.h.ctx, guest.Command{Args: args, Env: env}, guest.Streams{Stdout: w}); err != nil {
		b.h.Fatal(err)
	}
	b.grows(w)
	return w
}

// grows waits until more has been written, and in a kernel more time was taken.
func (b *box) grows(w *written) {
	b.h.Helper()
	bytes, cpu := w.bytes.Load(), b.usage().CPUNanos
	b.h.eventually("the program goes on", func() bool {
		return w.bytes.Load() > bytes && (!b.h.o.Kernel || b.usage().CPUNanos > cpu)
	})
}

// standing is for how long a paused machine is looked at.
const standing = 200 * time.Millisecond

// residual is the CPU time that what holds a paused machine may take meanwhile, such as a
// sandbox's own kernel that looks at its clocks: far less than a program that goes on.
const residual = standing / 40

// stands fails when the paused machine goes on. What was on its way may arrive.
func (b *box) stands(w *written) {
	b.h.Helper()
	b.h.eventually("nothing is on its way", func() bool {
		before := w.bytes.Load()
		time.Sleep(standing / 4)
		return w.bytes.Load() == before
	})
	bytes, cpu := w.bytes.Load(), b.usage().CPUNanos
	time.Sleep(standing)
	if now := b.usage().CPUNanos; time.Duration(now-cpu) > residual || w.bytes.Load() != bytes {
		b.h.Errorf("paused, it wrote %d bytes and took %s of CPU time", w.bytes.Load()-bytes, time.Duration(now-cpu))
	}
}

// is wants the machine to say that it is paused, or that it is not.
func (h *harness) is(p driver.Pauser, paused bool) {
	h.Helper()
	if got, err := p.Paused(h.ctx); err != nil || got != paused {
		h.Errorf("Paused: %v, %v; want %v", got, err, paused)
	}
}

func (h *harness) testPause() {
	b := h.box(sandbox.Limits{})
	p := h.pauser(b.Machine)
	h.is(p, false)
	if err := p.Resume(h.ctx); err != nil {
		h.Errorf("Resume of what is not paused: %v", err)
	}
	w := b.busy()
	for range 2 {
		for range 2 {
			if err := p.Pause(h.ctx); err != nil {
				h.Fatal(err)
			}
			h.is(p, true)
		}
		b.stands(w)
		for range 2 {
			if err := p.Resume(h.ctx); err != nil {
				h.Fatal(err)
			}
			h.is(p, false)
		}
		b.grows(w)
	}
	if got := b.run("/bin/echo", "alive").out; got != "alive\n" {
		h.Errorf("after a pause the machine says %q", got)
	}
}

func (h *harness) testPauseDestroy() {
	b := h.box(sandbox.Limits{})
	p := h.pauser(b.Machine)
	b.busy()
	if err := p.Pause(h.ctx); err != nil {
		h.Fatal(err)
	}
	h.destroy(b.Machine)
	if d := b.Death(); d.Kind != driver.DeathDestroyed {
		h.Errorf("destroyed while paused: %+v", d)
	}
}

func (h *harness) testPauseEnded() {
	m := h.create()
	p := h.pauser(m)
	h.destroy(m)
	_, err := p.Paused(h.ctx)
	for name, err := range map[string]error{"Pause": p.Pause(h.ctx), "Resume": p.Resume(h.ctx), "Paused": err} {
		if !errors.Is(err, driver.ErrEnded) {
			h.Errorf("%s of a machine that has ended: %v", name, err)
		}
	}
}

// Who forks as fast as it can is stopped all the same, and so are its children.
func (h *harness) testPauseForkBomb() {
	if !h.o.Kernel {
		h.Skip("this driver's machines hold no real processes")
	}
	b := h.box(sandbox.Limits{})
	p := h.pauser(b.Machine)
	const bomb = `f() { /bin/true & f & echo; }; while :; do f; done`
	w := &written{}
	start := func() (*guest.Process, error) {
		return b.Start(h.ctx, guest.Command{Args: []string{"/bin/sh", "-c", bomb}, Env: env}, guest.Streams{Stdout: w})
	}
	sh, err := start()
	if err != nil {
		h.Fatal(err)
	}
	h.eventually("it goes off", func() bool {
		if w.bytes.Load() > 0 && b.usage().Processes > 5 {
			return true
		}
		select {
		case <-sh.Exited(): // each shell ends that cannot fork: they may all have, between two looks
			if again, err := start(); err == nil {
				sh = again
			}
		default:
		}
		return false
	})
	if err := p.Pause(h.ctx); err != nil {
		h.Fatal(err)
	}
	b.stands(w)
	h.destroy(b.Machine)
}
