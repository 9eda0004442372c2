package living

import (
	"cmp"
	"fmt"
	"time"

	"pinfold/sandbox"
)

// untilEnd is how long the sandbox may stay, as things are. The lock is held.
func (s *Sandbox) untilEnd(now time.Time) time.Duration {
	left := s.expires.Sub(now)
	switch {
	case s.info.State == sandbox.StatePaused: // its idle time stands
	case s.busy == 0:
		left = min(left, s.used.Add(s.idle()).Sub(now))
	default:
		left = min(left, s.idle())
	}
	return max(left, 0)
}

func (s *Sandbox) idle() time.Duration { return time.Duration(s.info.IdleMS) * time.Millisecond }

// timeUp is called when the sandbox may have to end.
func (s *Sandbox) timeUp() {
	s.mu.Lock()
	now := time.Now()
	var cause *sandbox.Cause
	switch {
	case !s.stays():
	case !now.Before(s.expires):
		lived := now.Sub(s.info.CreatedAt).Milliseconds()
		cause = s.timeCause(sandbox.CauseTTL, "ttl_ms", s.expires.Sub(s.info.CreatedAt).Milliseconds(), lived, fmt.Sprintf("it lived %dms", lived))
	case s.info.State == sandbox.StateRunning && s.busy == 0 && now.Sub(s.used) >= s.idle():
		unused := now.Sub(s.used).Milliseconds()
		cause = s.timeCause(sandbox.CauseIdle, "idle_ms", s.info.IdleMS, unused, fmt.Sprintf("no operation for %dms", unused))
	default:
		s.timer.Reset(s.untilEnd(now) + time.Millisecond)
	}
	s.mu.Unlock()
	if cause != nil {
		s.endFor(*cause)
	}
}

// timeCause is the end of a sandbox whose time in a field, in milliseconds, is over.
func (s *Sandbox) timeCause(kind sandbox.CauseKind, field string, limit, observed int64, evidence string) *sandbox.Cause {
	advice := sandbox.Advise("extend it while you use it")
	if most := cmp.Or(s.manager.maxTTL.Milliseconds(), sandbox.MaxTTLMS); limit < most {
		advice = sandbox.Advise("extend it while you use it, or ask for more time: %s", sandbox.Set(field, min(2*limit, most)))
	}
	c := sandbox.Cause{Kind: kind, Limit: limit, Observed: observed, Evidence: evidence}.WithAdvice(advice)
	return &c
}

// Extend lets the sandbox live that many milliseconds from now.
func (s *Sandbox) Extend(ttlMS int64) (sandbox.Info, error) {
	if err := sandbox.CheckTTL(ttlMS); err != nil {
		return sandbox.Info{}, err
	}
	if err := s.manager.checkTTL(ttlMS); err != nil {
		return sandbox.Info{}, err
	}
	s.mu.Lock()
	if !s.stays() {
		defer s.mu.Unlock()
		return sandbox.Info{}, s.notRunning()
	}
	now := time.Now()
	until := now.Add(time.Duration(ttlMS) * time.Millisecond)
	if err := s.manager.policy.Profiles.Extend(s.request.Profile, s.info.CreatedAt, until); err != nil {
		defer s.mu.Unlock()
		return sandbox.Info{}, err
	}
	s.expires = until
	s.info.ExpiresAt = s.expires.UTC().Round(0)
	if !s.idles {
		s.info.IdleMS = ttlMS
	}
	s.used = now
	s.timer.Reset(s.untilEnd(now))
	info := s.describe()
	s.mu.Unlock()
	s.save(info)
	return info, nil
}
