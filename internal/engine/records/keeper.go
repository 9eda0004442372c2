package records

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"pinfold/internal/headroom"
	"pinfold/sandbox"
)

// Keeper is a store behind which nothing is lost while it cannot write, such as on a
// full disk: what it would not take is kept in memory, within bounds, answered from
// there, and tried again. Of a nil Keeper only Account, KeepSandbox, KeepResult, Flush
// and Unwritten may be called, which do nothing then. It is safe for concurrent use.
type Keeper struct {
	Store

	log      *slog.Logger
	accounts accounts

	saving sync.RWMutex // held for writing while an old description may be written

	mu        sync.Mutex
	sandboxes map[string]Sandbox // that are not written, by id
	results   map[string]unwritten

	asking   sync.Mutex // of the fields below, and while the store is asked
	askedAt  time.Time
	notReady error
}

// unwritten is a result that is not written.
type unwritten struct {
	tenant string
	result *sandbox.Result
}

// maxUnwritten bounds how many results wait to be written, and how many descriptions
// of sandboxes. Those that live are bounded by the capacity.
const maxUnwritten = 10_000

// How often things are done.
const (
	flushEvery = time.Second // what waits is written; a killed process loses no more of its accounts
	pruneEvery = 10 * time.Minute
	readyEvery = time.Second // the store is asked: everybody may ask us
)

// NewKeeper returns the keeper of a store, which it does not close. Maintain must run.
func NewKeeper(s Store, log *slog.Logger) *Keeper {
	return &Keeper{Store: s, log: log, sandboxes: map[string]Sandbox{}, results: map[string]unwritten{}}
}

// Maintain writes what waits to be written, and removes what is older than retention (0:
// nothing), until quit is closed. Flush follows.
func (k *Keeper) Maintain(quit <-chan struct{}, retention time.Duration) {
	var pruning sync.WaitGroup
	defer pruning.Wait()
	if retention > 0 {
		pruning.Go(func() {
			every(pruneEvery, quit, func() {
				if _, err := k.Prune(context.Background(), time.Now().Add(-retention)); err != nil {
					k.log.Error("cannot remove old records", "error", err)
				}
			})
		})
	}
	every(flushEvery, quit, k.Flush)
}

// every calls f now and again and again until quit is closed.
func every(pause time.Duration, quit <-chan struct{}, f func()) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		f()
		select {
		case <-quit:
			return
		case <-ticker.C:
		}
	}
}

// Flush tries to write everything that waits.
func (k *Keeper) Flush() {
	if k == nil {
		return
	}
	k.flushAccounts()
	k.mu.Lock()
	sandboxes, results := maps.Clone(k.sandboxes), maps.Clone(k.results)
	k.mu.Unlock()
	for id := range sandboxes {
		k.flushSandbox(id)
	}
	for id, r := range results {
		k.KeepResult(r.tenant, id, r.result)
	}
}

// Unwritten is how many descriptions and results wait to be written.
func (k *Keeper) Unwritten() int {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.sandboxes) + len(k.results)
}

// Ready is the store's, asked at most once in a second.
func (k *Keeper) Ready(ctx context.Context) error {
	k.asking.Lock()
	defer k.asking.Unlock()
	if k.askedAt.IsZero() || time.Since(k.askedAt) >= readyEvery {
		k.notReady, k.askedAt = k.Store.Ready(context.WithoutCancel(ctx)), time.Now()
	}
	return k.notReady
}

// KeepSandbox records a sandbox's description now or later. Calls for one sandbox come
// one after another.
func (k *Keeper) KeepSandbox(tenant string, info sandbox.Info) {
	if k == nil {
		return
	}
	k.saving.RLock() // flushSandbox must not write an old description after this one
	defer k.saving.RUnlock()
	k.trySandbox(Sandbox{Tenant: tenant, Info: info})
}

func (k *Keeper) trySandbox(s Sandbox) {
	err := k.SaveSandbox(context.Background(), s.Tenant, s.Info)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		delete(k.sandboxes, s.Info.ID)
		return
	}
	k.log.Error("cannot record a sandbox; it is tried again", "sandbox", s.Info.ID, "state", string(s.Info.State), "error", err)
	if len(k.sandboxes) < maxUnwritten {
		k.sandboxes[s.Info.ID] = s
	}
}

func (k *Keeper) flushSandbox(id string) {
	k.saving.Lock()
	defer k.saving.Unlock()
	k.mu.Lock()
	s, still := k.sandboxes[id]
	k.mu.Unlock()
	if still {
		k.trySandbox(s)
	}
}

// unwrittenOf returns the description of a tenant's sandbox that the store does not
// have yet.
func (k *Keeper) unwrittenOf(tenant, id string) (sandbox.Info, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.sandboxes[id]
	return s.Info, ok && s.Tenant == tenant
}

// LoadSandbox returns what is recorded of a sandbox, or is going to be.
func (k *Keeper) LoadSandbox(ctx context.Context, tenant, id string) (sandbox.Info, error) {
	if info, ok := k.unwrittenOf(tenant, id); ok {
		return info, nil
	}
	return k.Store.LoadSandbox(ctx, tenant, id)
}

// ListSandboxes lists what is recorded, as LoadSandbox returns each.
func (k *Keeper) ListSandboxes(ctx context.Context, tenant string, q Query) (Page[sandbox.Info], error) {
	page, err := k.Store.ListSandboxes(ctx, tenant, q)
	for i, info := range page.Items {
		if newer, ok := k.unwrittenOf(tenant, info.ID); ok {
			page.Items[i] = newer
		}
	}
	return page, err
}

// KeepResult records the result of a run now or later.
func (k *Keeper) KeepResult(tenant, id string, r *sandbox.Result) {
	if k == nil {
		return
	}
	err := k.FinishRun(context.Background(), tenant, id, r)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		delete(k.results, id)
		return
	}
	k.log.Error("cannot record the result of a run; it is tried again", "run", id, "error", err)
	if len(k.results) < maxUnwritten {
		k.results[id] = unwritten{tenant, r}
	}
}

// LoadRun returns a run with its result, also where that waits to be recorded.
func (k *Keeper) LoadRun(ctx context.Context, tenant, id string) (Run, error) {
	k.mu.Lock()
	waits, ok := k.results[id]
	k.mu.Unlock()
	r, err := k.Store.LoadRun(ctx, tenant, id)
	if err != nil || r.Status != "" || !ok {
		return r, err
	}
	if err := headroom.Take(ctx, headroom.OfResult(waits.result)); err != nil {
		return r, err
	}
	return r.Finished(waits.result), nil
}
