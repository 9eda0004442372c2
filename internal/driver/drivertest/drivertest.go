//go:build linux

// Package drivertest is the conformance suite of drivers: what the prose of
// package driver promises, as tests. Every driver's own test is a call of Run.
//
// A driver may enforce less than another, but it may not say otherwise: for each
// feature that a plan enforces the suite tries to break it, and for each that
// is not enforced it wants to be told why and how to change that.
//
// What is tried from inside is done by the command guestprobe, and is judged
// outside, with a control that succeeds where the try must fail.
package drivertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// Probe is the package of the program that looks around inside.
const Probe = "pinfold/internal/driver/drivertest/guestprobe"

// Options say what a driver's machines are like.
type Options struct {
	// Kept says that machines outlive the process that made them.
	Kept bool
	// Kernel says that machines hold real processes under a real kernel.
	Kernel bool
	// Host says that they show the host template, within limits. What is in there and
	// what is enforced is tested only then.
	Host bool
	// KillAgent ends a machine's agent from outside, as a crash would.
	KillAgent func(m driver.Machine) error
	// Break changes a plan so that making the machine fails, and returns a
	// part of the name of the step that the error must name.
	Break func(t *testing.T, p *driver.Plan) (step string)
	// Zygotes say how zygotes are tested; nil: they are not.
	Zygotes *Zygotes
	// State lists directories in which the driver keeps state.
	State []string
}

// Run runs the suite. open makes a driver for one test and closes it with
// t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) driver.Driver, o Options) {
	s := &suite{open: open, o: o}
	life := lifeTests
	if o.Kept {
		life = slices.Concat(life, adoptTests)
	}
	groups := []struct {
		name  string
		tests []test
		skip  string // why
	}{
		{"report", reportTests, ""},
		{"life", life, ""},
		{"living", livingTests, ""},
		{"limits", limitTests, unless(o.Host, "this driver's machines do not show the host template")},
		{"isolation", isolationTests, unless(o.Host, "this driver's machines do not show the host template")},
		{"zygotes", zygoteTests, unless(o.Zygotes != nil, "this driver has no zygotes")},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			if g.skip != "" {
				t.Skip(g.skip)
			}
			for _, c := range g.tests {
				t.Run(c.name, func(t *testing.T) { c.run(s.begin(t)) })
			}
		})
	}
}

func unless(has bool, why string) string {
	if has {
		return ""
	}
	return why
}

type test struct {
	name string
	run  func(h *harness)
}

type suite struct {
	open func(t *testing.T) driver.Driver
	o    Options
}

// harness is one test with a driver of its own.
type harness struct {
	*testing.T
	suite  *suite
	driver driver.Driver
	report driver.Report
	o      Options
	ctx    context.Context
}

// begin looks at the host, and then opens the driver.
func (s *suite) begin(t *testing.T) *harness {
	t.Helper()
	if s.o.Kernel {
		agenttest.Bytes(t) // built outside the ledger
		agenttest.Program(t, Probe)
		ledger.Check(t, s.o.State...)
	} else {
		ledger.CheckSelf(t)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	h := &harness{T: t, suite: s, driver: s.open(t), o: s.o, ctx: ctx}
	r, err := h.driver.Probe(ctx)
	if err != nil {
		t.Fatalf("Probe: %v", err)
	}
	if r.Blocked != nil {
		Missing(t, "the driver is blocked here: %v (%s)", r.Blocked, r.Blocked.Hint)
	}
	h.report = r
	if kept := h.driver.Abilities().Keeper != nil; kept != s.o.Kept {
		t.Fatalf("that machines outlive their maker is declared as %v, and tested as %v", kept, s.o.Kept)
	}
	return h
}

// Missing ends a test for which the host lacks something. Where everything has
// to be there (CI=true or PINFOLD_TEST_ALL=1) it fails; otherwise it skips.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	text := fmt.Sprintf(format, args...)
	if os.Getenv("CI") == "true" || os.Getenv("PINFOLD_TEST_ALL") == "1" {
		tb.Fatal(text)
	}
	tb.Skip(text)
}

var serial atomic.Int64

// plan makes a plan with the limits, the rest by default.
func (h *harness) plan(l sandbox.Limits) driver.Plan {
	h.Helper()
	spec := sandbox.Spec{Code: "x", Limits: l}.WithDefaults()
	p, err := driver.MakePlan(spec.Machine(), h.report, fmt.Sprintf("test%d-%d", os.Getpid(), serial.Add(1)))
	if err != nil {
		h.Fatalf("MakePlan: %v", err)
	}
	return p
}

// create makes a machine that is gone when the test ends.
func (h *harness) create() driver.Machine {
	h.Helper()
	return h.createFrom(h.plan(sandbox.Limits{}))
}

func (h *harness) createFrom(p driver.Plan) driver.Machine {
	h.Helper()
	m, err := h.driver.Create(h.ctx, p)
	if err != nil {
		h.Fatalf("Create: %v", err)
	}
	h.Cleanup(func() { h.destroy(m) })
	return m
}

func (h *harness) destroy(m driver.Machine) {
	h.Helper()
	if err := m.Destroy(context.Background()); err != nil {
		h.Errorf("Destroy: %v", err)
	}
}

// box is a machine with a connection to its agent.
type box struct {
	driver.Machine
	*guest.Guest
	h      *harness
	plan   driver.Plan
	limits sandbox.Limits
}

