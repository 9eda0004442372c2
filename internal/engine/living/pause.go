package living

import (
	"context"
	"fmt"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/admission"
	"pinfold/sandbox"
)

// # Paused sandboxes
//
// While a sandbox is paused, nothing in it runs, its agent included, and whatever is asked
// of it is refused at once. It keeps its memory, its files and its room at the gate. Its
// time to live goes on: somebody pays for what it holds. Its idle time stands, and so does
// the wall time of its processes.

// pauseTimeout bounds how long a driver may take to pause or resume a machine.
const pauseTimeout = 10 * time.Second

// Pause has nothing in the sandbox run any more until Resume. One that is paused stays so.
// The error is of code conflict while operations are under way, which would stand still
// with it, and of code requirement_unmet where the driver cannot do it.
func (s *Sandbox) Pause(ctx context.Context) (sandbox.Info, error) {
	return s.change(ctx, sandbox.StatePaused, func(ctx context.Context, p driver.Pauser) error {
		s.mu.Lock()
		var err error
		switch {
		case s.info.State != sandbox.StateRunning:
			err = s.notRunning()
		case s.asking > 0:
			err = (&sandbox.Error{Code: sandbox.CodeConflict, Message: fmt.Sprintf("%d operations of sandbox %s are under way, which would stand still with it", s.asking, s.info.ID)}).
				WithHint("wait until files are transferred, connections to its ports are closed and its template says that it is ready, and pause it then")
		default:
			s.enter(sandbox.StatePaused) // from here on nothing begins
			for _, p := range s.processes {
				p.wall.stop()
			}
			s.timer.Reset(s.untilEnd(time.Now()))
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
		err = p.Pause(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case s.info.State != sandbox.StatePaused: // it is ending meanwhile
			return s.notRunning()
		case err != nil:
			s.goOn()
		}
		return err
	})
}

// Resume has what is in a paused sandbox go on. One that runs goes on running.
func (s *Sandbox) Resume(ctx context.Context) (sandbox.Info, error) {
	return s.change(ctx, sandbox.StateRunning, func(ctx context.Context, p driver.Pauser) error {
		if err := s.refused(sandbox.StatePaused); err != nil {
			return err
		}
		if err := p.Resume(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.info.State != sandbox.StatePaused {
			return s.notRunning()
		}
		s.goOn()
		return nil
	})
}

// goOn has a paused sandbox run again, unless it is ending. The lock is held.
func (s *Sandbox) goOn() {
	if s.info.State != sandbox.StatePaused {
		return
	}
	s.enter(sandbox.StateRunning)
	s.used = time.Now()
	for _, p := range s.processes {
		if p.running() {
			p.wall.start()
		}
	}
	s.timer.Reset(s.untilEnd(s.used))
	s.watch()
}

// change brings the sandbox into a state in which it is not yet, one caller after the
// other. That goes on when the caller goes away: half of it helps nobody.
func (s *Sandbox) change(ctx context.Context, to sandbox.State, how func(context.Context, driver.Pauser) error) (sandbox.Info, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	info, left := s.describe(), s.left
	s.mu.Unlock()
	switch {
	case left:
		return info, admission.ShuttingDown()
	case info.State == to:
		return info, nil
	case info.State == sandbox.StateCreating:
		s.mu.Lock()
		defer s.mu.Unlock()
		return info, s.notRunning()
	}
	pauser := s.machine.Machine.Abilities().Pauser
	if pauser == nil {
		return info, s.cannotPause()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseTimeout)
	defer cancel()
	if err := how(ctx, pauser); err != nil {
		return info, sandbox.AsError(err)
	}
	info = s.Info()
	s.save(info)
	return info, nil
}

// refused is why the sandbox is not in a state; nil: it is.
func (s *Sandbox) refused(unless sandbox.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info.State == unless {
		return nil
	}
	return s.notRunning()
}

// cannotPause names the drivers that can.
func (s *Sandbox) cannotPause() error {
	own := s.info.Isolation.Driver
	e := &sandbox.Error{Code: sandbox.CodeRequirementUnmet, Message: fmt.Sprintf("this host has nothing with which sandboxes of the %s driver can be paused", own)}
	for _, d := range s.manager.drivers {
		if d.Name() == own && !d.Abilities().Pauses {
			e.Message = fmt.Sprintf("sandboxes of the %s driver cannot be paused", own)
		}
	}
	for _, d := range s.manager.drivers {
		if d.Name() != own && d.Abilities().Pauses {
			return e.WithAdvice(sandbox.Advise("make it with %s", sandbox.Set("driver", d.Name())))
		}
	}
	return e.WithHint("destroy it when it is not needed, and make another one then; no driver of this server can pause")
}

// stopwatch calls a function when so much time has passed, in which it was not stopped.
// The sandbox's lock guards it. The zero one never does.
type stopwatch struct {
	timer  *time.Timer
	since  time.Time     // of the last start; zero: it stands
	passed time.Duration // before that
	limit  time.Duration
	over   bool // it is not started again
}

// set starts it, when so much has passed already.
func (w *stopwatch) set(passed, limit time.Duration, f func()) {
	w.since, w.passed, w.limit = time.Now(), passed, limit
	if limit > 0 {
		w.timer = time.AfterFunc(max(limit-passed, 0), f)
	}
}

// elapsed is the time that has passed.
func (w *stopwatch) elapsed() time.Duration {
	if w.since.IsZero() {
		return w.passed
	}
	return w.passed + time.Since(w.since)
}

func (w *stopwatch) stop() {
	w.passed, w.since = w.elapsed(), time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *stopwatch) start() {
	if w.over || !w.since.IsZero() {
		return
	}
	w.since = time.Now()
	if w.timer != nil {
		w.timer.Reset(max(w.limit-w.passed, 0))
	}
}
