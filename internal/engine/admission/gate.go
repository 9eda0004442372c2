package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pinfold/sandbox"
)

// bucket limits a rate: it holds at most a second's worth.
type bucket struct {
	tokens float64
	at     time.Time
}

// wait says how long it takes until there is one, at most a second's worth of
// which may have been saved up.
func (b *bucket) wait(rate float64, now time.Time) time.Duration {
	most := max(1, rate)
	if b.at.IsZero() {
		b.tokens, b.at = most, now
	}
	b.tokens = min(most, b.tokens+rate*now.Sub(b.at).Seconds())
	b.at = now
	if b.tokens >= 1 {
		return 0
	}
	return time.Duration((1 - b.tokens) / rate * float64(time.Second))
}

// Gate admits sandboxes: what does not fit waits, each tenant in its own line,
// and the lines take turns. So a tenant with a thousand requests does not delay
// one with a single request. It is safe for concurrent use.
type Gate struct {
	capacity Capacity
	quota    func(tenant string) Quota

	mu      sync.Mutex
	used    Load
	rate    bucket
	lines   map[string]*line
	turns   []*line // in the order of their turns
	waiting int
	alarm   *time.Timer // when the next token comes
	closed  *sandbox.Error
}

// line is one tenant's.
type line struct {
	tenant  string
	used    Load
	rate    bucket
	tickets []*ticket

	detached int // runs for which nobody waits, from Detach to their end
}

type ticket struct {
	demand  Demand
	late    bool // nobody waits for it: those of the line that somebody waits for go first
	granted chan struct{}
}

// NewGate returns a gate that has let nobody in yet. quota may be nil; it is called
// with the gate's lock held.
func NewGate(c Capacity, quota func(string) Quota) *Gate {
	if quota == nil {
		quota = func(string) Quota { return Quota{} }
	}
	return &Gate{capacity: c.WithDefaults(), quota: quota, lines: map[string]*line{}}
}

// Capacity is what there is, with its defaults filled in.
func (g *Gate) Capacity() Capacity { return g.capacity }

// retry is the private part of an error after which it is worth to come back.
type retry struct {
	after time.Duration
	why   string
}

func (r retry) Error() string             { return r.why }
func (r retry) RetryAfter() time.Duration { return r.after }

// Busy is the answer to a request that may find room later. Its private part has a
// RetryAfter() time.Duration.
func Busy(code, message, hint string, after time.Duration) *sandbox.Error {
	return &sandbox.Error{Code: code, Message: message, Hint: hint, Err: retry{after, message}}
}

// IsBusy says whether the same request may find room later.
func IsBusy(err error) bool {
	_, busy := errors.AsType[retry](err)
	return busy
}

// ShuttingDown is the answer to requests that come too late.
func ShuttingDown() *sandbox.Error {
	return Busy(sandbox.CodeShuttingDown, "the server is shutting down and takes no new work", "come back in a moment", 5*time.Second)
}

// Acquire waits until the demand fits and returns what gives it back.
func (g *Gate) Acquire(ctx context.Context, tenant string, d Demand) (release func(), err error) {
	p, err := g.Enter(tenant, d, false)
	if err != nil {
		return nil, err
	}
	return p.Wait(ctx)
}

// Admit counts a sandbox that is there already, whether there is room for it or not.
func (g *Gate) Admit(tenant string, d Demand) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.line(tenant)
	l.used.add(d, 1)
	g.used.add(d, 1)
	return g.releaser(l, d)
}

// Place is a demand in its line. Whoever has one waits, or leaves.
type Place struct {
	gate   *Gate
	line   *line
	ticket *ticket
}

// Enter joins the tenant's line, or is refused. Where nobody waits for the
// sandbox (late), it stands behind all for which somebody does, and for as long
// as it takes.
func (g *Gate) Enter(tenant string, d Demand, late bool) (*Place, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.line(tenant)
	bounds := g.quota(tenant).bounds(g.capacity)
	if err := g.refusal(l, d, bounds); err != nil {
		g.drop(l)
		return nil, err
	}
	t := &ticket{demand: d, late: late, granted: make(chan struct{})}
	at := len(l.tickets)
	for !late && at > 0 && l.tickets[at-1].late {
		at--
	}
	l.tickets = slices.Insert(l.tickets, at, t)
	g.waiting++
	g.pump()
	return &Place{g, l, t}, nil
}

// Leave gives up a place, and what it was granted.
func (p *Place) Leave() {
	if !p.gate.leave(p.line, p.ticket) {
		p.gate.releaser(p.line, p.ticket.demand)()
	}
}

// Wait waits until it is this place's turn and returns what gives back what was
// granted.
func (p *Place) Wait(ctx context.Context) (release func(), err error) {
	g, l, t := p.gate, p.line, p.ticket
	var over <-chan time.Time
	if !t.late {
		timeout := time.NewTimer(g.capacity.QueueTimeout)
		defer timeout.Stop()
		over = timeout.C
	}
	select {
	case <-t.granted:
		return g.releaser(l, t.demand), nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-over:
		err = g.timedOut(l, t.demand)
	}
	if g.leave(l, t) {
		return nil, err
	}
	return g.releaser(l, t.demand), nil // it was granted at the last moment
}

// timedOut is what who has waited in vain is told.
func (g *Gate) timedOut(l *line, d Demand) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	lack := g.shortageOf(l, d, g.quota(l.tenant).bounds(g.capacity))
	message := fmt.Sprintf("no room for another sandbox within %v: %v", g.capacity.QueueTimeout, lack)
	return Busy(sandbox.CodeBusy, message, "", 5*time.Second).WithAdvice(lack.advice()).WithField(lack.field())
}

