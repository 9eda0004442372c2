package runs

import (
	"context"
	"sync/atomic"
	"time"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/pool"
	"pinfold/internal/failpoint"
	"pinfold/sandbox"
)

// end destroys a run's sandbox, or leaves that to the background, and completes
// the result.
func (j *job) end(ctx context.Context, m *pool.Machine, runErr error) error {
	if j.runner.destroysLater && runErr == nil && !j.validates() { // validators take its room
		select {
		case j.runner.late <- struct{}{}: // the peaks are those of the program's end
			j.room.hold()
			j.runner.background.Go(func() {
				defer j.room.letGo()
				<-j.told
				if d := m.Machine.Abilities().Discarder; d != nil {
					d.Discard() // the result is complete
				}
				j.runner.destroyLater(m)
				<-j.runner.late
			})
			return nil
		default: // enough of them wait: this one pays for itself
		}
	}
	start := time.Now()
	j.destroy(ctx, m)
	j.result.Timings.DestroyMS = execution.Milliseconds(time.Since(start))
	j.fillPeaks(m.LastUsage(context.WithoutCancel(ctx)))
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
	j.runner.log.Error("cannot destroy the sandbox of a run in time", "machine", m.Plan.ID, "error", err)
	known := sandbox.AsError(err)
	j.result.Cleanup = &sandbox.Error{
		Code: known.Code, Message: "the sandbox was ended, but something of it is still on the host: " + known.Message,
		Hint: "nothing has to be done: a server goes on until it is gone, and otherwise the next pinfold on this host removes it",
	}
	j.left = append(j.left, m)
}

// destroyLater destroys the machine of a run however often it takes.
func (rn *Runner) destroyLater(m *pool.Machine) {
	if rn.pools.Destroy(m, rn.quit) {
		gone(m)
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
	j.runner.background.Go(func() {
		defer j.room.letGo()
		for _, r := range j.left {
			j.runner.destroyLater(r)
		}
	})
}
