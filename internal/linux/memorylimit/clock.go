//go:build linux

package memorylimit

import "time"

const (
	fastestTick = 2 * time.Millisecond
	firstTick   = 10 * time.Millisecond
	workingTick = 60 * time.Millisecond  // while the guest uses CPU time: longer than a watch waits
	slowestTick = 320 * time.Millisecond // then the clock stands
	workShare   = 100                    // a guest works that has this share of one processor
	// A program fills its memory limit at this rate at most, in bytes per second.
	fastestWriting = 4 << 30
	// Reading takes a fifth of the time at most. On a machine so busy that ticks come late
	// the next comes this many times as late, unless the disk grew: the programs need the
	// time more.
	readingShare  = 4
	latenessShare = 8
	latestTick    = 250 * time.Millisecond
)

// settleEvery is how many bytes are sent to the agent between two readings: files that
// the host writes grow the disk, too, and faster than a clock ticks.
const settleEvery = 2 << 20

// Clock is when a machine reads its own counters. It starts when something is asked of the
// machine, and when a reading finds that its disk grew or that it used CPU time. It is near
// while the disk grows, and gets slower while the guest does nothing, until it stands: an
// idle machine costs no time. Every reading, whoever asked for it, sets it anew (Follow);
// beside a watch it hardly ever gets its turn.
//
// What it cannot see is a guest that nobody watches, sleeps, and then at once writes more
// than its memory limit.
//
// One lock of the owner's guards all its methods. The zero Clock never starts.
type Clock struct {
	tick  func()
	timer *time.Timer   // nil before the first start
	pause time.Duration // before the next tick; 0: it stands
	due   time.Time
	busy  bool
	fills time.Duration // what the fastest program takes to fill its memory
	at    time.Time     // of the last reading, and what it found
	disk  int64
	cpu   int64
	sent  int // bytes to the agent since then
}

// Init says what a tick calls, on a goroutine of its own and without the lock: that takes
// the lock, and a reading when the clock is Due. memory is the machine's limit, in bytes.
func (c *Clock) Init(memory int64, tick func()) {
	*c = Clock{tick: tick, fills: time.Duration(float64(memory) / fastestWriting * float64(time.Second))}
}

// Start has the next tick come soon.
func (c *Clock) Start() {
	if c.pause == 0 || c.pause > firstTick {
		c.set(firstTick)
	}
}

// Stop has it stand; a tick under way finds that it is not Due.
func (c *Clock) Stop() {
	if c.pause > 0 {
		c.pause = 0
		c.timer.Stop()
	}
}

// End has it stand for good.
func (c *Clock) End() {
	c.Stop()
	c.tick = nil
}

// Runs says whether a tick will come.
func (c *Clock) Runs() bool { return c.pause > 0 }

// Busy says whether the last reading found that the guest works.
func (c *Clock) Busy() bool { return c.busy }

// Due says whether a tick that has come is to take a reading: somebody may have been faster.
func (c *Clock) Due() bool { return c.pause > 0 && !time.Now().Before(c.due) }

// Sent says that so many bytes are being sent to the agent. The answer is whether to take a
// reading at once.
func (c *Clock) Sent(bytes int) bool {
	c.Start()
	c.sent += bytes
	return c.tick != nil && c.sent >= settleEvery
}

// Follow follows a reading that began at a moment: it says when the next one is due at the
// latest. disk is in bytes, cpu in nanoseconds since the machine's start.
func (c *Clock) Follow(begun time.Time, disk, cpu int64) {
	now := time.Now()
	known := !c.at.IsZero() // else it is what making the machine took
	grew := known && disk > c.disk+step
	worked := known && (cpu-c.cpu)*workShare > int64(now.Sub(c.at))
	c.at, c.disk, c.cpu, c.sent, c.busy = now, disk, cpu, 0, grew || worked
	var pause time.Duration
	switch {
	case grew:
		pause = fastestTick
	case worked:
		pause = min(max(2*c.pause, firstTick), max(c.fills, firstTick), workingTick)
	case c.pause == 0:
		return
	case c.pause >= slowestTick:
		c.Stop()
		return
	default:
		pause = 2 * c.pause
	}
	if c.pause > 0 && !grew { // a limit that follows late costs the program its life
		pause = max(pause, min(latenessShare*begun.Sub(c.due), latestTick))
	}
	c.set(max(pause, readingShare*now.Sub(begun)))
}

func (c *Clock) set(pause time.Duration) {
	if c.tick == nil {
		return
	}
	c.pause, c.due = pause, time.Now().Add(pause)
	if c.timer == nil {
		c.timer = time.AfterFunc(pause, c.tick)
		return
	}
	c.timer.Reset(pause)
}
