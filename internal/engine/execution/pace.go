package execution

import (
	"context"
	"errors"
	"time"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// How often the counters are read: seldom while nothing is near a limit, the more
// seldom the longer the program runs; often when something is near one.
const (
	slowestReading = 50 * time.Millisecond
	usualReading   = 10 * time.Millisecond
	ageShare       = 4 // of the time that the program runs
	fastestReading = 2 * time.Millisecond
	firstReading   = 5 * time.Millisecond
	slowestLiving  = 250 * time.Millisecond // of sandboxes that stay, while nothing changes
	heldReading    = time.Millisecond       // after the program's end: by then the output of most has ended, too
	lateReading    = 100 * time.Millisecond // after the last one, where the host was too busy for that
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

// calm is the pause of a program of that age that is near no limit, and has so many
// bytes of memory and disk left.
func calm(age time.Duration, left int64) time.Duration {
	full := time.Duration(float64(left) / fastestWriting * float64(time.Second))
	return max(usualReading, min(age/ageShare, full, slowestReading))
}

// near says whether a value has passed half of its limit.
func near(value, limit int64) bool { return value > limit/2 }

// tight says whether a limit is near.
func tight(now driver.Usage, l sandbox.Limits) bool {
	return near(now.MemoryBytes, l.MemoryBytes) || near(now.DiskBytes, l.DiskBytes) || near(now.Inodes, l.Inodes)
}

// LivingPause is the pause until the next reading of a sandbox that stays, by the one
// before and the last two readings: it doubles while nothing changes.
func LivingPause(pause time.Duration, before, now driver.Usage, l sandbox.Limits) time.Duration {
	switch {
	case tight(now, l):
		return fastestReading
	case now.CPUNanos > before.CPUNanos+int64(pause)/10, now.MemoryBytes != before.MemoryBytes, now.Processes != before.Processes:
		return slowestReading
	}
	return min(2*pause, slowestLiving)
}

// Watch reads the machine's counters until the context or the machine ends, or take says
// that it is enough. take gets each reading, with the pause before it, and returns the
// pause until the next one, which is longer on a busy machine. Whatever is sent on soon
// brings the next one near; it may be nil. After a reading that failed comes the same
// pause again.
func (s *Session) Watch(ctx context.Context, soon <-chan struct{}, take func(u driver.Usage, pause time.Duration) (next time.Duration, goOn bool)) {
	pause := firstReading
	timer, due := time.NewTimer(pause), time.Now().Add(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-soon:
			pause = firstReading
		case <-timer.C:
			begun := time.Now()
			u, err := s.Machine.Usage(ctx)
			if err != nil && (ctx.Err() != nil || errors.Is(err, driver.ErrEnded)) {
				return
			}
			next, goOn := pause, true
			if err == nil {
				s.note(u)
				next, goOn = take(u, pause)
			}
			if !goOn {
				return
			}
			pause = paced(next, time.Since(begun), due, begun)
		}
		due = time.Now().Add(pause)
		timer.Reset(pause)
	}
}
