//go:build linux

package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/sandbox"
)

var reportTests = []test{
	{"says the same twice", (*harness).testReportIsStable},
	{"answers every feature, with a reason", (*harness).testReportIsComplete},
	{"a plan refuses what it cannot have", (*harness).testPlanRefuses},
}

func (h *harness) testReportIsStable() {
	again, err := h.driver.Probe(h.ctx, h.shown)
	if err != nil {
		h.Fatal(err)
	}
	if diff := cmp.Diff(h.report, again); diff != "" {
		h.Errorf("a second Probe answers otherwise (-first +second):\n%s", diff)
	}
	if h.report.Driver != h.driver.Name() {
		h.Errorf("the report is of %q, the driver is %q", h.report.Driver, h.driver.Name())
	}
}

func (h *harness) testReportIsComplete() {
	for _, f := range sandbox.Features() {
		n := 0
		for _, found := range h.report.Findings {
			if !sandbox.Satisfies(found.Feature, f.Name) || f.Name == sandbox.FeatureNetwork && found.Feature == sandbox.FeatureNetworkNone {
				continue
			}
			n++
			if found.Because == "" {
				h.Errorf("%s: %s, but not why", found.Feature, found.Answer)
			}
			if found.Answer == driver.No && found.Fix.Kind == "" && f.Name != sandbox.FeatureIO { // which no setting gives
				h.Errorf("%s: no, but not what would change that", found.Feature)
			}
		}
		if n != 1 && (n > 1 || f.Name != sandbox.FeatureNetwork) { // without that it has no doors
			h.Errorf("%d findings about %s", n, f.Name)
		}
	}
}

func (h *harness) testPlanRefuses() {
	for i, f := range h.report.Findings {
		spec := sandbox.Spec{Code: "x", Driver: h.driver.Name(), Require: []string{f.Feature}}.WithDefaults()
		_, err := driver.MakePlan(spec.Machine(), h.shown, h.report, fmt.Sprintf("refuse%d", i))
		if (err == nil) != (f.Answer == driver.Yes) {
			h.Errorf("%s is answered with %s, and requiring it gives: %v", f.Feature, f.Answer, err)
		}
		if err == nil {
			continue
		}
		e := sandbox.AsError(err)
		if e.Code != sandbox.CodeRequirementUnmet || e.Hint == "" || !strings.Contains(e.Message, f.Because) {
			h.Errorf("%s is refused without reason or fix: %+v", f.Feature, e)
		}
	}
}

// adoptTests are for drivers whose machines outlive the process that made them.
var adoptTests = []test{{"adopted", (*harness).testAdopt}}

var lifeTests = []test{
	{"create and destroy", (*harness).testCreateDestroy},
	{"destroy is idempotent", (*harness).testDestroyTwice},
	{"readings", (*harness).testReadings},
	{"dial again", (*harness).testDialAgain},
	{"hello and echo", (*harness).testEcho},
	{"files", (*harness).testFiles},
	{"dead when destroyed", (*harness).testDeath},
	{"the agent dies", (*harness).testAgentDies},
	{"the connection breaks", (*harness).testConnectionBreaks},
	{"everything at once", (*harness).testEverythingAtOnce},
	{"32 at once", (*harness).testMany},
	{"cancelled while it is made", (*harness).testCancelledCreate},
	{"a step fails", (*harness).testStepFails},
	{"nothing of a living owner is a leftover", (*harness).testNoLeftovers},
}

func (h *harness) testCreateDestroy() {
	m := h.create()
	select {
	case <-m.Dead():
		h.Fatalf("dead at once: %+v", m.Death())
	default:
	}
	if u := h.usage(m); u.OOMKills != 0 || u.ProcessesDenied != 0 || u.DiskFull || u.InodesFull || u.DiskBytes != 0 || u.Inodes != 0 {
		h.Errorf("a fresh machine has used something: %+v", u)
	}
}

