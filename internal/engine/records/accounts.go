package records

import (
	"context"
	"sync"
	"time"

	"pinfold/sandbox"
)

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

func (a *accounts) add(key account, c Consumption) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending == nil {
		a.pending = map[account]Consumption{}
	}
	a.pending[key] = a.pending[key].Plus(c)
}

// Account adds to a tenant's usage of today. A process that is killed loses at most
// what came since the last Flush.
func (k *Keeper) Account(tenant string, c Consumption) {
	if k != nil {
		k.accounts.add(account{tenant, time.Now().UTC().Format(time.DateOnly)}, c)
	}
}

// flushAccounts writes what was gathered. What the store refuses is kept for the
// next time.
func (k *Keeper) flushAccounts() {
	a := &k.accounts
	a.writing.Lock()
	defer a.writing.Unlock()
	a.mu.Lock()
	pending := a.pending
	a.pending = nil
	a.mu.Unlock()
	for key, c := range pending {
		day, err := time.Parse(time.DateOnly, key.day)
		if err == nil {
			err = k.AddUsage(context.Background(), key.tenant, day, c)
		}
		if err != nil {
			k.log.Error("cannot record usage; it is tried again", "tenant", key.tenant, "error", err)
			a.add(key, c)
		}
	}
}

// UsageOf returns a tenant's account of the days from and to, both included, with
// all that was added before.
func (k *Keeper) UsageOf(ctx context.Context, tenant string, from, to time.Time) ([]DayUsage, error) {
	k.flushAccounts()
	days, err := k.Store.UsageOf(ctx, tenant, from, to)
	if err != nil {
		return nil, sandbox.AsError(err)
	}
	return days, nil
}
