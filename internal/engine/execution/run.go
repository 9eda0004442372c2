package execution

import (
	"context"
	"errors"
	"io"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/stdio"
	"pinfold/internal/engine/verdict"
	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/internal/zygote"
	"pinfold/internal/zygote/warm"
	"pinfold/sandbox"
)

// Streams are the live ends of a program. Every field may be nil. Writers are
// called from one goroutine each and see the same bytes that the result
// keeps, cut at limits.output_bytes.
type Streams struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Program is one program to run in a session.
type Program struct {
	Command guest.Command
	Limits  sandbox.Limits
	Streams Streams
	Opened  func(*stdio.Capture) // told where the output is kept; may be nil
	// Warm takes the program, as Handover tells, in place of a command that is
	// started; nil: there is none.
	Warm     *warm.Interpreter
	Handover zygote.Handover
}

// Outcome is what came of a program.
type Outcome struct {
	Exit    *verdict.Exit // nil: its end was not seen
	Held    bool          // what it left behind held its output
	Floods  bool          // what holds it is a flood of forks
	Trigger *verdict.Trigger
	Death   *driver.Death
	Usage   driver.Usage
	Wall    time.Duration
	Output  *stdio.Capture
}

// Evidence puts together what the verdict needs.
func (r *Outcome) Evidence(l sandbox.Limits) verdict.Evidence {
	return verdict.Evidence{Limits: l, Usage: r.Usage, Trigger: r.Trigger, Death: r.Death, Exit: r.Exit, Floods: r.Floods}
}

// Run starts the program, watches it, and returns when it has ended, one way or
// another. The error means that it was never started, or that the agent broke
// the protocol. A program may use up the memory, and take the agent with it, before
// the agent has said that it started: that is an end like any other. Processes that
// it left behind may still live.
func (s *Session) Run(ctx context.Context, x Program) (*Outcome, error) {
	r := &Outcome{Output: stdio.NewCapture(x.Limits.OutputBytes, x.Streams.Stdout, x.Streams.Stderr)}
	if x.Opened != nil {
		x.Opened(r.Output)
	}
	meter, began := meterOf(s.Machine), time.Now()
	base, err := meter.BeginRun(ctx)
	if err != nil && ctx.Err() == nil {
		return nil, s.explain(err)
	}
	var p warm.Program
	if err == nil {
		p, err = s.begin(ctx, x, guest.Streams{
			Stdin: x.Streams.Stdin, Stdout: r.Output.Writer(wire.Stdout), Stderr: r.Output.Writer(wire.Stderr),
			Arrived: r.Output.Arrived,
		})
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		r.Trigger = Cancelled(ctx)
		return r, nil //nolint:nilerr // that the caller ended the run is a result
	default:
		if r.Death = s.outOfMemory(); r.Death == nil {
			return nil, s.explain(err)
		}
		r.Wall = time.Since(began)
		r.Usage = verdict.Since(s.orLast(meter.EndRun(context.WithoutCancel(ctx))), base)
		return r, nil
	}
	w := s.startWatch(x.Limits, base, p.Exited(), r.Output)
	err = s.await(ctx, p, w, r)
	r.Wall = time.Since(w.started)
	r.Trigger = w.end()
	r.Usage = verdict.Since(s.orLast(meter.EndRun(context.WithoutCancel(ctx))), base)
	r.Floods = r.Held && w.leftFlood(context.WithoutCancel(ctx), r.Usage)
	if r.Trigger != nil || r.Death != nil {
		return r, nil
	}
	return r, err
}

// meterOf returns the machine's meter for runs, or one that just reads it.
func meterOf(m driver.Machine) driver.RunMeter {
	if meter := m.Abilities().RunMeter; meter != nil {
		return meter
	}
	return plainMeter{m}
}

type plainMeter struct{ machine driver.Machine }

func (p plainMeter) BeginRun(ctx context.Context) (driver.Usage, error) { return p.machine.Usage(ctx) }

func (p plainMeter) EndRun(ctx context.Context) (driver.Usage, error) { return p.machine.Usage(ctx) }

