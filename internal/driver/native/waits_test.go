//go:build linux

package native

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	m.Usage()
	m.inside.shown = time.Time{}
	m.BeginRun()
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
	for until := time.Now().Add(destroyPatience); ; time.Sleep(time.Millisecond) {
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
