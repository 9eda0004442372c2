package store

import (
	"context"
	"encoding/json"
	"slices"

	"pinfold/internal/engine/records"
	"pinfold/internal/headroom"
	"pinfold/internal/policy"
	"pinfold/internal/store/paging"
	"pinfold/sandbox"
)

const runColumns = "created_at, id, tenant, language, metadata, coalesce(idempotency_key, ''), digest, status, cause, coalesce(finished_at, 0)"

// withResult reads a run with its result. The status stands in the row, so
// that a missing result is noticed.
const withResult = "SELECT seq, " + runColumns + ", body FROM runs LEFT JOIN results ON run = seq WHERE tenant = ? AND "

// BeginRun records a run. When the tenant has used its idempotency key before,
// it returns that run instead, with its result if there is one. An id that is
// taken is a conflict.
func (s *Store) BeginRun(ctx context.Context, r records.Run) (*records.Run, error) {
	const doing = "recording a run"
	if err := paging.CheckID("run", r.Tenant, r.ID); err != nil {
		return nil, err
	}
	metadata, err := json.Marshal(r.Metadata)
	if err != nil {
		return nil, s.fault(doing, err)
	}
	var key any
	if r.IdempotencyKey != "" {
		key = r.IdempotencyKey
	}
	facts, err := r.Facts.Encode()
	if err != nil {
		return nil, s.fault(doing, err)
	}
	args := []any{r.Tenant, r.ID, paging.Nanos(r.CreatedAt), r.Language, string(metadata), key, r.Digest, string(facts)}
	var earlier *records.Run
	asked := ctx
	err = s.write(ctx, doing, len(metadata)+len(facts), func(ctx context.Context, w *session) error {
		if key != nil {
			var err error
			if earlier, err = w.runOf(ctx, asked, r.Tenant, r.IdempotencyKey, s); err != nil || earlier != nil {
				return err
			}
		}
		_, err := w.exec(ctx, `INSERT INTO runs (tenant, id, created_at, language, metadata, idempotency_key, digest, facts, status, cause)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', '')`, args...)
		if isDuplicate(err) {
			return paging.InUse("run", r.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return earlier, nil
}

// resultSize is how large the result of a run is, for who bounds the memory that
// it may take, before it is read. SQLite knows it without reading it.
const resultSize = "SELECT coalesce(octet_length(body), 0) FROM runs LEFT JOIN results ON run = seq WHERE tenant = ? AND "

// runOf returns the run that has used an idempotency key, or nil. One that
// cannot be read keeps its key: running again could be running twice.
func (w *session) runOf(ctx, asked context.Context, tenant, key string, s *Store) (*records.Run, error) {
	var seq, size int64
	if err := w.row(ctx, resultSize+"idempotency_key = ?", []any{tenant, key}, &size); err == nil {
		if full := headroom.Take(asked, answerCopies*size); full != nil {
			return nil, full
		}
	}
	dest, get := scanRunAndResult(&seq)
	r, err := scanInto(func(dest ...any) error {
		return w.row(ctx, withResult+"idempotency_key = ?", []any{tenant, key}, dest...)
	}, dest, get)
	switch {
	case err == nil:
		return &r, nil
	case isGone(err):
		return nil, nil
	case seq == 0:
		return nil, err
	}
	s.log.Error("a run that a client asks for again cannot be read", "row", seq, "reason", err)
	return nil, &sandbox.Error{
		Code: sandbox.CodeStateCorrupt, Field: "Idempotency-Key", Message: "a run with this key was recorded, and what became of it cannot be read", Err: err,
		Hint: "use a new key if the program may run once more",
	}
}

// FinishRun records the result of a run, unless it has one.
func (s *Store) FinishRun(ctx context.Context, tenant, id string, result *sandbox.Result) error {
	const doing = "recording a result"
	if result == nil {
		return paging.NoResult(id)
	}
	body, err := json.Marshal(result)
	if err != nil {
		return s.fault(doing, err)
	}
	seen, err := policy.SeenIn(result).Encode()
	if err != nil {
		return s.fault(doing, err)
	}
	var saw any
	if seen != nil {
		saw = string(seen)
	}
	return s.write(ctx, doing, len(body)+len(seen), func(ctx context.Context, w *session) error {
		var seq int64
		err := w.row(ctx, "UPDATE runs SET finished_at = ?, status = ?, cause = ?, seen = ? WHERE tenant = ? AND id = ? AND finished_at IS NULL RETURNING seq",
			[]any{s.now().UnixNano(), string(result.Status), string(result.Cause.Kind), saw, tenant, id}, &seq)
		if isGone(err) {
			err := w.row(ctx, "SELECT seq FROM runs WHERE tenant = ? AND id = ?", []any{tenant, id}, &seq)
			if isGone(err) {
				return paging.NotFound("run", id)
			}
			return err // nil: it has a result
		}
		if err != nil {
			return err
		}
		_, err = w.exec(ctx, "INSERT INTO results (run, body) VALUES (?, ?)", seq, string(body))
		return err
	})
}

// LoadRun returns a run with its result, if there is one.
func (s *Store) LoadRun(ctx context.Context, tenant, id string) (records.Run, error) {
	var size int64
	if err := s.one(ctx, resultSize+"id = ?", []any{tenant, id}, &size); err == nil { // else what follows says why
		if full := headroom.Take(ctx, answerCopies*size); full != nil {
			return records.Run{}, full
		}
	}
	return find(ctx, s, runRows(), withResult+"id = ?", tenant, id, scanRunAndResult)
}

// ListRuns returns the runs that match, in pages, without their results.
func (s *Store) ListRuns(ctx context.Context, tenant string, q records.Query) (records.Page[records.Run], error) {
	return list(ctx, s, tenant, q, listed[records.Run]{
		source: runRows(), columns: "seq, created_at, id, " + runColumns, choice: "status", values: texts(q.Statuses), scan: scanRun,
	})
}

func scanRun(rest ...any) ([]any, func() (records.Run, error)) {
	var r records.Run
	var at, finished int64
	var metadata []byte
	dest := slices.Concat(rest, []any{&at, &r.ID, &r.Tenant, &r.Language, &metadata, &r.IdempotencyKey, &r.Digest, (*string)(&r.Status), (*string)(&r.Cause), &finished})
	return dest, func() (records.Run, error) {
		r.CreatedAt = paging.Time(at)
		if r.Status != "" {
			r.FinishedAt = paging.Time(finished)
		}
		err := json.Unmarshal(metadata, &r.Metadata)
		return r, err
	}
}

func scanRunAndResult(rest ...any) ([]any, func() (records.Run, error)) {
	var body []byte
	dest, get := scanRun(rest...)
	return append(dest, &body), func() (records.Run, error) {
		r, err := get()
		switch {
		case err != nil:
		case body != nil:
			r.Result = new(sandbox.Result)
			err = json.Unmarshal(body, r.Result)
		case r.Status != "":
			err = errNoResult
		}
		return r, err
	}
}

// LastRuns returns the newest finished runs of all tenants as a policy looks at them. One
// that cannot be read is left out.
func (s *Store) LastRuns(ctx context.Context, most int) ([]policy.Past, error) {
	const doing = "reading the last runs"
	st, err := s.stmt(ctx, `SELECT id, created_at, facts, coalesce(seen, '') FROM runs
		WHERE facts IS NOT NULL AND finished_at IS NOT NULL ORDER BY created_at DESC, seq DESC LIMIT ?`)
	if err != nil {
		return nil, s.fault(doing, err)
	}
	rows, err := st.QueryContext(ctx, most)
	if err != nil {
		return nil, s.fault(doing, err)
	}
	defer drop(rows)
	var all []policy.Past
	for rows.Next() {
		var p policy.Past
		var at int64
		var facts, seen []byte
		if err := rows.Scan(&p.ID, &at, &facts, &seen); err != nil {
			return nil, s.fault(doing, err)
		}
		p.CreatedAt = paging.Time(at)
		if p.Facts.Decode(facts, seen) == nil {
			all = append(all, p)
		}
	}
	return all, s.fault(doing, rows.Err())
}