// begin starts the program, or hands it to an interpreter that waits for it.
func (s *Session) begin(ctx context.Context, x Program, st guest.Streams) (warm.Program, error) {
	if x.Warm != nil {
		s.mu.Lock()
		s.handed = x.Warm.Forked()
		s.mu.Unlock()
		return x.Warm.Begin(x.Handover, x.Command.CPUs, st)
	}
	ctx, stop := Starting(ctx)
	defer stop()
	g, err := s.Agent(ctx)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	ctx, stop = lingering(ctx, KillTimeout)
	defer stop()
	return g.Start(ctx, x.Command, st)
}

// lingering is a context that ends so long after another: a program may run, and have
// written, before the agent has said that it started, and what it wrote is not to be lost
// when the caller ends it just then.
func lingering(ctx context.Context, more time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-late.Done():
		case <-time.After(more):
			cancel(context.Cause(ctx))
		}
	})
	return late, func() {
		stop()
		cancel(nil)
	}
}

// await waits for the first of: the program's end, a reason to end it, the
// caller's wish, the machine's death.
func (s *Session) await(ctx context.Context, p warm.Program, w *watch, r *Outcome) error {
	ended := make(chan error, 1)
	waitCtx, stopWaiting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWaiting()
	go func() {
		e, err := p.Wait(waitCtx)
		if err == nil {
			r.Exit, r.Held = &verdict.Exit{Code: e.Code, Signal: int(e.Signal)}, p.PipesHeld()
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		return s.afterEnd(err, r)
	case <-ctx.Done():
		w.fire(Cancelled(ctx))
		s.endGuest(ctx)
	case <-w.stop:
		s.endGuest(ctx)
	case <-s.Machine.Dead():
		d := s.Machine.Death()
		r.Death = &d
	}
	select { // what the program had written is still on its way
	case err := <-ended:
		return err
	case <-time.After(KillTimeout):
		stopWaiting()
		return <-ended
	}
}

// endGuest ends the program, so that what it had written still comes, or else the machine.
func (s *Session) endGuest(ctx context.Context) {
	if !s.KillGuest(ctx, KillTimeout) {
		_ = s.Close(ctx)
	}
}

// afterEnd looks at an end that nobody here caused. A connection that ended may
// be a machine that died.
func (s *Session) afterEnd(err error, r *Outcome) error {
	if err == nil {
		return nil
	}
	if r.Death = s.Death(KillTimeout); r.Death != nil {
		return nil
	}
	return s.explain(err)
}

// outOfMemory is the death of a machine for want of memory, with the agent that was to
// start the program; nil: it lives, or ended otherwise.
func (s *Session) outOfMemory() *driver.Death {
	if g := s.Greeted(); g == nil || g.Err() == nil {
		return nil
	}
	if d := s.Death(autopsyTimeout); d != nil && d.Kind == driver.DeathMemory {
		return d
	}
	return nil
}

// autopsyTimeout bounds how long a machine whose agent has gone is waited for to say what it
// died of: all its memory is given back before.
const autopsyTimeout = 5 * time.Second

// explain prefers the machine's death to the broken connection that it caused.
func (s *Session) explain(err error) error {
	if d := s.Death(10 * time.Millisecond); d != nil {
		return sandbox.Errorf(sandbox.CodeSetupFailed, "the sandbox ended before the program started: %s", d.Evidence)
	}
	return err
}

// Causes of contexts that end for another reason than that the caller went away.
var (
	ErrShutDown = errors.New("the server was shut down")
	ErrStopped  = errors.New("somebody cancelled the run")
)

// Cancelled is why a program is ended whose context has ended.
func Cancelled(ctx context.Context) *verdict.Trigger {
	t := &verdict.Trigger{Kind: sandbox.CauseCancelled, Evidence: "the caller ended the run"}
	if why := context.Cause(ctx); errors.Is(why, ErrShutDown) || errors.Is(why, ErrStopped) {
		t.Evidence = why.Error()
	}
	return t
}