func (h *harness) testDestroyTwice() {
	m := h.create()
	h.destroy(m)
	last := m.Death()
	h.destroy(m)
	ended, cancel := context.WithCancel(h.ctx)
	cancel()
	if err := m.Destroy(ended); err != nil {
		h.Errorf("Destroy with a context that has ended: %v", err)
	}
	if diff := cmp.Diff(last, m.Death()); diff != "" {
		h.Errorf("after another Destroy its death is another:\n%s", diff)
	}
}

// A reading ends with its context, and there is none of a machine that has ended: its
// death has the last one.
func (h *harness) testReadings() {
	b := h.box(sandbox.Limits{})
	if got := b.run("/bin/echo", "hello").out; got != "hello\n" {
		h.Fatalf("echo says %q", got)
	}
	before := b.usage()
	readings := map[string]func(context.Context) (driver.Usage, error){"Usage": b.Usage}
	if meter := b.Machine.Abilities().RunMeter; meter != nil {
		readings["BeginRun"], readings["EndRun"] = meter.BeginRun, meter.EndRun
	}
	why := errors.New("enough of it")
	ended, cancel := context.WithCancelCause(h.ctx)
	cancel(why)
	for name, read := range readings {
		if _, err := read(ended); !errors.Is(err, why) {
			h.Errorf("%s with a context that has ended: %v", name, err)
		}
		if _, err := read(h.ctx); err != nil {
			h.Errorf("control: %s: %v", name, err)
		}
	}
	h.destroy(b.Machine)
	for name, read := range readings {
		if u, err := read(h.ctx); !errors.Is(err, driver.ErrEnded) || !reflect.ValueOf(u).IsZero() {
			h.Errorf("%s of a machine that is destroyed: %+v, %v", name, u, err)
		}
	}
	if last := b.Death().Usage; last.CPUNanos < before.CPUNanos || last.ProcessesPeak < before.ProcessesPeak {
		h.Errorf("the last reading is %+v, the one before its end was %+v", last, before)
	}
}

// A second Dial succeeds only where that is promised; then it ends the first.
func (h *harness) testDialAgain() {
	m := h.create()
	first := h.greet(m)
	if !m.Abilities().Redial {
		if conn, err := m.Dial(h.ctx); err == nil {
			_ = conn.Close()
			h.Error("a second Dial succeeds")
		}
		return
	}
	p, err := first.Start(h.ctx, guest.Command{Args: []string{"/bin/sleep", "60"}, Env: env}, guest.Streams{})
	if err != nil {
		h.Fatal(err)
	}
	if err := first.WriteFile(h.ctx, "kept", 0o600, 4, strings.NewReader("kept")); err != nil {
		h.Fatal(err)
	}
	second := h.greet(m)
	if _, err := p.Wait(h.ctx); err == nil {
		h.Error("a process outlived the stream that it was started by")
	}
	var kept bytes.Buffer
	if _, err := second.ReadFile(h.ctx, "kept", 100, &kept); err != nil || kept.String() != "kept" {
		h.Errorf("%q, %v", kept.String(), err)
	}
	select {
	case <-m.Dead():
		h.Error("the machine is dead")
	default:
	}
}

func (h *harness) testEcho() {
	b := h.box(sandbox.Limits{})
	if got := b.run("/bin/echo", "hello").out; got != "hello\n" {
		h.Errorf("echo says %q", got)
	}
}

func (h *harness) testFiles() {
	b := h.box(sandbox.Limits{})
	content := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	if err := b.WriteFile(h.ctx, "dir/file", 0o640, int64(len(content)), bytes.NewReader(content)); err != nil {
		h.Fatalf("WriteFile: %v", err)
	}
	var got bytes.Buffer
	if _, err := b.ReadFile(h.ctx, "dir/file", int64(len(content)), &got); err != nil || !bytes.Equal(got.Bytes(), content) {
		h.Errorf("ReadFile: %v, %d bytes", err, got.Len())
	}
	found, err := b.Glob(h.ctx, b.plan.User.Home, []string{"**"}, 10)
	if err != nil || len(found.Files) != 1 || found.Files[0].Path != "dir/file" {
		h.Errorf("Glob: %v, %+v", err, found)
	}
	if err := b.Remove(h.ctx, "dir"); err != nil {
		h.Errorf("Remove: %v", err)
	}
	if _, err := b.Stat(h.ctx, "dir/file"); sandbox.AsError(err).Code != sandbox.CodeFileNotFound {
		h.Errorf("Stat of what was removed: %v", err)
	}
}

