//go:build linux

package drivertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// Zygotes say how a driver's zygotes are tested.
type Zygotes struct {
	// Spec describes one, in sandboxes of the template.
	Spec func(t *testing.T, shown image.Template) zygote.Spec
	// Programs of its interpreter: one that prints something and exits with status 7, and
	// one that goes on for more than a minute.
	Exit7, Endless string
}

var zygoteTests = []test{
	{"a child runs one program", (*harness).testChild},
	{"children end with their zygote", (*harness).testZygoteEnds},
	{"an init stub kills the guest and becomes the agent", (*harness).testInitStub},
}

// zygote starts a zygote that is gone when the test ends. It returns nil where this host
// cannot have one, which is an answer.
func (h *harness) zygote() driver.Zygote {
	h.Helper()
	zygoter := h.driver.Abilities().Zygoter
	if zygoter == nil {
		h.Fatal("the driver declares no zygotes, and is to be tested with some")
	}
	z, err := zygoter.NewZygote(h.ctx, h.plan(sandbox.Limits{}), h.o.Zygotes.Spec(h.T, h.shown))
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		h.Fatalf("NewZygote: %v", err)
	}
	h.Cleanup(func() {
		if err := z.Destroy(context.Background()); err != nil {
			h.Errorf("Destroy of a zygote: %v", err)
		}
	})
	return z
}

// child forks a child into a machine that is gone when the test ends.
func (h *harness) child(z driver.Zygote) (driver.Machine, *zygote.Child) {
	h.Helper()
	m, c, err := z.Fork(h.ctx, h.plan(sandbox.Limits{}))
	if err != nil {
		h.Fatalf("Fork: %v", err)
	}
	h.Cleanup(func() {
		h.destroy(m)
		for _, f := range []io.Closer{c.Stdin, c.Stdout, c.Stderr} {
			_ = f.Close() // may be closed
		}
	})
	return m, c
}

// hand hands a child its program.
func (h *harness) hand(c *zygote.Child, code string) {
	h.Helper()
	b, err := zygote.Handover{File: "main.py", Code: &code}.Encode()
	if err == nil {
		_, err = c.Stdin.Write(b)
	}
	if err == nil {
		err = c.Stdin.Close()
	}
	if err != nil {
		h.Fatalf("handing a program over: %v", err)
	}
}

// exit waits for a child's end. ok is false when nobody knows how it ended.
func (h *harness) exit(c *zygote.Child) (e zygote.Exit, ok bool) {
	h.Helper()
	select {
	case e, ok = <-c.Exited:
		return e, ok
	case <-time.After(time.Minute):
		h.Fatal("a child does not end")
		return e, false
	}
}

func (h *harness) testChild() {
	z := h.zygote()
	if z == nil {
		return
	}
	for range 2 { // one after another
		m, c := h.child(z)
		h.hand(c, h.o.Zygotes.Exit7)
		var out bytes.Buffer
		if _, err := io.Copy(&out, c.Stdout); err != nil {
			h.Error(err)
		}
		if e, ok := h.exit(c); !ok || e.Code != 7 || e.Signal != 0 {
			said, _ := io.ReadAll(c.Stderr)
			h.Errorf("it ended with %+v (%t): %s%s", e, ok, out.Bytes(), said)
		}
		if _, ok := <-c.Exited; ok {
			h.Error("it ended twice")
		}
		select {
		case <-m.Dead():
			h.Errorf("its machine ended with it: %+v", m.Death())
		default:
		}
		h.destroy(m)
	}
	select {
	case <-z.Dead():
		h.Error("the zygote ended with a child")
	default:
	}
}

func (h *harness) testZygoteEnds() {
	z := h.zygote()
	if z == nil {
		return
	}
	waits, waiting := h.child(z)
	runs, running := h.child(z)
	h.hand(running, h.o.Zygotes.Endless)
	for range 2 { // it is idempotent
		if err := z.Destroy(h.ctx); err != nil {
			h.Fatalf("Destroy of a zygote: %v", err)
		}
	}
	<-z.Dead()
	for _, m := range []driver.Machine{waits, runs} {
		select {
		case <-m.Dead():
		case <-time.After(time.Minute):
			h.Fatal("a machine outlives the zygote of its program")
		}
	}
	for _, c := range []*zygote.Child{waiting, running} {
		if e, ok := h.exit(c); ok {
			h.Errorf("somebody knows how a child ended: %+v", e)
		}
	}
	if m, _, err := z.Fork(h.ctx, h.plan(sandbox.Limits{})); err == nil {
		h.destroy(m)
		h.Error("a zygote that has ended was forked")
	}
}

func (h *harness) testInitStub() {
	z := h.zygote()
	if z == nil {
		return
	}
	m, c := h.child(z)
	stub := m.Abilities().InitStub
	if stub == nil {
		return // the agent is there from the start
	}
	h.hand(c, h.o.Zygotes.Endless)
	for range 2 { // it is idempotent
		if err := stub.KillGuest(h.ctx); err != nil {
			h.Fatalf("KillGuest: %v", err)
		}
	}
	if e, ok := h.exit(c); !ok || e.Signal != 9 {
		h.Errorf("the child ended with %+v (%t)", e, ok)
	}
	if out, err := h.echo(m, "after the guest"); err != nil || out != "after the guest\n" {
		h.Errorf("the agent says %q, %v", out, err)
	}
	if err := stub.KillGuest(h.ctx); err == nil {
		h.Error("an init stub has killed the guest where the agent runs")
	}
	h.destroy(m)
	if err := stub.KillGuest(h.ctx); err == nil {
		h.Error("an init stub has killed the guest of a machine that has ended")
	}
}
