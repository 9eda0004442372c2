package store

import (
	"context"
	"slices"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/internal/store/paging"
)

// pruneAtOnce is how many objects one transaction removes: others want to
// write meanwhile.
const pruneAtOnce = 200

// AddUsage adds to a tenant's account of one day (UTC).
func (s *Store) AddUsage(ctx context.Context, tenant string, day time.Time, u records.Consumption) error {
	args := []any{tenant, day.UTC().Format(time.DateOnly), u.Runs, u.Sandboxes, u.CPUMS, u.WallMS, u.MemoryMiBMS, u.OutputBytes, u.ArtifactBytes}
	return s.write(ctx, "recording usage", 0, func(ctx context.Context, w *session) error {
		_, err := w.exec(ctx, `INSERT INTO usage (tenant, day, runs, sandboxes, cpu_ms, wall_ms, memory_mb_ms, output_bytes, artifact_bytes)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (tenant, day) DO UPDATE SET runs = runs + excluded.runs, sandboxes = sandboxes + excluded.sandboxes,
			cpu_ms = cpu_ms + excluded.cpu_ms, wall_ms = wall_ms + excluded.wall_ms, memory_mb_ms = memory_mb_ms + excluded.memory_mb_ms,
			output_bytes = output_bytes + excluded.output_bytes, artifact_bytes = artifact_bytes + excluded.artifact_bytes`, args...)
		return err
	})
}

// UsageOf returns the days from and to (UTC), both included, in order. Days
// without use are missing.
func (s *Store) UsageOf(ctx context.Context, tenant string, from, to time.Time) ([]records.DayUsage, error) {
	const doing = "reading usage"
	st, err := s.stmt(ctx, `SELECT day, runs, sandboxes, cpu_ms, wall_ms, memory_mb_ms, output_bytes, artifact_bytes
		FROM usage WHERE tenant = ? AND day BETWEEN ? AND ? ORDER BY day`)
	if err != nil {
		return nil, s.fault(doing, err)
	}
	rows, err := st.QueryContext(ctx, tenant, from.UTC().Format(time.DateOnly), to.UTC().Format(time.DateOnly))
	if err != nil {
		return nil, s.fault(doing, err)
	}
	defer drop(rows)
	days := []records.DayUsage{}
	for rows.Next() {
		var d records.DayUsage
		if err := rows.Scan(&d.Day, &d.Runs, &d.Sandboxes, &d.CPUMS, &d.WallMS, &d.MemoryMiBMS, &d.OutputBytes, &d.ArtifactBytes); err != nil {
			return nil, s.fault(doing, err)
		}
		days = append(days, d)
	}
	return days, s.fault(doing, rows.Err())
}

// Prune removes sandboxes that ended and runs that finished before a time, and
// says how many. Usage stays. An error in the middle leaves the rest for the
// next time.
func (s *Store) Prune(ctx context.Context, before time.Time) (int, error) {
	total, limit := 0, paging.Nanos(before)
	for _, p := range []struct{ find, remove string }{
		{"SELECT seq FROM runs WHERE finished_at < ?", "DELETE FROM runs WHERE seq = ? AND finished_at < ?"}, // results go with them
		{"SELECT seq FROM sandboxes WHERE ended_at < ?", "DELETE FROM sandboxes WHERE seq = ? AND ended_at < ?"},
	} {
		old, err := s.seqs(ctx, p.find, limit)
		if err != nil {
			return total, err
		}
		for some := range slices.Chunk(old, pruneAtOnce) {
			err := s.write(ctx, "removing what is old", len(some)*changeBytes, func(ctx context.Context, w *session) error {
				for _, seq := range some {
					if _, err := w.exec(ctx, p.remove, seq, limit); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return total, err
			}
			total += len(some)
		}
	}
	return total, nil
}

// seqs finds rows, beside the writer.
func (s *Store) seqs(ctx context.Context, text string, args ...any) ([]int64, error) {
	const doing = "looking for what is old"
	rows, err := s.reader.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, s.fault(doing, err)
	}
	defer drop(rows)
	var all []int64
	for rows.Next() {
		var seq int64
		if err := rows.Scan(&seq); err != nil {
			return nil, s.fault(doing, err)
		}
		all = append(all, seq)
	}
	return all, s.fault(doing, rows.Err())
}
