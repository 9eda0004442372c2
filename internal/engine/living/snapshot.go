package living

import (
	"context"
	"fmt"
	"io"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/records"
	"pinfold/internal/failpoint"
	"pinfold/internal/filetree"
	"pinfold/sandbox"
)

// # Snapshots
//
// A sandbox stands still while it is copied, and goes on at once. That is no pause that
// anybody asked for: it stays running, what is asked of it meanwhile waits, and what had
// been asked before gets a moment to finish.

const (
	// copyTimeout bounds how long a sandbox may stand still for a snapshot: less than its
	// agent may keep others waiting.
	copyTimeout = 30 * time.Second
	// settleTimeout is for how long operations under way are waited for before that.
	settleTimeout = 2 * time.Second
)

// copied is what came of a copy.
type copied struct {
	summary filetree.Summary
	memory  bool // and the files are in it
	stood   time.Duration
}

// Snapshot keeps what the sandbox holds at this moment, under an ID of its own. One that is
// paused stays so.
func (s *Sandbox) Snapshot(ctx context.Context, t sandbox.TakeSnapshot) (sandbox.Snapshot, error) {
	if err := t.Validate(); err != nil {
		return sandbox.Snapshot{}, err
	}
	k := s.manager.snapshots
	ttl, err := k.TTL(t.TTLMS)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	w, err := k.Begin(ctx, s.tenant, true)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	defer w.Drop()
	done, err := s.copyTo(ctx, w)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	holds := []string{sandbox.SnapshotFiles}
	if done.memory {
		holds = append(holds, sandbox.SnapshotMemory)
	}
	now := time.Now().UTC().Round(0)
	r, err := w.Keep(context.WithoutCancel(ctx), records.Snapshot{
		Request: s.asked(), Image: s.machine.Plan.Template.ID, Packages: s.hasPackages(), Secrets: s.hasSecrets(),
		Info: sandbox.Snapshot{
			ID: records.NewID("snp_"), Name: t.Name, Sandbox: s.info.ID, Holds: holds, Driver: s.machine.Plan.Posture.Driver,
			Template: s.request.Template, Limits: s.info.Limits, Metadata: t.Metadata, CreatedAt: now, ExpiresAt: now.Add(ttl),
			Files: done.summary.Entries(), LeftOut: done.summary.Left, PausedMS: execution.Milliseconds(done.stood),
		},
	}, s.machine.Plan.Template.KeepFor)
	return r.Info, err
}

// asked is the request for another sandbox like this one.
func (s *Sandbox) asked() sandbox.Create {
	c := s.requested()
	c.Snapshot, c.TTLMS, c.IdleMS = "", 0, 0
	if c.Profile != "" { // where endpoints are is said anew, and not by a request
		c.Network = admission.Network{}.Told(c.Network)
	}
	return c
}

// copyTo has the sandbox stand still and writes what it holds.
func (s *Sandbox) copyTo(ctx context.Context, w io.Writer) (done copied, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	a := driver.MachineAbilities{}
	s.mu.Lock()
	switch {
	case s.left:
		err = admission.ShuttingDown()
	case !s.stays():
		err = s.notRunning()
	default:
		a = s.machine.Machine.Abilities()
	}
	paused := s.info.State == sandbox.StatePaused
	s.mu.Unlock()
	switch {
	case err != nil:
		return done, err
	case a.Pauser == nil || a.Snapshotter == nil && a.MemorySnapshotter == nil:
		return done, s.cannotSnapshot()
	case a.MemorySnapshotter != nil && paused: // its agent cannot be asked what it has heard
		return done, (&sandbox.Error{Code: sandbox.CodeConflict, Message: fmt.Sprintf("the memory of sandbox %s cannot be kept while it is paused", s.info.ID)}).
			WithAdvice(sandbox.Advise("let it go on: %s", sandbox.Call(sandbox.CallResumeSandbox)))
	case a.MemorySnapshotter != nil:
		done.memory = true
		done.stood, err = s.copyMemory(ctx, a, w)
		return done, err
	case paused:
		done.summary, err = s.copyFiles(ctx, a.Snapshotter, w)
		return done, err
	}
	goOn, err := s.stand(ctx, a.Pauser, func() error { return nil })
	if err != nil {
		return done, err
	}
	begun := time.Now()
	failpoint.Hit("snapshot.paused")
	done.summary, err = s.copyFiles(ctx, a.Snapshotter, w)
	done.stood = time.Since(begun)
	goOn()
	failpoint.Hit("snapshot.copied")
	return done, err
}

