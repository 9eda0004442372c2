package pool

import (
	"context"
	"errors"
	"time"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/records"
	"pinfold/internal/failpoint"
	"pinfold/internal/language"
	"pinfold/internal/zygote"
	"pinfold/internal/zygote/warm"
	"pinfold/sandbox"
)

const (
	// fillersAtOnce is how many machines one pool makes at a time.
	fillersAtOnce = 2
	// fillPause follows a machine that could not be made; it doubles.
	fillPause    = 100 * time.Millisecond
	maxFillPause = 30 * time.Second
	// maxLoadPause is for modules that cannot be loaded, which seldom mend
	// themselves.
	maxLoadPause = 10 * time.Minute
	// givePlace is how long a filler waits for requests that are making
	// machines themselves.
	givePlace = 2 * time.Millisecond
	// fillDelay is how long a pool that holds more than half of what it should
	// waits before what was taken is made again.
	fillDelay = 15 * time.Millisecond
)

// backoff is what a pool does after something could not be made for it: all its
// fillers stop, and one tries again after a pause, which grows. The pool's lock
// guards it.
type backoff struct {
	failure *sandbox.Error // nil while all is well
	well    time.Time      // since when, if it has failed before
	retryAt time.Time
	pause   time.Duration
	timer   *time.Timer
}

// fail notes a failure and has retry called after the pause. fresh says that the
// pool had not failed before, or had failed with another error.
func (b *backoff) fail(err error, retry func()) (fresh bool) {
	e := sandbox.AsError(err)
	now := time.Now()
	fresh = b.failure == nil || b.failure.Code != e.Code
	if b.failure == nil && now.Sub(b.well) > maxFillPause {
		b.pause = fillPause
	}
	b.failure = e
	if now.Before(b.retryAt) {
		return fresh // of a filler that was at work when the first one failed
	}
	most := maxFillPause
	if e.Code == sandbox.CodeSpecInvalid || e.Code == sandbox.CodeLimitInvalid {
		most = maxLoadPause
	}
	b.retryAt = now.Add(b.pause)
	b.timer = time.AfterFunc(b.pause, retry)
	b.pause = min(2*b.pause, most)
	return fresh
}

// waits says whether nobody is to try now.
func (b *backoff) waits() bool { return b.failure != nil && time.Now().Before(b.retryAt) }

// recover notes that all is well, and says whether it was not before.
func (b *backoff) recover() bool {
	if b.failure == nil {
		return false
	}
	b.failure, b.well = nil, time.Now()
	return true
}

// forget begins anew, and tries no more by itself.
func (b *backoff) forget() {
	if b.timer != nil {
		b.timer.Stop()
	}
	*b = backoff{}
}

// shown is the failure, and when somebody tries again; nil while somebody does.
func (b *backoff) shown() (*sandbox.Error, *time.Time) {
	if !b.waits() {
		return b.failure, nil
	}
	at := b.retryAt.UTC()
	return b.failure, &at
}

// fillLater fills the pool when the request that has just taken something has
// had the machine for itself for a moment.
func (p *pool) fillLater() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delayed || p.closed {
		return
	}
	p.delayed = true
	time.AfterFunc(fillDelay, func() {
		p.mu.Lock()
		p.delayed = false
		p.mu.Unlock()
		p.fill()
	})
}

// fill starts as many fillers as are needed.
func (p *pool) fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := fillersAtOnce
	if p.backoff.failure != nil {
		most = 1
	}
	if p.filling == 0 {
		p.fillingSince = time.Now()
	}
	for !p.closed && !p.backoff.waits() && p.filling < most && p.lacking() > p.filling {
		p.filling++
		p.fillers.Go(p.fillOne)
	}
}

// lacking is how many machines should be made. The lock is held.
func (p *pool) lacking() int {
	n := p.spec.Min - len(p.waiting)
	if p.spec.Max > 0 {
		n = min(n, p.spec.Max-len(p.waiting)-p.inUse)
	}
	return n
}

// fillOne makes machines until the pool is full. Requests that make machines of
// their own go before it.
func (p *pool) fillOne() {
	for again := true; again; {
		for range 5 {
			if p.set.making.Load() == 0 || !p.sleep(givePlace) {
				break
			}
		}
		w, err := p.make()
		failpoint.Hit("pool.made")
		again = p.filled(w, err)
	}
}

// make makes what the pool keeps, while there is the pool. On error nothing is
// left.
func (p *pool) make() (*ready, error) {
	ctx, cancel := context.WithTimeout(p.alive, warm.LoadTimeout+execution.HandshakeTimeout)
	defer cancel()
	spec := p.description()
	plan, err := p.set.planner.PlanOn(ctx, p.driver, spec.Machine(), records.NewID(""))
	if err != nil {
		return nil, err
	}
	if plan.Template.ID != p.shape.template {
		return nil, sandbox.Errorf(sandbox.CodeConflict, "another image is called %s now", sandbox.SafeText(spec.Template, 60))
	}
	if spec.Language != "" {
		if w, ok, err := p.fork(ctx, plan); ok {
			return w, err
		}
	}
	s, err := execution.Open(ctx, p.driver, plan)
	if err != nil {
		return nil, err
	}
	w := &ready{session: s, made: time.Now()}
	if spec.Language == "" {
		return w, nil
	}
	if w.interpreter, err = p.set.startInterpreter(ctx, s, spec, language.Language.WaitStep); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return w, nil
}

// failed notes that something could not be made. It is logged when it is news.
// The lock is held.
func (p *pool) failed(err error) {
	if p.closed {
		return
	}
	if p.backoff.fail(err, p.fill) {
		p.set.log.Warn("cannot fill a pool; it is tried again, with longer pauses", "pool", p.spec.Name, "error", err)
	} else {
		p.set.log.Debug("cannot fill a pool yet", "pool", p.spec.Name, "error", err)
	}
}

// filled takes in what a filler made, and says whether it shall go on.
func (p *pool) filled(w *ready, err error) (again bool) {
	p.mu.Lock()
	if err != nil {
		p.failed(err)
		p.filling--
		p.mu.Unlock()
		return false
	}
	p.fillingSince = time.Now()
	recovered := p.backoff.recover()
	unwanted := p.closed || p.lacking() <= 0
	if !unwanted {
		p.waiting = append(p.waiting, w)
	}
	if again = !p.closed && p.lacking() >= p.filling; !again {
		p.filling--
	}
	name := p.spec.Name
	p.mu.Unlock()
	if unwanted {
		p.discard([]*execution.Session{w.session})
	}
	if recovered {
		p.set.log.Info("a pool can be filled again", "pool", name)
		p.fill() // by more than one
	}
	return again
}

// orphaned is called when the zygote of the pool's interpreters has ended by
// itself, and they with it.
func (p *pool) orphaned() {
	p.mu.Lock()
	p.failed(zygote.ErrEnded)
	p.mu.Unlock()
	select {
	case p.check <- struct{}{}:
	default: // it is about to check
	}
}
