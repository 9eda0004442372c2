//go:build linux

package native

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/test/freezer"
)

// leaseBreakTime is how long the kernel lets an open wait for the end of a lease.
const leaseBreakTime = 45 * time.Second

// Whose files the sandbox's /proc consists of may hold leases on them. Nothing of the
// host's waits for that: here the test itself holds them.
func TestLeasesAreNotWaitedFor(t *testing.T) {
	d := sweptByHand(t)
	m := made(t, d, "leases")
	live := m.inside.live(0, 0, 0)
	for _, f := range live {
		fd, err := m.meter.openBelow(f.Path, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
			t.Fatalf("control: no lease on %s: %v", f.Path, err)
		}
		_, err = unix.Openat2(m.meter.root, rel(f.Path), &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_NONBLOCK | unix.O_CLOEXEC})
		if !errors.Is(err, unix.EWOULDBLOCK) {
			t.Fatalf("control: who opens %s for writing need not wait: %v", f.Path, err)
		}
	}
	if len(live) < 2 || live[0].Path == live[1].Path {
		t.Fatalf("control: only %d files change", len(live))
	}
	begin := time.Now()
	m.inside.shown = time.Time{}
	usageOf(t, m)
	m.inside.shown = time.Time{}
	beginRun(t, m)
	if took := time.Since(begin); took > leaseBreakTime/2 || m.inside.shown.IsZero() {
		t.Errorf("the readings took %v", took)
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// However long a reading takes, the end of a sandbox does not wait for it.
func TestKillsBeforeReadingsEnd(t *testing.T) {
	d := sweptByHand(t)
	m := made(t, d, "slow-reading")
	m.meter.mu.Lock() // a reading
	destroyed := make(chan error, 1)
	go func() { destroyed <- m.Destroy(t.Context()) }()
	for until := time.Now().Add(destroyTimeout); ; time.Sleep(time.Millisecond) {
		if unix.Kill(m.child.PID, 0) != nil {
			break
		}
		if time.Now().After(until) {
			t.Error("the sandbox's first process lives on")
			break
		}
	}
	select {
	case <-m.dead:
		t.Error("control: the end needs no last reading")
	default:
	}
	m.meter.mu.Unlock()
	if err := <-destroyed; err != nil {
		t.Error(err)
	}
}

// A sandbox that takes long to end may be swept meanwhile, since nobody reads its
// counters any more. Its end is noticed all the same.
func TestEndsThatTakeLongAreNoticed(t *testing.T) {
	for name, end := range map[string]func(m *machine, done chan<- error){
		"destroyed": func(m *machine, done chan<- error) { done <- m.Destroy(t.Context()) },
		"its connection ends": func(m *machine, done chan<- error) {
			m.conn.Ended()
			err := unix.Kill(m.child.PID, unix.SIGKILL)
			<-m.Dead()
			done <- err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := sweptByHand(t)
			m := made(t, d, "slow-end")
			g := greeted(t, m)
			thaw := freezer.Freeze(t, m.child.PID)
			_ = g.Close() // an agent that is killed closes its end at once, and once only
			done := make(chan error, 1)
			go end(m, done)
			for !killed(t, m.child.PID) {
				time.Sleep(time.Millisecond)
			}
			_, _ = m.Usage(t.Context()) // its connection may have ended
			d.host.meters.sweep(true)
			thaw()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(2 * destroyTimeout):
				t.Error("nobody notices its end")
			}
		})
	}
}

// killed says whether SIGKILL waits for a process.
func killed(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nShdPnd:\t")
	pending, err := strconv.ParseUint(rest[:16], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pending>>(unix.SIGKILL-1)&1 == 1
}
