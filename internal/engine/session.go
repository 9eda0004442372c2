package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
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

// handshakeTimeout bounds how long a new agent may take to say hello, and to
// start a program.
const handshakeTimeout = 10 * time.Second

var errSilent = &sandbox.Error{Code: sandbox.CodeProtocol, Message: "the sandbox's agent did not start the program in time"}

// killTimeout bounds how long the agent may take to end the guest's processes
// when asked; after it the whole machine is ended from outside.
const killTimeout = 500 * time.Millisecond

// session is one living machine and the connection to its agent. That of a fork's
// machine may sleep: what a run needs the agent for goes through agent.
type session struct {
	plan    driver.Plan
	machine driver.Machine
	after   func() // called when the machine is gone; may be nil, may be called again

	mu      sync.Mutex
	guest   *guest.Guest // the agent; nil until it has been greeted, which openSession does
	refused error        // why it could not be greeted
	handed  bool         // to a fork: its program
	late    error        // why it could not be destroyed in time, when that was tried last
}

// openSession makes a machine and greets its agent. On error nothing is left, nor
// after a panic.
func openSession(ctx context.Context, d driver.Driver, plan driver.Plan) (opened *session, err error) {
	m, err := d.Create(ctx, plan)
	if err != nil {
		return nil, err
	}
	s := &session{plan: plan, machine: m}
	defer func() {
		if opened == nil {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	if _, err := s.agent(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// agent returns the machine's agent. The first call greets it, and wakes it where
// it sleeps; what that came to is the answer to all others. A fork that has its
// program, and all that it has started, end before that.
func (s *session) agent(ctx context.Context) (*guest.Guest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guest == nil && s.refused == nil {
		s.guest, s.refused = s.greet(ctx)
	}
	return s.guest, s.refused
}

// greet says hello to the agent. The lock is held.
func (s *session) greet(ctx context.Context) (*guest.Guest, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if sleeper := s.machine.Abilities().Sleeper; sleeper != nil && s.handed {
		if err := sleeper.EndGuest(ctx); err != nil {
			return nil, err
		}
	}
	conn, err := s.machine.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return guest.New(ctx, conn, wire.Hello{
		Version: wire.Version, UID: sandbox.UID, GID: sandbox.GID,
		SwitchUser: s.plan.SwitchUser, Home: sandbox.Home,
	})
}

// greeted returns the agent if it has been greeted, or nil.
func (s *session) greeted() *guest.Guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guest
}

// close ends the machine and removes its traces. It is idempotent and goes on
// when ctx has ended.
func (s *session) close(ctx context.Context) error {
	err := s.machine.Destroy(context.WithoutCancel(ctx))
	if g := s.greeted(); g != nil {
		_ = g.Close()
	}
	if s.after != nil && err == nil {
		s.after()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = err
	return err
}

// isLate is why the machine could not be destroyed in time, if somebody has tried.
func (s *session) isLate() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late
}

// lacks says that a directory holds nothing but what is known, where the host
// can see that by itself.
func (s *session) lacks(dir string, known func(name string) bool) bool {
	looker := s.machine.Abilities().Looker
	if looker == nil {
		return false
	}
	names, ok := looker.Look(dir)
	return ok && !slices.ContainsFunc(names, func(name string) bool { return !known(name) })
}

// execution is one program to run in a session.
type execution struct {
	command guest.Command
	limits  sandbox.Limits
	streams Streams
	opened  func(*stdio.Capture) // told where the output is kept; may be nil
	// warm takes the program instead of a command that is started.
	warm     *warm.Interpreter
	handover zygote.Handover
}

// execResult is what came of it.
type execResult struct {
	exit    *verdict.Exit
	held    bool
	floods  bool // what holds the pipes
	trigger *verdict.Trigger
	death   *driver.Death
	usage   driver.Usage
	wall    time.Duration
	output  *stdio.Capture
}

// evidence puts together what the verdict needs.
func (r *execResult) evidence(l sandbox.Limits) verdict.Evidence {
	return verdict.Evidence{Limits: l, Usage: r.usage, Trigger: r.trigger, Death: r.death, Exit: r.exit, Floods: r.floods}
}

// run starts the program, watches it, and returns when it has ended, one way or
// another. The error means that it was never started, or that the agent broke
// the protocol. Processes that it left behind may still live.
func (s *session) run(ctx context.Context, x execution) (*execResult, error) {
	r := &execResult{output: stdio.NewCapture(x.limits.OutputBytes, x.streams.Stdout, x.streams.Stderr)}
	if x.opened != nil {
		x.opened(r.output)
	}
	meter := meterOf(s.machine)
	base := meter.BeginRun()
	p, err := s.begin(ctx, x, guest.Streams{
		Stdin: x.streams.Stdin, Stdout: r.output.Writer(wire.Stdout), Stderr: r.output.Writer(wire.Stderr),
		Arrived: r.output.Arrived,
	})
	if err != nil && ctx.Err() == nil {
		return nil, s.explain(err)
	}
	if err != nil {
		r.trigger = cancelled(ctx)
		return r, nil //nolint:nilerr // that the caller ended the run is a result
	}
	w := startWatch(s.machine, x.limits, base, p.Exited(), r.output)
	err = s.await(ctx, p, w, r)
	r.wall = time.Since(w.started)
	r.trigger = w.end()
	r.usage = verdict.Since(meter.EndRun(), base)
	r.floods = r.held && w.leftFlood(r.usage)
	if r.trigger != nil || r.death != nil {
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

func (p plainMeter) BeginRun() driver.Usage { return p.machine.Usage() }
func (p plainMeter) EndRun() driver.Usage   { return p.machine.Usage() }

// begin starts the program, or hands it to an interpreter that waits for it.
func (s *session) begin(ctx context.Context, x execution, st guest.Streams) (warm.Program, error) {
	if x.warm != nil {
		s.mu.Lock()
		s.handed = x.warm.Forked()
		s.mu.Unlock()
		return x.warm.Begin(x.handover, x.command.CPUs, st)
	}
	ctx, stop := context.WithTimeoutCause(ctx, handshakeTimeout, errSilent)
	defer stop()
	g, err := s.agent(ctx)
	if err != nil {
		return nil, err
	}
	return g.Start(ctx, x.command, st)
}

// await waits for the first of: the program's end, a reason to end it, the
// caller's wish, the machine's death.
func (s *session) await(ctx context.Context, p warm.Program, w *watch, r *execResult) error {
	ended := make(chan error, 1)
	waitCtx, stopWaiting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWaiting()
	go func() {
		e, err := p.Wait(waitCtx)
		if err == nil {
			r.exit, r.held = &verdict.Exit{Code: e.Code, Signal: int(e.Signal)}, p.PipesHeld()
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		return s.afterEnd(err, r)
	case <-ctx.Done():
		w.fire(cancelled(ctx))
		_ = s.close(ctx)
	case <-w.stop:
		if !s.endGuest(ctx, killTimeout) {
			_ = s.close(ctx)
		}
	case <-s.machine.Dead():
		r.death = deathOf(s.machine)
	}
	select { // what the program had written is still on its way
	case err := <-ended:
		return err
	case <-time.After(killTimeout):
		stopWaiting()
		return <-ended
	}
}

// afterEnd looks at an end that nobody here caused. A connection that ended may
// be a machine that died.
func (s *session) afterEnd(err error, r *execResult) error {
	if err == nil {
		return nil
	}
	select {
	case <-s.machine.Dead():
		r.death = deathOf(s.machine)
		return nil
	case <-time.After(killTimeout):
		return s.explain(err)
	}
}

// explain prefers the machine's death to the broken connection that it caused.
func (s *session) explain(err error) error {
	select {
	case <-s.machine.Dead():
		return sandbox.Errorf(sandbox.CodeSetupFailed, "the sandbox ended before the program started: %s", s.machine.Death().Evidence)
	case <-time.After(10 * time.Millisecond):
		return err
	}
}

// endGuest ends every process of the guest, which does not wake an agent that
// sleeps. It says whether that worked; the agent may be hostile.
func (s *session) endGuest(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if g := s.greeted(); g != nil {
		return g.KillAll(ctx) == nil
	}
	sleeper := s.machine.Abilities().Sleeper
	return sleeper != nil && sleeper.EndGuest(ctx) == nil
}

func deathOf(m driver.Machine) *driver.Death {
	d := m.Death()
	return &d
}

// Causes of contexts that end for another reason than that the caller went away.
var (
	errShutDown = errors.New("the server was shut down")
	errStopped  = errors.New("somebody cancelled the run")
)

func cancelled(ctx context.Context) *verdict.Trigger {
	t := &verdict.Trigger{Kind: sandbox.CauseCancelled, Evidence: "the caller ended the run"}
	if why := context.Cause(ctx); errors.Is(why, errShutDown) || errors.Is(why, errStopped) {
		t.Evidence = why.Error()
	}
	return t
}
