package engine

import (
	"fmt"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/stdio"
	"pinfold/internal/engine/verdict"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// A program may write this many times limits.output_bytes to a stream before it
// is ended for it: one that merely prints too much gets to finish, one that
// floods does not. Small limits get at least floodMinimum.
const (
	floodFactor  = 16
	floodMinimum = 16 << 20
)

// How often the counters are read: seldom while nothing is near a limit, the more
// seldom the longer the program runs; often when something is near one.
const (
	slowestReading = 50 * time.Millisecond
	usualReading   = 10 * time.Millisecond
	ageShare       = 4 // of the time that the program runs
	fastestReading = 2 * time.Millisecond
	firstReading   = 5 * time.Millisecond
	heldReading    = time.Millisecond // after the program's end: by then the output of most has ended, too
	// Reading takes no more than a fifth of the time; but where one took seconds since
	// others had the processors, the next must not wait for four times as long.
	readingShare   = 4
	longestReading = time.Second
	// Where the machine is so busy that readings come late, the next one comes
	// this many times as late: a hundred watches must leave the programs the time
	// that they need to get near a limit. The kernel keeps the limits meanwhile.
	latenessShare = 8
	latestReading = 250 * time.Millisecond
)

// paced is the pause after a reading that was due at a moment and has just been
// taken in that time.
func paced(pause, took time.Duration, due, begun time.Time) time.Duration {
	late := min(latenessShare*begun.Sub(due), latestReading)
	return max(pause, min(readingShare*took, longestReading), late)
}

// fastestWriting is how many bytes a program may fill in a second.
const fastestWriting = 4 << 30

// A disk that has grown by this many bytes since the last reading is growing.
const diskStep = 1 << 20

// watch ends a program that goes beyond a limit. It reads the machine's
// counters and the captured totals, and calls stop once, for the first reason.
type watch struct {
	machine driver.Machine
	limits  sandbox.Limits
	base    driver.Usage // the counters before the program started
	started time.Time
	output  *stdio.Capture
	disk    int64 // bytes on the disk at the last reading

	limit verdict.Judge

	exited <-chan struct{} // closed when the program has ended, while its output may be held
	before driver.Usage    // the last counters before that
	soon   *driver.Usage   // those soon after it; nil: nobody held it so long

	mu     sync.Mutex
	reason *verdict.Trigger
	stop   chan struct{} // closed when there is a reason
	quit   chan struct{}
	done   chan struct{}
}

// startWatch begins to watch. quit must be closed through end.
func startWatch(m driver.Machine, l sandbox.Limits, base driver.Usage, exited <-chan struct{}, output *stdio.Capture) *watch {
	w := &watch{
		machine: m, limits: l, base: base, started: time.Now(), output: output, exited: exited, limit: verdict.Judge{Limits: l},
		stop: make(chan struct{}), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go w.loop()
	return w
}

// fire records the first reason to end the program.
func (w *watch) fire(t *verdict.Trigger) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reason == nil {
		w.reason = t
		close(w.stop)
	}
}

// end stops watching and returns the reason, if there was one.
func (w *watch) end() *verdict.Trigger {
	close(w.quit)
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason
}

// leftFlood says whether what holds the output is a flood of forks, by the last reading.
// It is for after end.
func (w *watch) leftFlood(last driver.Usage) bool {
	return w.soon != nil && verdict.LeftFlood(w.before, *w.soon, last, w.limits.Processes)
}

func (w *watch) loop() {
	defer close(w.done)
	wall := time.Duration(w.limits.WallTimeMS) * time.Millisecond
	deadline := time.NewTimer(wall)
	defer deadline.Stop()
	tick, due := time.NewTimer(firstReading), time.Now().Add(firstReading)
	defer tick.Stop()
	exited := w.exited
	var held <-chan time.Time
	for {
		select {
		case <-exited:
			exited, held = nil, time.After(heldReading)
		case <-held:
			u := verdict.Since(w.machine.Usage(), w.base)
			w.soon = &u
		case <-w.quit:
			return
		case <-w.stop: // fired by somebody else
			return
		case <-deadline.C:
			elapsed := time.Since(w.started).Milliseconds()
			w.fire(&verdict.Trigger{Kind: sandbox.CauseWallTime, Observed: elapsed, Evidence: fmt.Sprintf("still running after %dms", elapsed)})
			return
		case <-tick.C:
			begun := time.Now()
			u := verdict.Since(w.machine.Usage(), w.base)
			if exited != nil {
				w.before = u
			}
			if t := w.judge(u); t != nil {
				w.fire(t)
				return
			}
			pause := paced(w.pause(u), time.Since(begun), due, begun)
			due = time.Now().Add(pause)
			tick.Reset(pause)
		}
	}
}

// judge says whether one reading is reason to end the program.
func (w *watch) judge(u driver.Usage) *verdict.Trigger {
	if t := w.limit.Beyond(u); t != nil {
		return t
	}
	for _, stream := range []uint8{wire.Stdout, wire.Stderr} {
		if total := w.output.Total(stream); total > max(floodMinimum, floodFactor*w.limits.OutputBytes) {
			return &verdict.Trigger{Kind: sandbox.CauseOutput, Observed: total, Evidence: fmt.Sprintf("%d bytes written to one stream, without end in sight", total)}
		}
	}
	return w.limit.Flood(time.Now(), u)
}

// pause says when to read again: by the nearest limit's distance.
func (w *watch) pause(u driver.Usage) time.Duration {
	next := calm(time.Since(w.started), min(w.limits.MemoryBytes-u.MemoryBytes, w.limits.DiskBytes-u.DiskBytes))
	cpuLeft := time.Duration(w.limits.CPUTimeMS)*time.Millisecond - time.Duration(u.CPUNanos)
	if w.limits.CPUs > 0 {
		next = min(next, time.Duration(float64(cpuLeft)/max(1, w.limits.CPUs)))
	}
	// A growing disk moves the memory limit (driver.Machine.Usage), which must
	// not lag behind.
	growing := u.DiskBytes > w.disk+diskStep
	w.disk = u.DiskBytes
	if growing || near(u.MemoryBytes, w.limits.MemoryBytes) || near(u.DiskBytes, w.limits.DiskBytes) || near(u.Inodes, w.limits.Inodes) {
		next = fastestReading
	}
	return max(fastestReading, next)
}

// calm is the pause of a program of that age that is near no limit, and has so many
// bytes of memory and disk left.
func calm(age time.Duration, left int64) time.Duration {
	full := time.Duration(float64(left) / fastestWriting * float64(time.Second))
	return max(usualReading, min(age/ageShare, full, slowestReading))
}

// near says whether a value has passed half of its limit.
func near(value, limit int64) bool { return value > limit/2 }
