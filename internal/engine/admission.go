package engine

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"pinfold/sandbox"
)

// Capacity is what the engine takes on at once, for all tenants together. A
// zero field means its default.
type Capacity struct {
	Sandboxes       int           // living at once, those of runs included; default 1024
	Runs            int           // runs at once; default four for each CPU
	MemoryBytes     int64         // the sum of the memory limits; default 4 TiB: limits are seldom used up
	CPUs            float64       // the sum of the CPU limits; default 2048 for each CPU, at least 4 for each sandbox
	StartsPerSecond float64       // default 2000
	Queue           int           // requests that may wait; default 1000
	QueueTimeout    time.Duration // how long one may wait; default 30 s
	Detached        int           // runs of one tenant that nobody waits for, waiting and running; default 100
}

// WithDefaults returns c with its zero fields filled in.
func (c Capacity) WithDefaults() Capacity {
	d := Capacity{
		Sandboxes: 1024, Runs: 4 * runtime.NumCPU(), MemoryBytes: 1 << 42, CPUs: 2048 * float64(runtime.NumCPU()),
		StartsPerSecond: 2000, Queue: 1000, QueueTimeout: 30 * time.Second, Detached: 100,
	}
	fill(&c.Sandboxes, d.Sandboxes)
	fill(&c.Runs, d.Runs)
	fill(&c.MemoryBytes, d.MemoryBytes)
	fill(&c.CPUs, max(d.CPUs, 4*float64(c.Sandboxes))) // what was not given does not end before what was
	fill(&c.StartsPerSecond, d.StartsPerSecond)
	fill(&c.Queue, d.Queue)
	fill(&c.QueueTimeout, d.QueueTimeout)
	fill(&c.Detached, d.Detached)
	return c
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Quota is one tenant's share. A zero field means the whole capacity.
type Quota struct {
	Sandboxes       int     `json:"sandboxes,omitempty"`
	Runs            int     `json:"runs,omitempty"`
	MemoryBytes     int64   `json:"memory_bytes,omitempty"`
	CPUs            float64 `json:"cpus,omitempty"`
	StartsPerSecond float64 `json:"starts_per_second,omitempty"`
}

// bounds returns what a tenant may have at most.
func (q Quota) bounds(c Capacity) Capacity {
	b := c
	lower(&b.Sandboxes, q.Sandboxes)
	lower(&b.Runs, q.Runs)
	lower(&b.MemoryBytes, q.MemoryBytes)
	lower(&b.CPUs, q.CPUs)
	lower(&b.StartsPerSecond, q.StartsPerSecond)
	return b
}

func lower[T int | int64 | float64](field *T, value T) {
	if value > 0 {
		*field = min(*field, value)
	}
}

// demand is what one sandbox takes.
type demand struct {
	run    bool // it counts as a run as well
	memory int64
	cpus   float64
}

// load is what is taken.
type load struct {
	sandboxes, runs int
	memory          int64
	cpus            float64
}

func (l *load) add(d demand, sign int) {
	l.sandboxes += sign
	if d.run {
		l.runs += sign
	}
	l.memory += int64(sign) * d.memory
	l.cpus += float64(sign) * d.cpus
}

// refuses names what a further demand would go beyond, or nothing.
func (l load) refuses(d demand, c Capacity) string {
	l.add(d, 1)
	switch {
	case l.sandboxes > c.Sandboxes:
		return "sandboxes"
	case l.runs > c.Runs:
		return "runs"
	case l.memory > c.MemoryBytes:
		return "memory"
	case l.cpus > c.CPUs+1e-9:
		return "cpus"
	}
	return ""
}

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

// gate admits sandboxes: what does not fit waits, each tenant in its own line,
// and the lines take turns. So a tenant with a thousand requests does not delay
// one with a single request. It is safe for concurrent use.
type gate struct {
	capacity Capacity
	quota    func(tenant string) Quota

	mu      sync.Mutex
	used    load
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
	used    load
	rate    bucket
	tickets []*ticket
}

type ticket struct {
	demand  demand
	late    bool // nobody waits for it: those of the line that somebody waits for go first
	granted chan struct{}
}

func newGate(c Capacity, quota func(string) Quota) *gate {
	if quota == nil {
		quota = func(string) Quota { return Quota{} }
	}
	return &gate{capacity: c.WithDefaults(), quota: quota, lines: map[string]*line{}}
}

// retry is the private part of an error after which it is worth to come back.
type retry struct {
	after time.Duration
	why   string
}

func (r retry) Error() string             { return r.why }
func (r retry) RetryAfter() time.Duration { return r.after }

func busy(code, message, hint string, after time.Duration) *sandbox.Error {
	return &sandbox.Error{Code: code, Message: message, Hint: hint, Err: retry{after, message}}
}

// acquire waits until the demand fits and returns what gives it back.
func (g *gate) acquire(ctx context.Context, tenant string, d demand) (release func(), err error) {
	p, err := g.enter(tenant, d, false)
	if err != nil {
		return nil, err
	}
	return p.wait(ctx)
}

// place is a demand in its line. Whoever has one waits, or leaves.
type place struct {
	gate   *gate
	line   *line
	ticket *ticket
}

// enter joins the tenant's line, or is refused. Where nobody waits for the
// sandbox (late), it stands behind all for which somebody does, and for as long
// as it takes.
func (g *gate) enter(tenant string, d demand, late bool) (*place, error) {
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
	return &place{g, l, t}, nil
}

// leave gives up a place, and what it was granted.
func (p *place) leave() {
	if !p.gate.leave(p.line, p.ticket) {
		p.gate.releaser(p.line, p.ticket.demand)()
	}
}

// wait waits until it is this place's turn and returns what gives back what was
// granted.
func (p *place) wait(ctx context.Context) (release func(), err error) {
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
func (g *gate) timedOut(l *line, d demand) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	lack := g.shortageOf(l, d, g.quota(l.tenant).bounds(g.capacity))
	message := fmt.Sprintf("no room for another sandbox within %v: %v", g.capacity.QueueTimeout, lack)
	return busy(sandbox.CodeBusy, message, lack.hint(), 5*time.Second).WithField(lack.field())
}

// refusal is why a demand may not even wait.
func (g *gate) refusal(l *line, d demand, bounds Capacity) error {
	if g.closed != nil {
		return g.closed
	}
	if what := (load{}).refuses(d, g.capacity); what != "" {
		lack := shortage{what: what}
		return &sandbox.Error{
			Code: sandbox.CodeQuotaExceeded, Field: lack.field(),
			Message: fmt.Sprintf("one sandbox alone would need more than capacity.%s, which is %s", what, g.capacity.show(what)),
			Hint:    "ask for less, or raise capacity." + what + " in the server's configuration",
		}
	}
	if what := (load{}).refuses(d, bounds); what != "" {
		return &sandbox.Error{
			Code: sandbox.CodeQuotaExceeded, Message: "one sandbox alone would need more " + what + " than the tenant may have",
			Hint: "ask for less, or raise the tenant's quota",
		}
	}
	lack := g.shortageOf(l, d, bounds)
	if lack.quota && !d.run {
		return busy(sandbox.CodeQuotaExceeded, lack.String(), lack.hint(), time.Second).WithField(lack.field())
	}
	if g.waiting >= g.capacity.Queue && len(l.tickets) >= g.share() && !g.fitsNow(l, d, bounds) {
		message := fmt.Sprintf("%d requests are waiting already: %v", g.waiting, lack)
		return busy(sandbox.CodeBusy, message, lack.hint(), 2*time.Second).WithField(lack.field())
	}
	return nil
}

// share is how long each tenant's line may be when there are too many in all:
// one long line must not keep others from queueing at all.
func (g *gate) share() int {
	lines := 0
	for _, l := range g.turns {
		if len(l.tickets) > 0 {
			lines++
		}
	}
	return g.capacity.Queue / max(1, lines+1)
}

// fitsNow says whether a demand of that line would be let in at once.
func (g *gate) fitsNow(l *line, d demand, bounds Capacity) bool {
	return len(l.tickets) == 0 && l.used.refuses(d, bounds) == "" && g.used.refuses(d, g.capacity) == ""
}

// leave takes a ticket out of its line. It says whether it was still there.
func (g *gate) leave(l *line, t *ticket) bool {
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

func (g *gate) releaser(l *line, d demand) func() {
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
func (g *gate) line(tenant string) *line {
	l := g.lines[tenant]
	if l == nil {
		l = &line{tenant: tenant}
		g.lines[tenant] = l
		g.turns = append(g.turns, l)
	}
	return l
}

// drop forgets a line that nobody uses. One with a used-up rate stays.
func (g *gate) drop(l *line) {
	if len(l.tickets) > 0 || l.used.sandboxes > 0 || g.lines[l.tenant] != l {
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
func (g *gate) pump() {
	for g.waiting > 0 && g.grantOne() {
	}
}

// grantOne serves the first line in turn whose first ticket fits, and puts that
// line last.
func (g *gate) grantOne() bool {
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
func (g *gate) wakeIn(d time.Duration) {
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

// close lets nobody in any more; who waits is let in or times out as before.
func (g *gate) close(why *sandbox.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = why
}

// counts says what is taken and how many wait.
func (g *gate) counts() (load, int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used, g.waiting
}
