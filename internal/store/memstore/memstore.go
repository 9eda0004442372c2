// Package memstore is an records.Store that keeps everything in memory, for a
// program that runs sandboxes in process and for tests. It is bounded: of what
// has ended, only the newest objects stay. It survives nothing.
package memstore

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/internal/policy"
	"pinfold/internal/store/paging"
	"pinfold/sandbox"
)

// Options bound what is kept of objects that have ended, and of accounts. What
// is alive is always kept.
type Options struct {
	Objects int              // sandboxes, and as many runs; 0: 1000
	Bytes   int              // of descriptions and results; 0: 64 MiB
	Days    int              // of accounts, of all tenants; 0: 1000
	Now     func() time.Time // by which runs finish; nil: the time of day
}

// Store is an records.Store in memory. It is safe for concurrent use.
type Store struct {
	options Options

	mu        sync.Mutex
	sandboxes table
	runs      table
	keys      map[key]key // (tenant, idempotency key) to (tenant, run)
	usage     map[key]records.Consumption
	snapshots map[key]records.Snapshot
}

// key names an object within its tenant.
type key struct{ tenant, id string }

// table is one kind of objects, and those that have ended in that order.
type table struct {
	rows  map[key]*row
	ended []key
	bytes int // of those that have ended
}

// row is one object. Descriptions and results are kept as JSON, so that nobody
// shares memory with the store.
type row struct {
	place    paging.Place
	endedAt  int64
	done     bool
	state    string
	metadata map[string]string
	body     []byte
	run      records.Run // of a run: without result
	machine  []byte      // of a sandbox, or nil
	facts    []byte      // of a run, for a policy
	seen     []byte      // in it by a scan, or nil
}

// New returns an empty store.
func New(o Options) *Store {
	o.Objects = cmp.Or(o.Objects, 1000)
	o.Bytes = cmp.Or(o.Bytes, 64<<20)
	o.Days = cmp.Or(o.Days, 1000)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{
		options: o, keys: make(map[key]key), usage: make(map[key]records.Consumption), snapshots: make(map[key]records.Snapshot),
		sandboxes: table{rows: make(map[key]*row)}, runs: table{rows: make(map[key]*row)},
	}
}

