//go:build linux

package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/unixpair"
	"pinfold/internal/probe"
	"pinfold/sandbox"
)

// idleDescriptors is what an idle sandbox may cost of ours.
const idleDescriptors = probe.Descriptors

// withOpenFiles calls f while this process may have that many descriptors at most.
func withOpenFiles(t *testing.T, n uint64, f func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// rest sweeps until nobody's counters are open: each machine's own clock stands then, too.
func rest(d *Driver) {
	for d.host.meters.open() > 0 {
		d.host.meters.sweep(false)
	}
}

// open counts the machines whose counters are.
func (o *openMeters) open() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all)
}

// usageOf reads the counters of a machine or a zygote; of a machine that has ended, the last.
func usageOf(t *testing.T, m interface {
	Usage(context.Context) (driver.Usage, error)
},
) driver.Usage {
	t.Helper()
	u, err := m.Usage(t.Context())
	if dead, ok := m.(interface{ Death() driver.Death }); ok && errors.Is(err, driver.ErrEnded) {
		return dead.Death().Usage
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func beginRun(t *testing.T, m *machine) {
	t.Helper()
	if _, err := m.BeginRun(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// sweptByHand returns a driver that closes no counters by itself.
func sweptByHand(t *testing.T) *Driver {
	t.Helper()
	d := newDriver(t, filepath.Join(t.TempDir(), "state"))
	h, err := d.prepare()
	if err != nil {
		t.Fatal(err)
	}
	h.meters.pause = time.Hour
	return d
}

// An idle sandbox holds three descriptors of this process, with its agent greeted.
// Its counters are open only while somebody reads them.
func TestIdleMachinesHoldThreeDescriptors(t *testing.T) {
	d := sweptByHand(t)
	const n = 8
	var all []*machine
	live := func() {
		m := made(t, d, fmt.Sprintf("idle-%d", len(all)))
		all = append(all, m)
		greeted(t, m)
	}
	live() // what is opened once for all
	idle := func() int {
		rest(d)
		return openDescriptors(t)
	}
	before := idle()
	for range n {
		live()
	}
	fresh := openDescriptors(t)
	got := idle() - before
	for until := time.Now().Add(10 * time.Second); got > n*idleDescriptors && time.Now().Before(until); got = idle() - before {
		time.Sleep(10 * time.Millisecond) // what made them may still be closing files
	}
	if got > n*idleDescriptors || idleDescriptors > 3 {
		t.Errorf("%d idle sandboxes hold %d descriptors, want %d each at most", n, got, idleDescriptors)
	}
	rested := openDescriptors(t)
	for _, m := range all {
		if u := usageOf(t, m); u.CPUNanos == 0 && d.host.can("cpuacct") {
			t.Errorf("after a rest the counters say %+v", u)
		}
	}
	if again := openDescriptors(t); d.host.hierarchy.Usable() && again <= rested && fresh > rested {
		t.Errorf("%d descriptors while they are read, %d at rest: the counters were opened for each reading", again, rested)
	}
	if got := idle(); got > rested {
		t.Errorf("%d descriptors after a second rest, %d after the first", got, rested)
	}
}

// The mark of a run's memory stays open while the run goes on, however seldom its
// counters are read: on cgroup version 2 the kernel keeps it for the open file.
func TestPeakOutlivesARest(t *testing.T) {
	d := sweptByHand(t)
	m := made(t, d, "peak-rest")
	before := openDescriptors(t)
	beginRun(t, m)
	rest(d)
	if got := openDescriptors(t); d.host.hierarchy.Usable() && got >= before {
		t.Errorf("%d descriptors at rest, %d before", got, before)
	}
	g := m.cgroup
	if g == nil {
		return // no mark without a cgroup
	}
	if peak, err := g.PeakSince(); err != nil || peak < 0 {
		t.Errorf("the mark is %d, %v", peak, err)
	}
}

// Counters that nobody reads are closed by themselves.
func TestCountersAreClosedByThemselves(t *testing.T) {
	d := newDriver(t, filepath.Join(t.TempDir(), "state"))
	made(t, d, "rest")
	meters := &d.host.meters
	if d.host.hierarchy.Usable() && meters.open() != 1 {
		t.Errorf("%d machines have open counters, want this one", meters.open())
	}
	for meters.open() > 0 {
		time.Sleep(restAfter / 10) // the test's own timeout bounds it
	}
}

// Whichever descriptor is the one for which there is no room, the answer is that
// there are none, with what helps; and nothing is left of the attempt.
func TestEachDescriptorMayBeTheLast(t *testing.T) {
	d := sweptByHand(t)
	plan := planFor(t, d, "last")
	m, err := d.Create(t.Context(), plan)
	if err == nil {
		err = m.Destroy(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	before := openDescriptors(t)
	free := 0
	for made := false; !made; free++ {
		m := d.newMachine(plan, d.host)
		var err, destroyErr error
		withOpenFiles(t, uint64(before+free), func() { //nolint:gosec // a small number
			err = m.build(t.Context(), d.host.lock.Group(fmt.Sprintf("last-%d", free)))
			destroyErr = m.Destroy(t.Context())
		})
		if destroyErr != nil {
			t.Fatalf("with %d descriptors free: %v", free, destroyErr)
		}
		if made = err == nil; !made {
			if e := sandbox.AsError(createError(err)); e.Code != sandbox.CodeResourceUnavailable || e.Hint != failure.HintDescriptors {
				t.Errorf("with %d descriptors free: %s: %s (%s)", free, e.Code, e.Message, e.Hint)
			}
		}
		if free > 100 {
			t.Fatal("none can be made with 100 descriptors")
		}
	}
	if free < 5 {
		t.Errorf("made with %d descriptors: not one attempt failed in the middle", free)
	}
	if got := openDescriptors(t); got > before {
		t.Errorf("%d descriptors after the attempts, %d before", got, before)
	}
}

// The kernel cuts off descriptors for which there is no room in our table, and
// says no more than that the message was cut.
func TestDescriptorsThatAreCutOff(t *testing.T) {
	ours, theirs, err := unixpair.New(unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	if err := unix.Sendmsg(int(theirs.Fd()), []byte{1}, unix.UnixRights(0, 1), nil, 0); err != nil {
		t.Fatal(err)
	}
	withOpenFiles(t, 3, func() { _, err = ours.ReceiveDescriptors() })
	if e := sandbox.AsError(createError(err)); e == nil || e.Code != sandbox.CodeResourceUnavailable || e.Hint != failure.HintDescriptors {
		t.Errorf("%+v", e)
	}
}

// A machine whose counters rest is ended and found dead as any other: when it dies by
// itself, when it is destroyed, and when there is no descriptor to wake it with.
func TestMachinesThatEndAtRest(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, m *machine){
		"dies": func(t *testing.T, m *machine) {
			if err := unix.Kill(m.child.PID, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-m.Dead() // the test's own timeout bounds it
			if d := m.Death(); d.Kind != driver.DeathAgent {
				t.Errorf("%+v", d)
			}
		},
		"destroyed": func(*testing.T, *machine) {},
		"no descriptors": func(t *testing.T, m *machine) {
			withOpenFiles(t, 3, func() {
				_ = m.child.Kill()
				<-m.Dead()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := sweptByHand(t)
			m := made(t, d, "end-rest")
			greeted(t, m)
			before := openDescriptors(t)
			rest(d)
			// Who waits for the first process may not have begun yet: then it rests the next time.
			for until := time.Now().Add(10 * time.Second); m.child.Pidfd >= 0 && time.Now().Before(until); time.Sleep(time.Millisecond) {
				usageOf(t, m)
				rest(d)
			}
			if after := openDescriptors(t); after >= before {
				t.Errorf("%d descriptors at rest, %d before", after, before)
			}
			if m.child.Pidfd >= 0 {
				t.Error("the first process does not rest")
			}
			end(t, m)
			if err := m.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			<-m.Dead()
		})
	}
}

// A connection that is written to without waiting tells the time as one that waits.
func TestTryWriteTellsTheTime(t *testing.T) {
	d := sweptByHand(t)
	m := made(t, d, "try-write")
	if m.inside == nil {
		return // nothing to tell here
	}
	conn, err := m.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(){
		"Write":    func() { _, _ = conn.Write(nil) },
		"TryWrite": func() { conn.(guest.TryWriter).TryWrite(nil) },
	} {
		m.inside.shown = time.Time{}
		if write(); m.inside.shown.IsZero() {
			t.Errorf("%s tells no time", name)
		}
	}
}

// The clock of a machine starts when something is asked of it, and stands again soon
// after nothing goes on any more; and it ends with the machine.
func TestClockStandsWhileNothingGoesOn(t *testing.T) {
	d := sweptByHand(t)
	m := made(t, d, "clock")
	if m.cgroup == nil || !d.host.can(cgroup.Memory) {
		t.Skip("there is no memory limit to move")
	}
	runs := func() bool {
		m.meter.mu.Lock()
		defer m.meter.mu.Unlock()
		return m.meter.clock.Runs()
	}
	if runs() {
		t.Error("it runs before anything is asked of the machine")
	}
	for range 2 {
		beginRun(t, m)
		if !runs() {
			t.Error("it stands when a program begins")
		}
		for runs() {
			time.Sleep(time.Millisecond) // the test's own timeout bounds it
		}
	}
	beginRun(t, m)
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if runs() {
		t.Error("it outlives its machine")
	}
}
