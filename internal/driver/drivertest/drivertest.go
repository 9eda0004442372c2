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
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
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
	// Isolated says that they are isolated and within limits. What is enforced is tested
	// only then.
	Isolated bool
	// Host says that they show the host template and nothing else. What is in there is
	// tested only then.
	Host bool
	// Template is what is inside; nil: the host's programs.
	Template func(tb testing.TB) image.Template
	// Again says that other machines of the driver are held to the whole contract
	// elsewhere, and take long: what does not depend on what is inside is left out.
	Again bool
	// Groups names the groups of tests that are run; nil: all.
	Groups []string
	// NoPorts says that there are no sockets, and NoTerminals that there are no terminals.
	NoPorts, NoTerminals bool
	// Watched says that limits that the report does not promise show in the counters all
	// the same, and that nothing else keeps programs to them.
	Watched bool
	// CannotPause says why machines cannot be paused; "": they can.
	CannotPause string
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
		{"doors", doorTests, ""},
		{"pause", pauseTests, o.CannotPause},
		{"snapshot", snapshotTests, o.CannotPause},
		{"limits", limitTests, unless(o.Isolated, "this driver's machines are not isolated")},
		{"isolation", isolationTests, unless(o.Isolated, "this driver's machines are not isolated")},
		{"zygotes", zygoteTests, unless(o.Zygotes != nil, "this driver has no zygotes")},
	}
	for _, g := range groups {
		if o.Again {
			g.tests = slices.DeleteFunc(slices.Clone(g.tests), func(c test) bool { return g.name == "pause" || slices.Contains(sameInside, c.name) })
		}
		if len(g.tests) == 0 || o.Groups != nil && !slices.Contains(o.Groups, g.name) {
			continue
		}
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

// sameInside are tests for which it does not matter what is inside.
var sameInside = []string{
	"destroy is idempotent", "dial again", "dead when destroyed", "the agent dies", "the connection breaks", "32 at once",
	"cancelled while it is made", "nothing of a living owner is a leftover", "the machine has ended",
	"a destroyed machine ends what is under way",
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
	shown  image.Template
	o      Options
	ctx    context.Context
	plans  sync.Map // of machines
}

// hello is what a machine's agent is told.
func (h *harness) hello(m driver.Machine) wire.Hello {
	u, switches := h.shown.User, h.report.SwitchUser
	p, _ := h.plans.Load(m)
	if plan, ok := p.(driver.Plan); ok {
		u, switches = plan.User, plan.SwitchUser
	}
	return wire.Hello{UID: u.UID, GID: u.GID, SwitchUser: switches, Home: u.Home}
}

// shown is what is inside.
func (s *suite) shown(t *testing.T) image.Template {
	t.Helper()
	if s.o.Template != nil {
		return s.o.Template(t)
	}
	return imagetest.Host(t)
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
	h := &harness{T: t, suite: s, driver: s.open(t), o: s.o, ctx: ctx, shown: s.shown(t)}
	r, err := h.driver.Probe(ctx, h.shown)
	if err != nil {
		t.Fatalf("Probe: %v", err)
	}
	if r.Blocked != nil {
		Missing(t, "the driver is blocked here: %v (%s)", r.Blocked, r.Blocked.Hint)
	}
	h.report = r
	if level := h.driver.Abilities().Level; level != r.Level || !slices.Contains(sandbox.IsolationLevels(), level) {
		t.Fatalf("the level is declared as %q, and reported as %q", level, r.Level)
	}
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

// Runsc is gVisor's program, that of PINFOLD_RUNSC or PATH, or ends the test.
func Runsc(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("PINFOLD_RUNSC"), "runsc"))
	if err != nil {
		Missing(tb, "there is no runsc: set PINFOLD_RUNSC=$(scripts/tool runsc): %v", err)
	}
	return path
}

var serial atomic.Int64

// plan makes a plan with the limits, the rest by default.
func (h *harness) plan(l sandbox.Limits) driver.Plan {
	h.Helper()
	spec := sandbox.Spec{Code: "x", Driver: h.driver.Name(), Limits: l}.WithDefaults()
	p, err := driver.MakePlan(spec.Machine(), h.shown, h.report, fmt.Sprintf("test%d-%d", os.Getpid(), serial.Add(1)))
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
	h.plans.Store(m, p)
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
	g, err := guest.New(h.ctx, conn, h.hello(m))
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
		b.h.Fatalf("wait for %q: %v%s", args, err, b.fate())
	}
	return outcome{exit, out.String()}
}

// fate is how the machine ended, if it did.
func (b *box) fate() string {
	select {
	case <-b.Dead():
		return fmt.Sprintf(": the machine ended: %+v", b.Death())
	case <-time.After(time.Second):
		return ", and the machine lives"
	}
}

// guestProbe is where the probe lies inside.
func (b *box) guestProbe() string { return b.plan.User.Home + "/guestprobe" }

// probed makes a machine with the probe in it.
func (h *harness) probed(l sandbox.Limits) *box {
	h.Helper()
	return h.probe(h.box(l))
}

// probe puts the probe into a machine.
func (h *harness) probe(b *box) *box {
	h.Helper()
	program := agenttest.Program(h, Probe)
	if err := b.WriteFile(h.ctx, b.guestProbe(), 0o755, int64(len(program)), bytes.NewReader(program)); err != nil {
		h.Fatalf("copy the probe into the sandbox: %v", err)
	}
	return b
}

// ask runs the probe and decodes what it found.
func (b *box) ask(found any, args ...string) {
	b.h.Helper()
	r := b.run(append([]string{b.guestProbe()}, args...)...)
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
	cmd := guest.Command{Args: append([]string{b.guestProbe()}, args...), Env: env}
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
		u := b.usage()
		if good(u) {
			return u
		}
		if time.Now().After(deadline) {
			b.h.Fatalf("%s: not seen in the counters: %+v", what, u)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// usage reads the counters, also of a machine that ends meanwhile.
func (b *box) usage() driver.Usage {
	b.h.Helper()
	return b.h.usage(b.Machine)
}

func (h *harness) usage(m driver.Machine) driver.Usage {
	h.Helper()
	u, err := m.Usage(h.ctx)
	if errors.Is(err, driver.ErrEnded) {
		return m.Death().Usage
	}
	if err != nil {
		h.Fatalf("Usage: %v", err)
	}
	return u
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
				_, _ = b.Usage(b.h.ctx) // the test's own readings tell
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
