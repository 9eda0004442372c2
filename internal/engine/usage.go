package engine

import (
	"context"
	"sync"
	"time"

	"pinfold/sandbox"
)

// usageEvery is how often usage is written to the store. A process that is
// killed loses at most that much of its tenants' accounts.
const usageEvery = time.Second

// accounts gathers what tenants used, so that a run does not wait for the
// account. It is safe for concurrent use.
type accounts struct {
	mu      sync.Mutex
	pending map[account]Consumption
	writing sync.Mutex // one flush at a time, so that a reader sees all before it
}

// account is one tenant's day, in UTC.
type account struct {
	tenant string
	day    string
}

func (c *Consumption) add(more Consumption) {
	c.Runs += more.Runs
	c.Sandboxes += more.Sandboxes
	c.CPUMS += more.CPUMS
	c.WallMS += more.WallMS
	c.MemoryMiBMS += more.MemoryMiBMS
	c.OutputBytes += more.OutputBytes
	c.ArtifactBytes += more.ArtifactBytes
}

// account adds to a tenant's usage of today.
func (e *Engine) account(tenant string, c Consumption) {
	if e.options.Store == nil {
		return
	}
	key := account{tenant, time.Now().UTC().Format(time.DateOnly)}
	e.accounts.mu.Lock()
	defer e.accounts.mu.Unlock()
	if e.accounts.pending == nil {
		e.accounts.pending = map[account]Consumption{}
	}
	sum := e.accounts.pending[key]
	sum.add(c)
	e.accounts.pending[key] = sum
}

// flushUsage writes what was gathered. What the store refuses is kept for the
// next time.
func (e *Engine) flushUsage() {
	e.accounts.writing.Lock()
	defer e.accounts.writing.Unlock()
	e.accounts.mu.Lock()
	pending := e.accounts.pending
	e.accounts.pending = nil
	e.accounts.mu.Unlock()
	for key, c := range pending {
		day, err := time.Parse(time.DateOnly, key.day)
		if err == nil {
			err = e.options.Store.AddUsage(context.Background(), key.tenant, day, c)
		}
		if err != nil {
			e.log.Error("cannot record usage; it is tried again", "tenant", key.tenant, "error", err)
			e.putBack(key, c)
		}
	}
}

func (e *Engine) putBack(key account, c Consumption) {
	e.accounts.mu.Lock()
	defer e.accounts.mu.Unlock()
	if e.accounts.pending == nil {
		e.accounts.pending = map[account]Consumption{}
	}
	sum := e.accounts.pending[key]
	sum.add(c)
	e.accounts.pending[key] = sum
}

// keepAccounts writes usage now and then until the engine closes.
func (e *Engine) keepAccounts() {
	ticker := time.NewTicker(usageEvery)
	defer ticker.Stop()
	for {
		select {
		case <-e.quit:
			return
		case <-ticker.C:
			e.flushUsage()
			e.flushUnsaved()
		}
	}
}

// Usage returns a tenant's account of the days from and to, both included.
func (e *Engine) Usage(ctx context.Context, tenant string, from, to time.Time) ([]DayUsage, error) {
	if e.options.Store == nil {
		return nil, nil
	}
	e.flushUsage()
	days, err := e.options.Store.UsageOf(ctx, tenant, from, to)
	if err != nil {
		return nil, sandbox.AsError(err)
	}
	return days, nil
}
