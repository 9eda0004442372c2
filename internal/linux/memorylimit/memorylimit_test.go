//go:build linux

package memorylimit

import (
	"sync"
	"syscall"
	"testing"
	"time"
)

const mib = 1 << 20

func TestNext(t *testing.T) {
	limits := Limits{Memory: 256 * mib, Disk: 512 * mib}
	for _, c := range []struct {
		what            string
		now, disk, want int64 // in MiB
	}{
		{"nothing is written", 256, 0, 256},
		{"a little: it runs ahead by as much", 256, 10, 276},
		{"much: it runs ahead by so much at most", 256, 100, 256 + 100 + 64},
		{"a full disk: both limits together", 256, 512, 256 + 512},
		{"a little less: it stays", 256 + 100 + 64, 50, 256 + 100 + 64},
		{"nothing any more: it is lowered late", 256 + 512, 0, 256 + 64},
	} {
		if got := limits.Next(c.now*mib, c.disk*mib); got != c.want*mib {
			t.Errorf("%s: %d MiB, not %d", c.what, got/mib, c.want)
		}
	}
}

func TestLate(t *testing.T) {
	limits := Limits{Memory: 32 * mib, Disk: 64 * mib}
	for _, c := range []struct {
		given, disk int64 // in MiB
		late        bool
	}{
		{0, 0, false},
		{0, 10, true}, // it never followed
		{32 + 20, 10, false},
		{32 + 20, 20, false},
		{32 + 20, 21, true},
		{32 + 64, 64, false}, // both limits together: there is nothing to follow
	} {
		d := Disk{limit: c.given * mib}
		if d.Late(limits, c.disk*mib) != c.late {
			t.Errorf("%d MiB given, %d MiB on the disk: late is %v", c.given, c.disk, !c.late)
		}
	}
}

func TestDisk(t *testing.T) {
	empty := syscall.Statfs_t{Bsize: 4096, Blocks: 1000, Bfree: 900, Files: 100, Ffree: 90, Type: 7}
	now, gone := empty, error(nil)
	look := func(st *syscall.Statfs_t) error {
		*st = now
		return gone
	}
	var d Disk
	if _, ok := d.Look(); ok {
		t.Error("a disk that has not begun is looked at")
	}
	if err := d.Begin(look, 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		bfree, ffree uint64
		want         Held
	}{
		{900, 90, Held{}},
		{890, 89, Held{Bytes: 10 * 4096, Inodes: 1}},
		{950, 95, Held{}}, // emptier than empty: nothing
		{0, 0, Held{Bytes: 900 * 4096, Inodes: 90, Full: true, InodesFull: true}},
	} {
		now.Bfree, now.Ffree = c.bfree, c.ffree
		if got, ok := d.Look(); !ok || got != c.want {
			t.Errorf("%d blocks and %d inodes are free: %+v, %v", c.bfree, c.ffree, got, ok)
		}
	}
	now.Type = 8
	if _, ok := d.Look(); ok {
		t.Error("another file system that lies there now is taken for the disk")
	}
	now, gone = empty, syscall.EBADF
	if _, ok := d.Look(); ok {
		t.Error("a disk that is gone is looked at")
	}
	gone = nil
	if err := d.Begin(look, 4); err != nil { // taken over: four inodes are not the guest's
		t.Fatal(err)
	}
	if got, _ := d.Look(); got.Bytes != 100*4096 || got.Inodes != 6 {
		t.Errorf("a disk in use holds %+v", got)
	}
}

// A limit that follows late costs the program its life, so a growing disk is looked at as
// soon as on an idle machine; for CPU time alone a late tick makes the next one later.
func TestLateTicks(t *testing.T) {
	for _, grows := range []int64{0, 4 * mib} {
		var c Clock
		c.Init(256*mib, func() {})
		c.Follow(time.Now(), 0, 0)
		c.Start()
		late := time.Now().Add(300 * time.Millisecond)
		c.due = late.Add(-200 * time.Millisecond)
		c.Follow(late, grows, int64(time.Hour))
		if grows > 0 != (c.pause < latestTick) {
			t.Errorf("the disk grew by %d: the next tick comes after %v", grows, c.pause)
		}
		c.End()
	}
}

// owner is a machine that counts its readings.
type owner struct {
	sync.Mutex
	clock     Clock
	readings  int
	disk, cpu int64
	grows     int64 // with each reading
}

func (o *owner) read() {
	begun := time.Now()
	o.readings++
	o.disk += o.grows
	o.clock.Follow(begun, o.disk, o.cpu)
}

func (o *owner) tick() {
	o.Lock()
	defer o.Unlock()
	if o.clock.Due() {
		o.read()
	}
}

// await waits until something holds, under the lock; the test's own timeout bounds it.
func (o *owner) await(good func() bool) {
	for {
		o.Lock()
		ok := good()
		o.Unlock()
		if ok {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestClock(t *testing.T) {
	o := &owner{}
	o.clock.Init(256*mib, o.tick)
	o.Lock()
	o.read()
	if o.clock.Runs() {
		t.Error("it runs before anything is asked of the machine")
	}
	o.clock.Start()
	o.grows = 4 * mib
	o.Unlock()
	o.await(func() bool { return o.readings > 5 })
	o.Lock()
	o.grows = 0
	o.Unlock()
	o.await(func() bool { return !o.clock.Runs() }) // nothing goes on

	o.Lock()
	if o.clock.Sent(settleEvery/2) || !o.clock.Runs() {
		t.Error("it stands when something is asked of the machine, or a reading is due at once")
	}
	if !o.clock.Sent(settleEvery / 2) {
		t.Error("much was sent, and no reading is due")
	}
	o.clock.Stop()
	if o.clock.Runs() || o.clock.Due() {
		t.Error("it runs when it was stopped")
	}
	o.clock.Start()
	o.clock.End()
	o.clock.Start()
	if o.clock.Runs() {
		t.Error("it runs when its machine has ended")
	}
	o.Unlock()
}

func TestZeroClockNeverStarts(t *testing.T) {
	var c Clock
	c.Start()
	c.Follow(time.Now(), 0, 0)
	c.Follow(time.Now(), 100*mib, 0)
	if c.Runs() || c.Sent(settleEvery) {
		t.Error("a clock runs that nobody has made")
	}
}
