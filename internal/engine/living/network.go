package living

import (
	"context"
	"reflect"
	"time"

	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// ChangeNetwork changes what the sandbox can reach, at once, also while it is paused: what is
// not declared any more is cut when it returns. What the sandbox was made with it can have
// again; anything else must be allowed, and be something for which it has a listener, and is
// not to be had where a profile or the operator's rules decide. That is no use of the sandbox.
func (s *Sandbox) ChangeNetwork(ctx context.Context, c sandbox.NetworkChange) (sandbox.Info, error) {
	s.declaring.Lock()
	defer s.declaring.Unlock()
	declared, err := s.declaresNow()
	if err != nil {
		return sandbox.Info{}, err
	}
	n, err := c.Of(declared.Now, declared.Made)
	if err != nil {
		return sandbox.Info{}, err
	}
	mg := s.manager
	declared.Fixed = s.request.Profile != "" || mg.rules != nil && !mg.rules().Empty()
	changed, wider, err := mg.policy.Network.Changed(ctx, s.tenant, declared, n)
	if err != nil {
		return sandbox.Info{}, fieldOf(c, err)
	}
	begin, err := mg.pools.Declare(ctx, s.machine, s.tenant, changed.Now)
	if err != nil {
		return sandbox.Info{}, fieldOf(c, err)
	}
	s.mu.Lock()
	s.secrets = named(s.secrets, changed.Now)
	s.mu.Unlock()
	asked := time.Now()
	if !wider { // which waits for nothing
		begin()
	}
	if err := s.attestNetwork(ctx, changed.Now, wider, asked); err != nil && wider {
		return sandbox.Info{}, err
	}
	if wider {
		begin()
	}
	s.mu.Lock()
	s.declared = changed
	info := s.describe()
	s.mu.Unlock()
	s.save(info)
	if s.kept {
		s.recordMachine()
	}
	return info, nil
}

// networkEvery is how often it is looked what goes on with the endpoints while somebody follows.
const networkEvery = 250 * time.Millisecond

// WatchNetwork calls f with what has gone on with the declared endpoints since the sandbox was
// made: at once, after that whenever something has changed, at most four times a second, and
// once more at the sandbox's end. It returns nil at that end, an error where the sandbox is left
// to the next process, the cause of ctx's end, or the error of f.
func (s *Sandbox) WatchNetwork(ctx context.Context, f func(sandbox.NetworkUse) error) error {
	var said *sandbox.NetworkUse
	tick := time.NewTicker(networkEvery)
	defer tick.Stop()
	for ended := false; ; {
		info := s.Info()
		if info.Network == nil {
			return (&sandbox.Error{Code: sandbox.CodeConflict, Message: "the sandbox declares no endpoints, so there is nothing to follow"}).
				WithAdvice(sandbox.Advise("make one that does: %s", sandbox.Call(sandbox.CallCreateSandbox)))
		}
		if said == nil || !reflect.DeepEqual(said, info.Network) {
			said = info.Network
			if err := f(*said); err != nil {
				return err
			}
		}
		switch {
		case ended && info.State != sandbox.StateEnded: // left to the next process
			return admission.ShuttingDown()
		case ended:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.Ended():
			ended = true // and what it did last is still to be said
		case <-tick.C:
		}
	}
}

// declaresNow is what the sandbox can reach, if that can be changed.
func (s *Sandbox) declaresNow() (admission.Declared, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.left:
		return s.declared, admission.ShuttingDown()
	case !s.stays():
		return s.declared, s.notRunning()
	}
	return s.declared, nil
}

// fieldOf has an error name what the change said: where it adds to what is there, only that
// can be wrong.
func fieldOf(c sandbox.NetworkChange, err error) error {
	if e := sandbox.AsError(err); c.Network == nil && len(c.Allow) > 0 {
		return e.WithField("allow")
	}
	return err
}

// attestNetwork records that what the sandbox can reach is changed. The error is where that
// must not be without it.
func (s *Sandbox) attestNetwork(ctx context.Context, n sandbox.Network, wider bool, asked time.Time) error {
	if s.manager.auditor == nil {
		return nil
	}
	e := records.NetworkEvent(s.info.ID, n, wider, asked)
	e.Entry.Isolation = records.Wall(s.machine.Plan.Posture)
	_, err := s.attestBy(ctx, e, records.KeyOf(ctx))
	if err != nil && s.manager.auditor.Strict() {
		return err
	}
	return nil
}

// requested is what would make another sandbox like this one: what was taken away from it
// since it was made is not in there.
func (s *Sandbox) requested() sandbox.Create {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.request
	if !s.declared.Made.None() {
		c.Network = s.declared.Anew()
	}
	return c
}