func (h *harness) testDeath() {
	m := h.create()
	h.destroy(m)
	select {
	case <-m.Dead():
	default:
		h.Fatal("destroyed and not dead")
	}
	if d := m.Death(); d.Kind != driver.DeathDestroyed || d.Evidence == "" {
		h.Errorf("destroyed, and its death is %+v", d)
	}
}

func (h *harness) testAgentDies() {
	if h.o.KillAgent == nil {
		h.Fatal("Options.KillAgent is not set")
	}
	b := h.box(sandbox.Limits{})
	p, err := b.Start(h.ctx, guest.Command{Args: []string{"/bin/sleep", "60"}, Env: env}, guest.Streams{})
	if err != nil {
		h.Fatal(err)
	}
	if err := h.o.KillAgent(b.Machine); err != nil {
		h.Fatalf("KillAgent: %v", err)
	}
	select {
	case <-b.Dead():
	case <-time.After(time.Minute):
		h.Fatal("the agent is gone, and the machine is not dead")
	}
	if d := b.Death(); d.Kind != driver.DeathAgent || d.Evidence == "" {
		h.Errorf("the death is %+v", d)
	}
	if _, err := p.Wait(h.ctx); err == nil {
		h.Error("a process outlived its machine")
	}
	h.destroy(b.Machine)
	if d := b.Death(); d.Kind != driver.DeathAgent {
		h.Errorf("Destroy changed the death to %+v", d)
	}
}

// That the connection broke is not a death by itself; whatever follows, the
// machine can be destroyed.
func (h *harness) testConnectionBreaks() {
	m := h.create()
	conn, err := m.Dial(h.ctx)
	if err != nil {
		h.Fatal(err)
	}
	_ = conn.Close()
	h.usage(m)
	h.destroy(m)
}

func (h *harness) testEverythingAtOnce() {
	for range 8 {
		m := h.create()
		var wg sync.WaitGroup
		wg.Go(func() { h.useUntilItEnds(m) })
		for range 3 {
			wg.Go(func() {
				for range 50 {
					if _, err := m.Usage(h.ctx); err != nil && !errors.Is(err, driver.ErrEnded) {
						h.Errorf("Usage: %v", err)
					}
				}
			})
		}
		for i := range 3 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Millisecond)
				h.destroy(m)
				<-m.Dead()
				_ = m.Death()
			})
		}
		wg.Wait()
	}
}

// useUntilItEnds runs commands for as long as the machine lives.
func (h *harness) useUntilItEnds(m driver.Machine) {
	conn, err := m.Dial(h.ctx)
	if err != nil {
		return
	}
	g, err := guest.New(h.ctx, conn, h.hello(m))
	if err != nil {
		return
	}
	defer g.Close() //nolint:errcheck // it ends with the machine
	for {
		p, err := g.Start(h.ctx, guest.Command{Args: []string{"/bin/echo"}, Env: env}, guest.Streams{})
		if err != nil {
			return
		}
		if _, err := p.Wait(h.ctx); err != nil {
			return
		}
	}
}

func (h *harness) testMany() {
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			text := fmt.Sprintf("machine %d", i)
			plan := h.plan(sandbox.Limits{})
			m, err := h.driver.Create(h.ctx, plan)
			if err != nil {
				h.Errorf("Create: %v", err)
				return
			}
			h.plans.Store(m, plan)
			defer h.destroy(m)
			got, err := h.echo(m, text)
			if err != nil || got != text+"\n" {
				h.Errorf("%s: %q, %v", text, got, err)
			}
		})
	}
	wg.Wait()
}

