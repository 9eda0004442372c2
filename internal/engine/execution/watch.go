package execution

import (
	"context"
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

// watch ends a program that goes beyond a limit. It reads the machine's
// counters and the captured totals, and closes stop once, for the first reason.
type watch struct {
	session *Session
	limits  sandbox.Limits
	base    driver.Usage // the counters before the program started
	started time.Time
	output  *stdio.Capture

	limit verdict.Judge

	exited <-chan struct{} // closed when the program has ended, while its output may be held
	before driver.Usage    // the last counters before that
	soon   *driver.Usage   // those soon after it; nil: nobody held it so long

	mu     sync.Mutex
	reason *verdict.Trigger
	stop   chan struct{} // closed when there is a reason

	deadline *time.Timer
	life     context.Context // ends by end
	quit     context.CancelFunc
	readers  sync.WaitGroup
}

// startWatch begins to watch. It must be ended through end.
func (s *Session) startWatch(l sandbox.Limits, base driver.Usage, exited <-chan struct{}, output *stdio.Capture) *watch {
	w := &watch{
		session: s, limits: l, base: base, started: time.Now(), output: output, exited: exited, limit: verdict.Judge{Limits: l},
		stop: make(chan struct{}),
	}
	w.life, w.quit = context.WithCancel(context.Background())
	w.deadline = time.AfterFunc(time.Duration(l.WallTimeMS)*time.Millisecond, func() {
		elapsed := time.Since(w.started).Milliseconds()
		w.fire(&verdict.Trigger{Kind: sandbox.CauseWallTime, Observed: elapsed, Evidence: fmt.Sprintf("still running after %dms", elapsed)})
	})
	w.readers.Go(func() { s.Watch(w.life, nil, w.take) })
	w.readers.Go(w.readSoonAfterEnd)
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
	w.deadline.Stop()
	w.quit()
	w.readers.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason
}

// leftFlood says whether what holds the output is a flood of forks, by the last reading.
// It is for after end. On a host so busy that there was no reading soon after the
// program's end, the last one has to do for that, and there is one more.
func (w *watch) leftFlood(ctx context.Context, last driver.Usage) bool {
	if w.soon == nil {
		soon := last
		w.soon = &soon
		time.Sleep(lateReading)
		u, err := w.session.Machine.Usage(ctx)
		if err != nil {
			return false
		}
		last = verdict.Since(u, w.base)
	}
	return verdict.LeftFlood(w.before, *w.soon, last, w.limits.Processes)
}

// readSoonAfterEnd takes a reading when the program has ended and its output is still
// held a moment later.
func (w *watch) readSoonAfterEnd() {
	select {
	case <-w.exited:
	case <-w.life.Done():
		return
	}
	select {
	case <-time.After(heldReading):
		if u, err := w.session.Machine.Usage(w.life); err == nil {
			u = verdict.Since(u, w.base)
			w.soon = &u
		}
	case <-w.life.Done():
	}
}

// take takes one reading. It is called from one goroutine.
func (w *watch) take(u driver.Usage, _ time.Duration) (pause time.Duration, goOn bool) {
	u = verdict.Since(u, w.base)
	select {
	case <-w.exited:
	default:
		w.before = u
	}
	if t := w.judge(u); t != nil {
		w.fire(t)
		return 0, false
	}
	return w.pause(u), true
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
	return w.limit.Flood(time.Now(), u, w.session.Machine.Abilities().TaskMeter)
}

// pause says when to read again: by the nearest limit's distance.
func (w *watch) pause(u driver.Usage) time.Duration {
	next := calm(time.Since(w.started), min(w.limits.MemoryBytes-u.MemoryBytes, w.limits.DiskBytes-u.DiskBytes))
	cpuLeft := time.Duration(w.limits.CPUTimeMS)*time.Millisecond - time.Duration(u.CPUNanos)
	if w.limits.CPUs > 0 {
		next = min(next, time.Duration(float64(cpuLeft)/max(1, w.limits.CPUs)))
	}
	if tight(u, w.limits) {
		next = fastestReading
	}
	return max(fastestReading, next)
}