// box makes a machine and greets its agent.
func (h *harness) box(l sandbox.Limits) *box {
	h.Helper()
	plan := h.plan(l)
	m := h.createFrom(plan)
	return &box{Machine: m, Guest: h.greet(m), h: h, plan: plan, limits: l.WithDefaults()}
}

func (h *harness) greet(m driver.Machine) *guest.Guest {
	h.Helper()
	conn, err := m.Dial(h.ctx)
	if err != nil {
		h.Fatalf("Dial: %v", err)
	}
	g, err := guest.New(h.ctx, conn, wire.Hello{
		UID: sandbox.UID, GID: sandbox.GID, SwitchUser: h.report.SwitchUser, Home: sandbox.Home,
	})
	if err != nil {
		select {
		case <-m.Dead():
			h.Fatalf("greet the agent: %v: %+v", err, m.Death())
		case <-time.After(time.Minute):
			h.Fatalf("greet the agent, which lives: %v", err)
		}
	}
	h.Cleanup(func() { _ = g.Close() })
	return g
}

// env is what the suite's commands get.
var env = []string{"HOME=" + sandbox.Home, "PATH=/usr/bin:/bin"}

// outcome is what came of a command.
type outcome struct {
	guest.Exit
	out string
}

// run runs a command to its end.
func (b *box) run(args ...string) outcome {
	b.h.Helper()
	var out bytes.Buffer
	p, err := b.Start(b.h.ctx, guest.Command{Args: args, Env: env}, guest.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		b.h.Fatalf("start %q: %v", args, err)
	}
	exit, err := p.Wait(b.h.ctx)
	if err != nil {
		b.h.Fatalf("wait for %q: %v", args, err)
	}
	return outcome{exit, out.String()}
}

// guestProbe is where the probe lies inside.
const guestProbe = sandbox.Home + "/guestprobe"

// probed makes a machine with the probe in it.
func (h *harness) probed(l sandbox.Limits) *box {
	h.Helper()
	program := agenttest.Program(h, Probe)
	b := h.box(l)
	if err := b.WriteFile(h.ctx, guestProbe, 0o755, int64(len(program)), bytes.NewReader(program)); err != nil {
		h.Fatalf("copy the probe into the sandbox: %v", err)
	}
	return b
}

// ask runs the probe and decodes what it found.
func (b *box) ask(found any, args ...string) {
	b.h.Helper()
	r := b.run(append([]string{guestProbe}, args...)...)
	if r.Code != 0 || r.Signal != 0 {
		b.h.Fatalf("guestprobe %q ended with %+v:\n%s", args, r.Exit, r.out)
	}
	if err := json.Unmarshal([]byte(r.out), found); err != nil {
		b.h.Fatalf("guestprobe %q: %v in %q", args, err, r.out)
	}
}

// holding is a probe that goes on until it is let go.
type holding struct {
	*guest.Process
	stdin *blocker
	lines chan string
}

// hold starts the probe and waits for its first finding.
func (b *box) hold(found any, args ...string) {
	b.h.Helper()
	x := b.start(args...)
	select {
	case line := <-x.lines:
		if err := json.Unmarshal([]byte(line), found); err != nil {
			b.h.Fatalf("guestprobe %q: %v in %q", args, err, line)
		}
	case <-x.Done():
		b.h.Fatalf("guestprobe %q ended too early", args)
	case <-b.h.ctx.Done():
		b.h.Fatalf("guestprobe %q said nothing", args)
	}
}

// start starts the probe.
func (b *box) start(args ...string) *holding {
	b.h.Helper()
	x := &holding{stdin: &blocker{make(chan struct{})}, lines: make(chan string, 16)}
	b.h.Cleanup(x.stdin.end)
	cmd := guest.Command{Args: append([]string{guestProbe}, args...), Env: env}
	p, err := b.Start(b.h.ctx, cmd, guest.Streams{Stdin: x.stdin, Stdout: &lines{to: x.lines}, Stderr: os.Stderr})
	if err != nil {
		b.h.Fatalf("start guestprobe %q: %v", args, err)
	}
	x.Process = p
	return x
}

// until reads the counters as the engine does, until they please.
func (b *box) until(what string, good func(u driver.Usage) bool) driver.Usage {
	b.h.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		u := b.Usage()
		if good(u) {
			return u
		}
		if time.Now().After(deadline) {
			b.h.Fatalf("%s: not seen in the counters: %+v", what, u)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// watched reads the counters every few milliseconds while f runs.
func (b *box) watched(f func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
				b.Usage()
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	f()
}

// blocker is a stdin that says nothing until it ends.
type blocker struct{ ended chan struct{} }

func (b *blocker) Read([]byte) (int, error) { <-b.ended; return 0, fmt.Errorf("let go") }

func (b *blocker) end() {
	select {
	case <-b.ended:
	default:
		close(b.ended)
	}
}

// lines passes whole lines on.
type lines struct {
	to   chan string
	part strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.part.Write(b)
	for {
		line, rest, ok := strings.Cut(l.part.String(), "\n")
		if !ok {
			return len(b), nil
		}
		l.part.Reset()
		l.part.WriteString(rest)
		select {
		case l.to <- line:
		default: // nobody listens any more
		}
	}
}
