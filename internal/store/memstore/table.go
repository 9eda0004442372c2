package memstore

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"pinfold/internal/engine/records"
	"pinfold/internal/store/paging"
	"pinfold/sandbox"
)

// end notes that an object has ended.
func (t *table) end(k key, bytes int) {
	t.ended = append(t.ended, k)
	t.bytes += bytes
}

// forget takes an object out of the table.
func (t *table) forget(k key) {
	r := t.rows[k]
	delete(t.rows, k)
	if r.done {
		t.bytes -= len(r.body)
		t.ended = slices.DeleteFunc(t.ended, func(e key) bool { return e == k })
	}
}

// unended returns what has not ended, in the order of time.
func (t *table) unended() []key {
	var all []key
	for k, r := range t.rows {
		if !r.done {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b key) int { return t.rows[a].place.Compare(t.rows[b].place) })
	return all
}

// trim drops what ended first where the bounds are exceeded. The newest of
// each kind stays, however large.
func (s *Store) trim() {
	for _, t := range []*table{&s.sandboxes, &s.runs} {
		for len(t.ended) > 1 && (len(t.ended) > s.options.Objects || t.bytes > s.options.Bytes) {
			s.remove(t, t.ended[0])
		}
	}
}

func (s *Store) remove(t *table, k key) {
	once := t.rows[k].run.IdempotencyKey
	t.forget(k)
	if once != "" {
		delete(s.keys, key{k.tenant, once})
	}
}

// summary is a run as it stands in lists.
func (r *row) summary() records.Run {
	record := r.run
	record.Metadata = maps.Clone(record.Metadata)
	return record
}

func (r *row) record() (records.Run, error) {
	record := r.summary()
	if r.body == nil {
		return record, nil
	}
	result, err := decode[sandbox.Result](r.body)
	record.Result = &result
	return record, err
}

func (r *row) matches(q records.Query, states []string) bool {
	if len(states) > 0 && !slices.Contains(states, r.state) {
		return false
	}
	if finished, selects := q.Finished(); selects && finished != r.done {
		return false
	}
	if len(q.Languages) > 0 && !slices.Contains(q.Languages, r.run.Language) {
		return false
	}
	if !q.Since.IsZero() && r.place.At < paging.Nanos(q.Since) || !q.Before.IsZero() && r.place.At >= paging.Nanos(q.Before) {
		return false
	}
	for k, v := range q.Metadata {
		if have, ok := r.metadata[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// list answers a query.
func list[T any](ctx context.Context, s *Store, t *table, tenant string, q records.Query, states []string, get func(*row) (T, error)) (records.Page[T], error) {
	page := records.Page[T]{Items: []T{}}
	if err := ctx.Err(); err != nil {
		return page, sandbox.AsError(err)
	}
	plan, err := paging.Check(q)
	if err != nil {
		return page, err
	}
	sign := -1
	if q.Oldest {
		sign = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*row
	for k, r := range t.rows {
		if k.tenant == tenant && r.matches(q, states) && (plan.After == nil || sign*r.place.Compare(*plan.After) > 0) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *row) int { return sign * a.place.Compare(b.place) })
	if len(found) > plan.Limit {
		found = found[:plan.Limit]
		page.Next = paging.Cursor(found[plan.Limit-1].place, q.Oldest)
	}
	for _, r := range found {
		item, err := get(r)
		if err != nil {
			return page, err
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}

func decode[T any](body []byte) (T, error) {
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		return v, sandbox.AsError(err)
	}
	return v, nil
}

func texts[T ~string](values []T) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}
