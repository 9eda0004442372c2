package engine

import (
	"context"
	"sync/atomic"
	"time"

	"pinfold/internal/engine/pool"
	"pinfold/internal/failpoint"
	"pinfold/sandbox"
)

// end destroys a run's sandbox, or leaves that to the background, and completes
// the result.
func (j *job) end(ctx context.Context, m *pool.Machine, runErr error) error {
	if j.engine.options.DestroyLater && runErr == nil {
		select {
		case j.engine.late <- struct{}{}: // the peaks are those of the program's end
			j.room.hold()
			j.engine.background.Go(func() {
				defer j.room.letGo()
				<-j.told
				if d := m.Machine.Abilities().Discarder; d != nil {
					d.Discard() // the result is complete
				}
				j.engine.destroyLater(m)
				<-j.engine.late
			})
			return nil
		default: // enough of them wait: this one pays for itself
		}
	}
	start := time.Now()
	j.destroy(ctx, m)
	j.result.Timings.DestroyMS = milliseconds(time.Since(start))
	j.fillPeaks(m.Machine.Usage())
	return runErr
}

// destroy ends a sandbox. What became of the program is known by then, so a
// sandbox that does not end in time does not change it: the result says that it
// is still there, and the background goes on.
func (j *job) destroy(ctx context.Context, m *pool.Machine) {
	err := m.Late() // then its time is over
	if err == nil {
		err = m.Close(ctx)
	}
	if err == nil {
		gone(m)
		return
	}
	j.engine.log.Error("cannot destroy the sandbox of a run in time", "machine", m.Plan.ID, "error", err)
	known := sandbox.AsError(err)
	j.result.Cleanup = &sandbox.Error{
		Code: known.Code, Message: "the sandbox was ended, but something of it is still on the host: " + known.Message,
		Hint: "nothing has to be done: a server goes on until it is gone, and otherwise the next pinfold on this host removes it",
	}
	j.left = append(j.left, m)
}

// destroyLater destroys the machine of a run however often it takes.
func (e *Engine) destroyLater(m *pool.Machine) {
	if e.destroyUntilGone(m) {
		gone(m)
	}
}

// destroyRetry is the pause after a destruction that failed.
const destroyRetry = time.Second

// destroyUntilGone destroys a machine however often it takes, and says whether it is
// gone: not where the engine is closed before. Then it is the next one's, which finds
// it by its name.
func (e *Engine) destroyUntilGone(m *pool.Machine) bool {
	failed := false
	for err := m.Close(context.Background()); err != nil; err = m.Close(context.Background()) {
		e.log.Error("cannot destroy a sandbox; trying again", "machine", m.Plan.ID, "error", err)
		if !failed {
			e.countUndestroyed(1)
		}
		failed = true
		if !e.pause(destroyRetry) {
			return false
		}
	}
	if failed {
		e.countUndestroyed(-1)
	}
	return true
}

// pause says whether the engine is still open afterwards.
func (e *Engine) pause(d time.Duration) bool {
	select {
	case <-e.quit:
		return false
	case <-time.After(d):
		return true
	}
}

// gone says that the machine of a run is no more.
func gone(m *pool.Machine) {
	failpoint.Hit("run.destroyed")
	m.Gone()
}

// room is what admission granted to a run. It is given back when nothing of the run
// is there any more: the run itself, and each sandbox that outlives it, hold it.
type room struct {
	holders atomic.Int32
	give    func()
}

// newRoom returns a room that its maker holds.
func newRoom(give func()) *room {
	r := &room{give: give}
	r.hold()
	return r
}

func (r *room) hold() { r.holders.Add(1) }

func (r *room) letGo() {
	if r.holders.Add(-1) == 0 {
		r.give()
	}
}

// settle lets go of what admission granted, once that is gone which could not be
// destroyed in time.
func (j *job) settle() {
	if len(j.left) == 0 {
		j.room.letGo()
		return
	}
	j.engine.background.Go(func() {
		defer j.room.letGo()
		for _, r := range j.left {
			if !j.engine.pause(destroyRetry) {
				return
			}
			j.engine.destroyLater(r)
		}
	})
}