// refusal is why a demand may not even wait.
func (g *Gate) refusal(l *line, d Demand, bounds Capacity) error {
	if g.closed != nil {
		return g.closed
	}
	if what := (Load{}).refuses(d, g.capacity); what != "" {
		lack := shortage{what: what}
		return (&sandbox.Error{
			Code: sandbox.CodeQuotaExceeded, Field: lack.field(),
			Message: fmt.Sprintf("one sandbox alone would need more than capacity.%s, which is %s", what, g.capacity.show(what)),
		}).WithAdvice(sandbox.Advise("ask for less, or raise %s", sandbox.Config("capacity."+what)))
	}
	if what := (Load{}).refuses(d, bounds); what != "" {
		return &sandbox.Error{
			Code: sandbox.CodeQuotaExceeded, Message: "one sandbox alone would need more " + what + " than the tenant may have",
			Hint: "ask for less, or raise the tenant's quota",
		}
	}
	lack := g.shortageOf(l, d, bounds)
	if lack.quota && !d.Run {
		return Busy(sandbox.CodeQuotaExceeded, lack.String(), "", time.Second).WithAdvice(lack.advice()).WithField(lack.field())
	}
	if g.waiting >= g.capacity.Queue && len(l.tickets) >= g.share() && !g.fitsNow(l, d, bounds) {
		message := fmt.Sprintf("%d requests are waiting already: %v", g.waiting, lack)
		return Busy(sandbox.CodeBusy, message, "", 2*time.Second).WithAdvice(lack.advice()).WithField(lack.field())
	}
	return nil
}

// share is how long each tenant's line may be when there are too many in all:
// one long line must not keep others from queueing at all.
func (g *Gate) share() int {
	lines := 0
	for _, l := range g.turns {
		if len(l.tickets) > 0 {
			lines++
		}
	}
	return g.capacity.Queue / max(1, lines+1)
}

// fitsNow says whether a demand of that line would be let in at once.
func (g *Gate) fitsNow(l *line, d Demand, bounds Capacity) bool {
	return len(l.tickets) == 0 && l.used.refuses(d, bounds) == "" && g.used.refuses(d, g.capacity) == ""
}

// Detach counts a run of a tenant for which nobody waits, from before it is recorded
// to its end, or refuses one more. It takes no room; the run enters like any other.
func (g *Gate) Detach(tenant string) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.line(tenant)
	if l.detached >= g.capacity.Detached {
		return nil, Busy(sandbox.CodeQuotaExceeded, fmt.Sprintf("%d detached runs are waiting or running already", l.detached),
			"wait for some of them or cancel them, or raise capacity.detached in the server's configuration", time.Second)
	}
	l.detached++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		l.detached--
		g.drop(l)
	}, nil
}

// leave takes a ticket out of its line. It says whether it was still there.
func (g *Gate) leave(l *line, t *ticket) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range l.tickets {
		if other == t {
			l.tickets = append(l.tickets[:i], l.tickets[i+1:]...)
			g.waiting--
			g.drop(l)
			g.pump() // it may have stood before one that fits
			return true
		}
	}
	return false
}

func (g *Gate) releaser(l *line, d Demand) func() {
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		l.used.add(d, -1)
		g.used.add(d, -1)
		g.pump()
		g.drop(l)
	})
}

// line returns a tenant's line.
func (g *Gate) line(tenant string) *line {
	l := g.lines[tenant]
	if l == nil {
		l = &line{tenant: tenant}
		g.lines[tenant] = l
		g.turns = append(g.turns, l)
	}
	return l
}

// drop forgets a line that nobody uses. One with a used-up rate stays.
func (g *Gate) drop(l *line) {
	if len(l.tickets) > 0 || l.used.Sandboxes > 0 || l.detached > 0 || g.lines[l.tenant] != l {
		return
	}
	if rate := g.quota(l.tenant).StartsPerSecond; rate > 0 && l.rate.wait(rate, time.Now()) > 0 {
		return
	}
	delete(g.lines, l.tenant)
	for i, other := range g.turns {
		if other == l {
			g.turns = append(g.turns[:i], g.turns[i+1:]...)
			return
		}
	}
}

// pump lets in whoever is next as long as somebody fits.
func (g *Gate) pump() {
	for g.waiting > 0 && g.grantOne() {
	}
}

// grantOne serves the first line in turn whose first ticket fits, and puts that
// line last.
func (g *Gate) grantOne() bool {
	now := time.Now()
	if wait := g.rate.wait(g.capacity.StartsPerSecond, now); wait > 0 {
		g.wakeIn(wait)
		return false
	}
	for i, l := range g.turns {
		if len(l.tickets) == 0 {
			continue
		}
		bounds := g.quota(l.tenant).bounds(g.capacity)
		t := l.tickets[0]
		if l.used.refuses(t.demand, bounds) != "" || g.used.refuses(t.demand, g.capacity) != "" {
			continue
		}
		if wait := l.rate.wait(bounds.StartsPerSecond, now); wait > 0 {
			g.wakeIn(wait)
			continue
		}
		l.tickets = l.tickets[1:]
		g.waiting--
		l.used.add(t.demand, 1)
		g.used.add(t.demand, 1)
		l.rate.tokens--
		g.rate.tokens--
		g.turns = append(append(g.turns[:i:i], g.turns[i+1:]...), l)
		close(t.granted)
		return true
	}
	return false
}

// wakeIn pumps again when a token has come.
func (g *Gate) wakeIn(d time.Duration) {
	if g.alarm == nil {
		g.alarm = time.AfterFunc(d, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.pump()
		})
		return
	}
	g.alarm.Reset(d)
}

// Close lets nobody in any more; who waits is let in or times out as before.
func (g *Gate) Close(why *sandbox.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = why
}

// Counts says what is taken and how many wait.
func (g *Gate) Counts() (used Load, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used, g.waiting
}