// copyFiles writes what the sandbox holds, which stands still.
func (s *Sandbox) copyFiles(ctx context.Context, from driver.Snapshotter, w io.Writer) (filetree.Summary, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, copyTimeout, &sandbox.Error{
		Code: sandbox.CodeResourceUnavailable, Message: fmt.Sprintf("the sandbox's files could not be copied within %s, and for longer it may not stand still", copyTimeout),
		Hint: "remove files that are not needed, or try again when the server's disk has less to do",
	})
	defer cancel()
	files := filetree.NewWriter(w)
	if err := from.Snapshot(ctx, files); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.stays() {
			return filetree.Summary{}, s.notRunning()
		}
		return filetree.Summary{}, execution.CallerGone(ctx, sandbox.AsError(err))
	}
	summary, err := files.End()
	if err != nil {
		return summary, sandbox.AsError(err)
	}
	return summary, nil
}

// stand has the sandbox stand still until what it returns is called; before is called while
// it does not yet, when nothing is asked of it any more. Held is s.changing.
func (s *Sandbox) stand(ctx context.Context, p driver.Pauser, before func() error) (goOn func(), err error) {
	s.mu.Lock()
	if s.info.State != sandbox.StateRunning {
		defer s.mu.Unlock()
		return nil, s.notRunning()
	}
	s.still = make(chan struct{})
	attended := s.attended()
	s.mu.Unlock()
	s.settle(ctx)
	s.mu.Lock()
	for _, p := range s.processes {
		p.wall.stop()
	}
	s.mu.Unlock()
	goOn = func() {
		s.wakeUp(p)
		attended()
	}
	if err = before(); err == nil {
		within, cancel := context.WithTimeout(ctx, pauseTimeout)
		defer cancel()
		err = p.Pause(within)
	}
	if err != nil {
		goOn()
		return nil, sandbox.AsError(err)
	}
	return goOn, nil
}

// settle waits for a moment until no operation is under way.
func (s *Sandbox) settle(ctx context.Context) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for until := time.Now().Add(settleTimeout); time.Now().Before(until) && ctx.Err() == nil; <-ticker.C {
		s.mu.Lock()
		asking := s.asking
		s.mu.Unlock()
		if asking == 0 {
			return
		}
	}
}

// resumeTries is how often a sandbox is told to go on.
const resumeTries = 3

// wakeUp lets the sandbox go on, and what waits for it. One that does not go on is paused:
// whoever has it may try again.
func (s *Sandbox) wakeUp(p driver.Pauser) {
	var err error
	for range resumeTries {
		ctx, cancel := context.WithTimeout(context.Background(), pauseTimeout)
		err = p.Resume(ctx)
		cancel()
		if err == nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.still)
	s.still = nil
	switch {
	case err != nil && s.info.State == sandbox.StateRunning:
		s.manager.log.Error("a sandbox does not go on after a snapshot, and is paused", "sandbox", s.info.ID, "error", err)
		s.enter(sandbox.StatePaused)
		defer s.save(s.describe())
	case s.info.State == sandbox.StateRunning:
		for _, p := range s.processes {
			if p.running() {
				p.wall.start()
			}
		}
	}
}

// cannotSnapshot names the drivers that can.
func (s *Sandbox) cannotSnapshot() error {
	own := s.info.Isolation.Driver
	e := &sandbox.Error{Code: sandbox.CodeRequirementUnmet, Message: fmt.Sprintf("this host has nothing with which sandboxes of the %s driver can stand still for a snapshot", own)}
	for _, d := range s.manager.drivers {
		if d.Name() == own && len(d.Abilities().Snapshots) == 0 {
			e.Message = fmt.Sprintf("no snapshots can be made of sandboxes of the %s driver", own)
		}
	}
	for _, d := range s.manager.drivers {
		if d.Name() != own && len(d.Abilities().Snapshots) > 0 {
			return e.WithAdvice(sandbox.Advise("make it with %s", sandbox.Set("driver", d.Name())))
		}
	}
	return e.WithHint("take out as an archive what is needed of it; no driver of this server makes snapshots")
}
