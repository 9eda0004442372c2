package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"pinfold/internal/engine/records"
	"pinfold/internal/headroom"
	"pinfold/internal/store/paging"
)

// listed is one kind of list.
type listed[T any] struct {
	source

	columns string // seq first, then created_at and id, then what scan reads
	choice  string // the column that values restrict
	values  []string
	scan    func(rest ...any) (dest []any, get func() (T, error))
}

// row is what every list reads first.
type row struct {
	seq   int64
	place paging.Place
}

// list answers a query. Rows that cannot be read are put aside and missing.
func list[T any](ctx context.Context, s *Store, tenant string, q records.Query, l listed[T]) (records.Page[T], error) {
	page := records.Page[T]{Items: []T{}}
	plan, err := paging.Check(q)
	if err != nil {
		return page, err
	}
	text, args := listQuery(tenant, q, plan, l.table, l.columns, l.choice, l.values)
	rows, err := s.reader.QueryContext(ctx, text, args...)
	if err != nil {
		return page, s.fault("listing", err)
	}
	bad, err := l.read(ctx, rows, plan.Limit, q.Oldest, &page)
	for _, d := range bad { // rows is closed: the writer may need what it held
		s.putAside(ctx, l.source, d)
	}
	return page, s.fault("listing", err)
}

// read fills a page and returns the rows that it could not read.
func (l listed[T]) read(ctx context.Context, rows *sql.Rows, limit int, oldest bool, page *records.Page[T]) ([]*damaged, error) {
	defer drop(rows)
	var bad []*damaged
	var last paging.Place
	for n := 0; rows.Next(); n++ {
		if n == limit {
			page.Next = paging.Cursor(last, oldest)
			break
		}
		var r row
		dest, get := l.scan(&r.seq, &r.place.At, &r.place.ID)
		item, err := scanInto(rows.Scan, dest, get)
		last = r.place
		if full := headroom.Take(ctx, answerCopies*read(dest)); full != nil {
			return bad, full
		}
		switch {
		case err == nil:
			page.Items = append(page.Items, item)
		case r.seq != 0:
			bad = append(bad, &damaged{r.seq, err})
		default:
			return bad, err
		}
	}
	return bad, rows.Err()
}

// answerCopies is how often a text from the database is in memory until it has
// been answered: as it was read, decoded, and in the answer.
const answerCopies = 3

// read is how much text a row had.
func read(dest []any) (n int64) {
	for _, d := range dest {
		if b, ok := d.(*[]byte); ok {
			n += int64(len(*b))
		}
	}
	return n
}

func scanInto[T any](scan func(dest ...any) error, dest []any, get func() (T, error)) (T, error) {
	if err := scan(dest...); err != nil {
		var none T
		return none, err
	}
	return get()
}

// find reads one object. A row that cannot be read is put aside, and the
// object not found.
func find[T any](ctx context.Context, s *Store, from source, text, tenant, id string, scan func(rest ...any) ([]any, func() (T, error))) (T, error) {
	var seq int64
	dest, get := scan(&seq)
	item, err := scanInto(func(dest ...any) error { return s.one(ctx, text, []any{tenant, id}, dest...) }, dest, get)
	switch {
	case err == nil:
		return item, nil
	case isGone(err):
	case seq != 0:
		s.putAside(ctx, from, &damaged{seq, err})
	default:
		return item, s.fault("reading a "+from.what, err)
	}
	return item, paging.NotFound(from.what, id)
}

// listQuery builds the statement for a query. Names of tables and columns come
// from this package; everything from outside is a parameter.
func listQuery(tenant string, q records.Query, plan paging.Plan, table, columns, choice string, values []string) (string, []any) {
	var b strings.Builder
	args := []any{tenant}
	b.WriteString("SELECT " + columns + " FROM " + table + " WHERE tenant = ?")
	if len(values) > 0 {
		b.WriteString(" AND " + choice + " IN (?" + strings.Repeat(", ?", len(values)-1) + ")")
		for _, v := range values {
			args = append(args, v)
		}
	}
	if finished, selects := q.Finished(); selects {
		b.WriteString(" AND finished_at IS " + map[bool]string{true: "NOT NULL", false: "NULL"}[finished])
	}
	if len(q.Languages) > 0 {
		b.WriteString(" AND language IN (?" + strings.Repeat(", ?", len(q.Languages)-1) + ")")
		for _, l := range q.Languages {
			args = append(args, l)
		}
	}
	if !q.Since.IsZero() {
		b.WriteString(" AND created_at >= ?")
		args = append(args, paging.Nanos(q.Since))
	}
	if !q.Before.IsZero() {
		b.WriteString(" AND created_at < ?")
		args = append(args, paging.Nanos(q.Before))
	}
	for k, v := range q.Metadata {
		b.WriteString(" AND CASE WHEN json_valid(metadata) THEN EXISTS (SELECT 1 FROM json_each(metadata) AS m WHERE m.key = ? AND m.value = ?) ELSE 0 END")
		args = append(args, k, v)
	}
	direction, beyond := "DESC", "<"
	if q.Oldest {
		direction, beyond = "ASC", ">"
	}
	if plan.After != nil {
		b.WriteString(" AND (created_at, id) " + beyond + " (?, ?)")
		args = append(args, plan.After.At, plan.After.ID)
	}
	b.WriteString(" ORDER BY created_at " + direction + ", id " + direction + " LIMIT ?")
	return b.String(), append(args, plan.Limit+1)
}

func texts[T ~string](values []T) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}

var errNoResult = errors.New("a finished run without its result")
