package storetest

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// model is the store as one would write it down: lists, and nothing clever.
type model struct {
	store     records.Store
	clock     time.Time
	sandboxes []records.Sandbox
	runs      []*modelRun
}

type modelRun struct {
	record   records.Run
	finished time.Time
}

func testModel(t *testing.T, open Make) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{clock: at(0)}
		s, done, err := open(func() time.Time { return m.clock })
		if err != nil {
			rt.Fatal(err)
		}
		defer done()
		m.store = s
		rt.Repeat(map[string]func(*rapid.T){
			"saveSandbox":   m.saveSandbox,
			"beginRun":      m.beginRun,
			"finishRun":     m.finishRun,
			"listSandboxes": m.listSandboxes,
			"listRuns":      m.listRuns,
			"prune":         m.prune,
			"":              m.check,
		})
	})
}

func drawTenant(t *rapid.T) string { return rapid.SampledFrom([]string{"t", "u"}).Draw(t, "tenant") }

func drawTime(t *rapid.T) time.Time {
	return at(0).Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "time")) * time.Millisecond)
}

func drawMetadata(t *rapid.T) map[string]string {
	m := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", `"`}), rapid.SampledFrom([]string{"", "1", `\`}), 0, 2).Draw(t, "metadata")
	if len(m) == 0 {
		return nil
	}
	return m
}

func (m *model) saveSandbox(t *rapid.T) {
	tenant := drawTenant(t)
	info := someInfo(rapid.StringMatching(`sbx_[a-f]`).Draw(t, "id"), 0)
	info.CreatedAt, info.Metadata = drawTime(t), drawMetadata(t)
	info.State = rapid.SampledFrom(sandbox.States()).Draw(t, "state")
	if info.State == sandbox.StateEnded {
		end := drawTime(t)
		info.EndedAt = &end
	}
	i := slices.IndexFunc(m.sandboxes, func(o records.Sandbox) bool { return o.Tenant == tenant && o.Info.ID == info.ID })
	if i >= 0 { // a sandbox is made once
		info.CreatedAt = m.sandboxes[i].Info.CreatedAt
	}
	if err := m.store.SaveSandbox(context.Background(), tenant, info); err != nil {
		t.Fatal(err)
	}
	if i >= 0 {
		m.sandboxes[i].Info = info
		return
	}
	m.sandboxes = append(m.sandboxes, records.Sandbox{Tenant: tenant, Info: info})
}

func (m *model) beginRun(t *rapid.T) {
	r := records.Run{
		ID: rapid.StringMatching(`run_[a-h]`).Draw(t, "id"), Tenant: drawTenant(t), CreatedAt: drawTime(t), Language: rapid.SampledFrom([]string{"python", "sh"}).Draw(t, "language"), Metadata: drawMetadata(t),
		IdempotencyKey: rapid.SampledFrom([]string{"", "k", "l"}).Draw(t, "key"), Digest: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "digest"),
	}
	earlier, err := m.store.BeginRun(context.Background(), r)
	for _, have := range m.runs {
		if r.IdempotencyKey != "" && have.record.Tenant == r.Tenant && have.record.IdempotencyKey == r.IdempotencyKey {
			if err != nil || earlier == nil {
				t.Fatal("the earlier run was not found", err)
			}
			equal(t, *earlier, have.record)
			return
		}
	}
	if m.run(r.Tenant, r.ID) != nil {
		if sandbox.AsError(err) == nil || sandbox.AsError(err).Code != sandbox.CodeConflict {
			t.Fatal("an id was used twice", err)
		}
		return
	}
	if err != nil || earlier != nil {
		t.Fatal(earlier, err)
	}
	m.runs = append(m.runs, &modelRun{record: r})
}

func (m *model) run(tenant, id string) *modelRun {
	for _, r := range m.runs {
		if r.record.Tenant == tenant && r.record.ID == id {
			return r
		}
	}
	return nil
}

func (m *model) finishRun(t *rapid.T) {
	tenant, id := drawTenant(t), rapid.StringMatching(`run_[a-h]`).Draw(t, "id")
	result := &sandbox.Result{ID: id, Status: rapid.SampledFrom([]sandbox.Status{sandbox.StatusSucceeded, sandbox.StatusKilled}).Draw(t, "status")}
	m.clock = drawTime(t)
	err := m.store.FinishRun(context.Background(), tenant, id, result)
	r := m.run(tenant, id)
	switch {
	case r == nil:
		if sandbox.AsError(err) == nil || sandbox.AsError(err).Code != sandbox.CodeNotFound {
			t.Fatal("a run was finished that there is not", err)
		}
	case err != nil:
		t.Fatal(err)
	case r.record.Result == nil:
		r.record.Result, r.record.Status, r.record.Cause, r.finished = result, result.Status, result.Cause.Kind, m.clock
		r.record.FinishedAt = m.clock
	}
}

func drawQuery(t *rapid.T) records.Query {
	return records.Query{Oldest: rapid.Bool().Draw(t, "oldest"), Limit: rapid.IntRange(1, 4).Draw(t, "limit"), Metadata: drawMetadata(t)}
}

func (m *model) listSandboxes(t *rapid.T) {
	tenant, q := drawTenant(t), drawQuery(t)
	q.States = rapid.SliceOfN(rapid.SampledFrom(sandbox.States()), 0, 2).Draw(t, "states")
	want := []sandbox.Info{}
	for _, o := range m.sandboxes {
		if o.Tenant == tenant && (len(q.States) == 0 || slices.Contains(q.States, o.Info.State)) && contains(o.Info.Metadata, q.Metadata) {
			want = append(want, o.Info)
		}
	}
	order(want, q.Oldest, func(i sandbox.Info) (time.Time, string) { return i.CreatedAt, i.ID })
	equal(t, pages(t, q, func(q records.Query) (records.Page[sandbox.Info], error) {
		return m.store.ListSandboxes(context.Background(), tenant, q)
	}), want)
}

func (m *model) listRuns(t *rapid.T) {
	tenant, q := drawTenant(t), drawQuery(t)
	q.Statuses = rapid.SliceOfN(rapid.SampledFrom([]sandbox.Status{"", sandbox.StatusSucceeded, sandbox.StatusKilled}), 0, 2).Draw(t, "statuses")
	q.RunStates = rapid.SliceOfN(rapid.SampledFrom(sandbox.RunStates()), 0, 2).Draw(t, "run states")
	q.Languages = rapid.SliceOfN(rapid.SampledFrom([]string{"python", "sh", "r"}), 0, 2).Draw(t, "languages")
	if rapid.Bool().Draw(t, "bounded in time") {
		q.Since, q.Before = drawTime(t), drawTime(t)
	}
	want := []records.Run{}
	for _, r := range m.runs {
		record := r.record
		record.Result = nil
		if record.Tenant == tenant && (len(q.Statuses) == 0 || slices.Contains(q.Statuses, record.Status)) && contains(record.Metadata, q.Metadata) && selected(q, record) {
			want = append(want, record)
		}
	}
	order(want, q.Oldest, func(r records.Run) (time.Time, string) { return r.CreatedAt, r.ID })
	equal(t, pages(t, q, func(q records.Query) (records.Page[records.Run], error) {
		return m.store.ListRuns(context.Background(), tenant, q)
	}), want)
}

// selected says whether a run is of the states, languages and times of a query.
func selected(q records.Query, r records.Run) bool {
	state := func(s sandbox.RunState) bool { return (s == sandbox.RunFinished) == (r.Status != "") }
	switch {
	case len(q.RunStates) > 0 && !slices.ContainsFunc(q.RunStates, state):
		return false
	case len(q.Languages) > 0 && !slices.Contains(q.Languages, r.Language):
		return false
	}
	return q.Since.IsZero() || !r.CreatedAt.Before(q.Since) && r.CreatedAt.Before(q.Before)
}

func (m *model) prune(t *rapid.T) {
	before := drawTime(t)
	n, err := m.store.Prune(context.Background(), before)
	if err != nil {
		t.Fatal(err)
	}
	had := len(m.runs) + len(m.sandboxes)
	m.runs = slices.DeleteFunc(m.runs, func(r *modelRun) bool { return r.record.Result != nil && r.finished.Before(before) })
	m.sandboxes = slices.DeleteFunc(m.sandboxes, func(o records.Sandbox) bool {
		return o.Info.EndedAt != nil && o.Info.State == sandbox.StateEnded && o.Info.EndedAt.Before(before)
	})
	if want := had - len(m.runs) - len(m.sandboxes); n != want {
		t.Fatalf("%d objects were removed, not %d", n, want)
	}
}

// check holds after every step. It looks at one run of each tenant: all of
// them come by in the end.
func (m *model) check(t *rapid.T) {
	for _, tenant := range []string{"t", "u"} {
		id := rapid.StringMatching(`run_[a-h]`).Draw(t, "id")
		got, err := m.store.LoadRun(context.Background(), tenant, id)
		if want := m.run(tenant, id); want != nil {
			if err != nil {
				t.Fatal(err)
			}
			equal(t, got, want.record)
		} else if sandbox.AsError(err) == nil || sandbox.AsError(err).Code != sandbox.CodeNotFound {
			t.Fatal(id, "is there and should not be", err)
		}
	}
	living, runs, err := m.store.Unfinished(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range m.sandboxes {
		if found := slices.ContainsFunc(living, func(l records.Sandbox) bool { return l.Tenant == o.Tenant && l.Info.ID == o.Info.ID }); found == (o.Info.State == sandbox.StateEnded) {
			t.Fatal(o.Info.ID, o.Info.State, "is unfinished:", found)
		}
	}
	for _, r := range m.runs {
		if found := slices.ContainsFunc(runs, func(l records.Run) bool { return l.Tenant == r.record.Tenant && l.ID == r.record.ID }); found == (r.record.Result != nil) {
			t.Fatal(r.record.ID, "is unfinished:", found)
		}
	}
}

func pages[T any](t *rapid.T, q records.Query, list func(records.Query) (records.Page[T], error)) []T {
	all := []T{}
	for range 100 {
		page, err := list(q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Items) > q.Limit || page.Next != "" && len(page.Items) < q.Limit {
			t.Fatalf("a page of %d, with more to come: %v", len(page.Items), page.Next != "")
		}
		all = append(all, page.Items...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return all
		}
	}
	t.Fatal("the pages do not end")
	return nil
}

func contains(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func order[T any](items []T, oldest bool, place func(T) (time.Time, string)) {
	slices.SortFunc(items, func(a, b T) int {
		ta, ia := place(a)
		tb, ib := place(b)
		c := cmp.Or(ta.Compare(tb), cmp.Compare(ia, ib))
		if oldest {
			return c
		}
		return -c
	})
}

func equal(t *rapid.T, got, want any) {
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}