// echo says something inside and returns what came out.
func (h *harness) echo(m driver.Machine, text string) (string, error) {
	conn, err := m.Dial(h.ctx)
	if err != nil {
		return "", err
	}
	g, err := guest.New(h.ctx, conn, h.hello(m))
	if err != nil {
		return "", err
	}
	defer g.Close() //nolint:errcheck // the machine is destroyed
	var out bytes.Buffer
	p, err := g.Start(h.ctx, guest.Command{Args: []string{"/bin/echo", text}, Env: env}, guest.Streams{Stdout: &out})
	if err != nil {
		return "", err
	}
	_, err = p.Wait(h.ctx)
	return out.String(), err
}

// The context may end at any moment of Create: either there is a machine, or an
// error and nothing else. The ledger sees what would be left.
func (h *harness) testCancelledCreate() {
	made, refused := 0, 0
	for i := range 60 {
		ctx, cancel := context.WithCancelCause(h.ctx)
		stop := time.AfterFunc(time.Duration(i)*100*time.Microsecond, func() { cancel(context.Canceled) })
		m, err := h.driver.Create(ctx, h.plan(sandbox.Limits{}))
		stop.Stop()
		cancel(nil)
		if err == nil {
			made++
			h.destroy(m)
			continue
		}
		refused++
		var known *sandbox.Error
		if !errors.As(err, &known) {
			h.Fatalf("the error is no *sandbox.Error: %v", err)
		}
		if !errors.Is(err, context.Canceled) {
			h.Errorf("cancelled, and the error is: %v", err)
		}
	}
	if refused == 0 {
		h.Errorf("none of %d creations was cancelled in time", made)
	}
}

func (h *harness) testStepFails() {
	if h.o.Break == nil {
		h.Fatal("Options.Break is not set")
	}
	p := h.plan(sandbox.Limits{})
	step := h.o.Break(h.T, &p)
	m, err := h.driver.Create(h.ctx, p)
	if err == nil {
		h.destroy(m)
		h.Fatal("a broken plan was carried out")
	}
	e := sandbox.AsError(err)
	if e.Code != sandbox.CodeSetupFailed || !strings.Contains(e.Message, step) || e.Hint == "" {
		h.Errorf("the error is %+v, and should name %q", e, step)
	}
}

func (h *harness) testNoLeftovers() {
	b := h.box(sandbox.Limits{})
	if _, err := h.driver.Leftovers(h.ctx); err != nil {
		h.Fatalf("Leftovers: %v", err)
	}
	if got := b.run("/bin/echo", "alive").out; got != "alive\n" {
		h.Errorf("after Leftovers the machine says %q", got)
	}
}

// What outlives its maker is found, with its files, by a driver that knows nothing but
// its state; and what is gone is found no more.
func (h *harness) testAdopt() {
	b := h.box(sandbox.Limits{})
	if err := b.WriteFile(h.ctx, "kept", 0o600, 4, strings.NewReader("kept")); err != nil {
		h.Fatal(err)
	}
	again := h.suite.open(h.T)
	if _, err := again.Leftovers(h.ctx); err != nil {
		h.Error(err)
	}
	keeper := again.Abilities().Keeper
	ids, err := keeper.List(h.ctx)
	if err != nil || !slices.Contains(ids, b.plan.ID) {
		h.Fatalf("%q are listed, without %q: %v", ids, b.plan.ID, err)
	}
	m, plan, err := keeper.Adopt(h.ctx, b.plan.ID)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { h.destroy(m) })
	if diff := cmp.Diff(b.plan, plan); diff != "" {
		h.Errorf("it was made from another plan (-made +adopted):\n%s", diff)
	}
	var kept bytes.Buffer
	if _, err := h.greet(m).ReadFile(h.ctx, "kept", 100, &kept); err != nil || kept.String() != "kept" {
		h.Errorf("%q, %v", kept.String(), err)
	}
	h.destroy(m)
	select {
	case <-b.Dead():
	case <-time.After(time.Minute):
		h.Error("its maker does not notice its end")
	}
	if ids, err := keeper.List(h.ctx); err != nil || slices.Contains(ids, plan.ID) {
		h.Errorf("after its end %q are listed: %v", ids, err)
	}
	if _, _, err := keeper.Adopt(h.ctx, plan.ID); sandbox.AsError(err).Code != sandbox.CodeNotFound {
		h.Errorf("adopting what is gone: %v", err)
	}
}
