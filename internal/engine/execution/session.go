// Package execution is one machine, the connection to its agent, and what is done with
// it: files go in, a program runs and is watched, files and values come out, the machine
// is destroyed. It knows no tenants, and neither pools nor records: whose machine it is
// and what becomes of the outcome, others decide.
package execution

import (
	"context"
	"errors"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/egress"
	"pinfold/internal/guest"
	"pinfold/internal/language"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// HandshakeTimeout bounds how long a new agent may take to say hello, and to
// start a program.
const HandshakeTimeout = 10 * time.Second

var errSilent = &sandbox.Error{Code: sandbox.CodeProtocol, Message: "the sandbox's agent did not start the program in time"}

// Starting bounds how long the agent may take to start a program.
func Starting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, HandshakeTimeout, errSilent)
}

// KillTimeout bounds how long the agent may take to end the guest's processes
// when asked; after it the whole machine is ended from outside.
const KillTimeout = 500 * time.Millisecond

// Session is one living machine and the connection to its agent. There may be
// an init stub in its place: what a run needs the agent for goes through Agent. It is safe for
// concurrent use; Machine never changes, nor does Plan, but by AddDoors.
type Session struct {
	Plan    driver.Plan
	Machine driver.Machine

	after func() // called when the machine is gone; may be nil, may be called again

	mu      sync.Mutex
	guest   *guest.Guest  // the agent; nil until it has been greeted
	refused error         // why it could not be greeted
	relay   *egress.Relay // of the declared endpoints; nil: there are none
	handed  bool          // to a forked interpreter: its program
	late    error         // why it could not be destroyed in time, when that was tried last

	reading sync.Mutex   // guards last
	last    driver.Usage // the last reading
}

// Places are where programs of a machine may write.
func Places(p driver.Plan) language.Places {
	return language.Places{Home: p.User.Home, Tmp: p.User.Tmp, HostRoot: p.Places != "", Env: p.Template.Env}
}

// Open makes a machine and greets its agent. On error nothing is left, nor after a
// panic.
func Open(ctx context.Context, d driver.Driver, plan driver.Plan) (opened *Session, err error) {
	m, err := d.Create(ctx, plan)
	if err != nil {
		return nil, err
	}
	s := &Session{Plan: plan, Machine: m}
	defer func() {
		if opened == nil {
			err = errors.Join(err, s.Close(ctx))
		}
	}()
	if _, err := s.Agent(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Ungreeted is the session of a machine whose agent has not been greeted. after is called
// when the machine is gone, more than once perhaps.
func Ungreeted(m driver.Machine, plan driver.Plan, after func()) *Session {
	return &Session{Plan: plan, Machine: m, after: after}
}

// Greeted is the session of a machine whose agent is known already. after is as in Ungreeted.
func Greeted(m driver.Machine, plan driver.Plan, g *guest.Guest, after func()) *Session {
	return &Session{Plan: plan, Machine: m, guest: g, after: after}
}

// Agent returns the machine's agent. The first call greets it, after an
// init stub has become the agent; what came of that is the answer to all others. A forked
// program, and all that it has started, end before that.
func (s *Session) Agent(ctx context.Context) (*guest.Guest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guest == nil && s.refused == nil {
		s.guest, s.refused = s.greet(ctx)
	}
	return s.guest, s.refused
}

// greet says hello to the agent. The lock is held.
func (s *Session) greet(ctx context.Context) (*guest.Guest, error) {
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	if stub := s.Machine.Abilities().InitStub; stub != nil && s.handed {
		if err := stub.KillGuest(ctx); err != nil {
			return nil, err
		}
	}
	conn, err := s.Machine.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return guest.New(ctx, conn, Hello(s.Plan))
}

// Hello is what the agent of a machine is told.
func Hello(p driver.Plan) wire.Hello {
	return wire.Hello{Version: wire.Version, UID: p.User.UID, GID: p.User.GID, SwitchUser: p.SwitchUser, Home: p.User.Home}
}

// Greeted returns the agent if it has been greeted, or nil.
func (s *Session) Greeted() *guest.Guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guest
}

// Close ends the machine and removes its traces. It is idempotent and goes on
// when ctx has ended.
func (s *Session) Close(ctx context.Context) error {
	s.Shut()
	err := s.Machine.Destroy(context.WithoutCancel(ctx))
	if g := s.Greeted(); g != nil {
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

// Late is why the machine could not be destroyed in time, if somebody has tried.
func (s *Session) Late() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late
}

// KillGuest ends every process of the guest. Where process 1 is an init stub, it does that
// and remains. It says whether that worked; the agent may be hostile.
func (s *Session) KillGuest(ctx context.Context, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if g := s.Greeted(); g != nil {
		return g.KillAll(ctx) == nil
	}
	stub := s.Machine.Abilities().InitStub
	return stub != nil && stub.KillGuest(ctx) == nil
}

// Dead says whether the machine has ended by itself.
func (s *Session) Dead() bool {
	select {
	case <-s.Machine.Dead():
		return true
	default:
		g := s.Greeted()
		return g != nil && g.Err() != nil
	}
}

// Death waits so long for the machine's end and returns what it was of, or nil. A
// connection that ended may be a machine that died, of which the news comes later.
func (s *Session) Death(within time.Duration) *driver.Death {
	select {
	case <-s.Machine.Dead():
		d := s.Machine.Death()
		return &d
	case <-time.After(within):
		return nil
	}
}

// LastUsage reads the counters. Where that fails it is the last reading: that with which
// the machine ended, or the one before.
func (s *Session) LastUsage(ctx context.Context) driver.Usage {
	return s.orLast(s.Machine.Usage(ctx))
}

// orLast is a reading, or the last one where that failed.
func (s *Session) orLast(u driver.Usage, err error) driver.Usage {
	if err == nil {
		s.note(u)
		return u
	}
	if errors.Is(err, driver.ErrEnded) {
		if d := s.Death(KillTimeout); d != nil {
			return d.Usage
		}
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	return s.last
}

// note keeps a reading for orLast.
func (s *Session) note(u driver.Usage) {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.last = u
}