// SaveSandbox inserts or replaces a sandbox's description.
func (s *Store) SaveSandbox(ctx context.Context, tenant string, info sandbox.Info) error {
	if err := cmp.Or(ctx.Err(), paging.CheckID("sandbox", tenant, info.ID)); err != nil {
		return sandbox.AsError(err)
	}
	body, err := json.Marshal(info)
	if err != nil {
		return sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{tenant, info.ID}
	r := &row{
		place: paging.Place{At: paging.Nanos(info.CreatedAt), ID: info.ID}, state: string(info.State),
		metadata: maps.Clone(info.Metadata), body: body, done: info.State == sandbox.StateEnded,
	}
	if r.endedAt = r.place.At; info.EndedAt != nil {
		r.endedAt = paging.Nanos(*info.EndedAt)
	}
	if old := s.sandboxes.rows[k]; old != nil {
		r.place, r.machine = old.place, old.machine
		s.sandboxes.forget(k)
	}
	s.sandboxes.rows[k] = r
	if r.done {
		s.sandboxes.end(k, len(body))
		s.trim()
	}
	return nil
}

// SaveMachine adds to a sandbox what is needed to go on with it after a restart.
func (s *Store) SaveMachine(ctx context.Context, tenant, id string, m records.Machine) error {
	body, err := json.Marshal(m)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.sandboxes.rows[key{tenant, id}]; r != nil && !r.done {
		r.machine = body
	}
	return nil
}

// LoadSandbox returns a sandbox's description.
func (s *Store) LoadSandbox(ctx context.Context, tenant, id string) (sandbox.Info, error) {
	var info sandbox.Info
	if err := ctx.Err(); err != nil {
		return info, sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.sandboxes.rows[key{tenant, id}]
	if r == nil {
		return info, paging.NotFound("sandbox", id)
	}
	return decode[sandbox.Info](r.body)
}

// ListSandboxes returns the sandboxes that match, in pages.
func (s *Store) ListSandboxes(ctx context.Context, tenant string, q records.Query) (records.Page[sandbox.Info], error) {
	return list(ctx, s, &s.sandboxes, tenant, q, texts(q.States), func(r *row) (sandbox.Info, error) { return decode[sandbox.Info](r.body) })
}

// BeginRun records a run, or returns the earlier one with its idempotency key.
func (s *Store) BeginRun(ctx context.Context, r records.Run) (*records.Run, error) {
	if err := cmp.Or(ctx.Err(), paging.CheckID("run", r.Tenant, r.ID)); err != nil {
		return nil, sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	once := key{r.Tenant, r.IdempotencyKey}
	if earlier, ok := s.keys[once]; ok && r.IdempotencyKey != "" {
		record, err := s.runs.rows[earlier].record()
		return &record, err
	}
	k := key{r.Tenant, r.ID}
	if s.runs.rows[k] != nil {
		return nil, paging.InUse("run", r.ID)
	}
	facts, err := r.Facts.Encode()
	if err != nil {
		return nil, sandbox.AsError(err)
	}
	r.Facts = policy.Facts{}
	at := paging.Nanos(r.CreatedAt)
	r.CreatedAt, r.Metadata, r.Result, r.Status, r.Cause = paging.Time(at), maps.Clone(r.Metadata), nil, "", ""
	r.FinishedAt, r.StartedAt, r.State = time.Time{}, time.Time{}, ""
	s.runs.rows[k] = &row{place: paging.Place{At: at, ID: r.ID}, metadata: r.Metadata, run: r, facts: facts}
	if r.IdempotencyKey != "" {
		s.keys[once] = k
	}
	return nil, nil
}

// FinishRun records the result of a run, unless it has one.
func (s *Store) FinishRun(ctx context.Context, tenant, id string, result *sandbox.Result) error {
	if err := ctx.Err(); err != nil {
		return sandbox.AsError(err)
	}
	if result == nil {
		return paging.NoResult(id)
	}
	body, err := json.Marshal(result)
	if err != nil {
		return sandbox.AsError(err)
	}
	seen, err := policy.SeenIn(result).Encode()
	if err != nil {
		return sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{tenant, id}
	r := s.runs.rows[k]
	switch {
	case r == nil:
		return paging.NotFound("run", id)
	case r.done:
		return nil
	}
	r.done, r.endedAt, r.body, r.state, r.seen = true, s.options.Now().UnixNano(), body, string(result.Status), seen
	r.run.Status, r.run.Cause, r.run.FinishedAt = result.Status, result.Cause.Kind, paging.Time(r.endedAt)
	s.runs.end(k, len(body))
	s.trim()
	return nil
}

// LoadRun returns a run with its result, if there is one.
func (s *Store) LoadRun(ctx context.Context, tenant, id string) (records.Run, error) {
	if err := ctx.Err(); err != nil {
		return records.Run{}, sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs.rows[key{tenant, id}]
	if r == nil {
		return records.Run{}, paging.NotFound("run", id)
	}
	return r.record()
}

// ListRuns returns the runs that match, in pages, without their results.
func (s *Store) ListRuns(ctx context.Context, tenant string, q records.Query) (records.Page[records.Run], error) {
	return list(ctx, s, &s.runs, tenant, q, texts(q.Statuses), func(r *row) (records.Run, error) { return r.summary(), nil })
}

// LastRuns returns the newest finished runs of all tenants as a policy looks at them.
func (s *Store) LastRuns(ctx context.Context, most int) ([]policy.Past, error) {
	if err := ctx.Err(); err != nil {
		return nil, sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []policy.Past
	for _, k := range s.runs.ended {
		r := s.runs.rows[k]
		p := policy.Past{ID: r.run.ID, CreatedAt: r.run.CreatedAt}
		if p.Facts.Decode(r.facts, r.seen) == nil {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b policy.Past) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return all[:min(most, len(all))], nil
}

// Unfinished returns the sandboxes that have not ended and the runs without a
// result, of all tenants, the oldest first.
func (s *Store) Unfinished(ctx context.Context) ([]records.Sandbox, []records.Run, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var living []records.Sandbox
	for _, k := range s.sandboxes.unended() {
		info, err := decode[sandbox.Info](s.sandboxes.rows[k].body)
		if err != nil {
			return nil, nil, err
		}
		o := records.Sandbox{Tenant: k.tenant, Info: info}
		if machine := s.sandboxes.rows[k].machine; machine != nil {
			if o.Machine, err = decode[*records.Machine](machine); err != nil {
				return nil, nil, err
			}
		}
		living = append(living, o)
	}
	var runs []records.Run
	for _, k := range s.runs.unended() {
		runs = append(runs, s.runs.rows[k].summary())
	}
	return living, runs, nil
}

// AddUsage adds to a tenant's account of one day (UTC).
func (s *Store) AddUsage(ctx context.Context, tenant string, day time.Time, u records.Consumption) error {
	if err := ctx.Err(); err != nil {
		return sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{tenant, day.UTC().Format(time.DateOnly)}
	old, known := s.usage[k]
	if !known && len(s.usage) >= s.options.Days {
		delete(s.usage, slices.MinFunc(slices.Collect(maps.Keys(s.usage)), func(a, b key) int { return cmp.Compare(a.id, b.id) }))
	}
	s.usage[k] = old.Plus(u)
	return nil
}

// UsageOf returns the days from and to (UTC), both included, in order.
func (s *Store) UsageOf(ctx context.Context, tenant string, from, to time.Time) ([]records.DayUsage, error) {
	if err := ctx.Err(); err != nil {
		return nil, sandbox.AsError(err)
	}
	first, last := from.UTC().Format(time.DateOnly), to.UTC().Format(time.DateOnly)
	s.mu.Lock()
	defer s.mu.Unlock()
	days := []records.DayUsage{}
	for k, u := range s.usage {
		if k.tenant == tenant && first <= k.id && k.id <= last {
			days = append(days, records.DayUsage{Day: k.id, Consumption: u})
		}
	}
	slices.SortFunc(days, func(a, b records.DayUsage) int { return cmp.Compare(a.Day, b.Day) })
	return days, nil
}

// Ready returns nil: there is no disk that could be full.
func (s *Store) Ready(context.Context) error { return nil }

// Prune removes sandboxes that ended and runs that finished before a time, and
// says how many.
func (s *Store) Prune(ctx context.Context, before time.Time) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, sandbox.AsError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	limit := paging.Nanos(before)
	for _, t := range []*table{&s.sandboxes, &s.runs} {
		for _, k := range slices.Clone(t.ended) {
			if t.rows[k].endedAt < limit {
				s.remove(t, k)
				n++
			}
		}
	}
	return n, nil
}
