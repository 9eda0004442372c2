//go:build linux

package memorylimit

import (
	"sync"
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
