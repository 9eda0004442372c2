package store

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"pinfold/internal/access"
	"pinfold/internal/store/paging"
)

const keyColumns = "id, tenant, name, scopes, created_at, expires_at, revoked_at, last_used_at, allow, profiles"

// addTenant makes a tenant that is not there yet.
const addTenant = "INSERT INTO tenants (name, created_at, quota) VALUES (?, ?, '{}') ON CONFLICT DO NOTHING"

// InsertKey keeps a new key and makes its tenant if need be.
func (s *Store) InsertKey(ctx context.Context, r access.Record) error {
	return s.write(ctx, "keeping a key", 0, func(ctx context.Context, w *session) error {
		var n int
		if err := w.row(ctx, "SELECT count(*) FROM keys WHERE id = ?", []any{r.ID}, &n); err != nil {
			return err
		}
		if n > 0 {
			return paging.InUse("key", r.ID)
		}
		if _, err := w.exec(ctx, addTenant, r.Tenant, paging.Nanos(r.CreatedAt)); err != nil {
			return err
		}
		allow, err := kept(r.Allow)
		if err != nil {
			return err
		}
		profiles, err := kept(r.Profiles)
		if err != nil {
			return err
		}
		_, err = w.exec(ctx, "INSERT INTO keys ("+keyColumns+", hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			r.ID, r.Tenant, r.Name, strings.Join(r.Scopes, " "), paging.Nanos(r.CreatedAt),
			instant(r.ExpiresAt), instant(r.RevokedAt), instant(r.LastUsedAt), allow, profiles, r.Hash)
		return err
	})
}

// FindKey returns a key's record.
func (s *Store) FindKey(ctx context.Context, id string) (access.Record, error) {
	var r access.Record
	dest, get := scanKey(&r.Hash)
	err := s.one(ctx, "SELECT hash, "+keyColumns+" FROM keys WHERE id = ?", []any{id}, dest...)
	if isGone(err) {
		return r, paging.NotFound("key", id)
	}
	r.Key = get()
	return r, s.fault("reading a key", err)
}

// ListKeys returns the keys of a tenant, or of all where it is empty, the
// oldest first.
func (s *Store) ListKeys(ctx context.Context, tenant string) ([]access.Key, error) {
	const doing = "listing keys"
	rows, err := s.reader.QueryContext(ctx, "SELECT "+keyColumns+" FROM keys WHERE ? IN ('', tenant) ORDER BY created_at, id", tenant)
	if err != nil {
		return nil, s.fault(doing, err)
	}
	defer drop(rows)
	keys := []access.Key{}
	for rows.Next() {
		dest, get := scanKey()
		if err := rows.Scan(dest...); err != nil {
			return nil, s.fault(doing, err)
		}
		keys = append(keys, get())
	}
	return keys, s.fault(doing, rows.Err())
}

// RevokeKey ends a key at a time. One that is revoked stays as it is.
func (s *Store) RevokeKey(ctx context.Context, id string, at time.Time) (access.Key, error) {
	dest, get := scanKey()
	err := s.write(ctx, "revoking a key", 0, func(ctx context.Context, w *session) error {
		err := w.row(ctx, "UPDATE keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ? RETURNING "+keyColumns, []any{paging.Nanos(at), id}, dest...)
		if isGone(err) {
			return paging.NotFound("key", id)
		}
		return err
	})
	if err != nil {
		return access.Key{}, err
	}
	return get(), nil
}

// TouchKey notes that a key was used.
func (s *Store) TouchKey(ctx context.Context, id string, at time.Time) error {
	return s.write(ctx, "noting the use of a key", 0, func(ctx context.Context, w *session) error {
		n, err := w.exec(ctx, "UPDATE keys SET last_used_at = ? WHERE id = ?", paging.Nanos(at), id)
		if err == nil && n == 0 {
			return paging.NotFound("key", id)
		}
		return err
	})
}

// SaveTenant makes a tenant, or changes its quota.
func (s *Store) SaveTenant(ctx context.Context, t access.Tenant) error {
	const doing = "saving a tenant"
	quota, err := json.Marshal(t.Quota)
	if err != nil {
		return s.fault(doing, err)
	}
	return s.write(ctx, doing, 0, func(ctx context.Context, w *session) error {
		_, err := w.exec(ctx, "INSERT INTO tenants (name, created_at, quota) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET quota = excluded.quota",
			t.Name, paging.Nanos(t.CreatedAt), string(quota))
		return err
	})
}

// FindTenant returns a tenant. A quota that cannot be read is an error, never
// an empty quota, which would bound nothing.
func (s *Store) FindTenant(ctx context.Context, name string) (access.Tenant, error) {
	var at int64
	var quota []byte
	t := access.Tenant{Name: name}
	err := s.one(ctx, "SELECT created_at, quota FROM tenants WHERE name = ?", []any{name}, &at, &quota)
	if isGone(err) {
		return t, paging.NotFound("tenant", name)
	}
	if err != nil {
		return t, s.fault("reading a tenant", err)
	}
	t.CreatedAt = paging.Time(at)
	if err := json.Unmarshal(quota, &t.Quota); err != nil {
		return t, corrupt(s.dir, "the quota of tenant "+name+" cannot be read; set it anew", err)
	}
	return t, nil
}

// ListTenants returns all tenants by name. Of one whose quota cannot be read,
// the quota is empty.
func (s *Store) ListTenants(ctx context.Context) ([]access.Tenant, error) {
	const doing = "listing tenants"
	rows, err := s.reader.QueryContext(ctx, "SELECT name, created_at, quota FROM tenants ORDER BY name")
	if err != nil {
		return nil, s.fault(doing, err)
	}
	defer drop(rows)
	tenants := []access.Tenant{}
	for rows.Next() {
		var t access.Tenant
		var at int64
		var quota []byte
		if err := rows.Scan(&t.Name, &at, &quota); err != nil {
			return nil, s.fault(doing, err)
		}
		t.CreatedAt = paging.Time(at)
		if err := json.Unmarshal(quota, &t.Quota); err != nil {
			s.log.Error("the quota of a tenant cannot be read", "tenant", t.Name, "reason", err)
		}
		tenants = append(tenants, t)
	}
	return tenants, s.fault(doing, rows.Err())
}

func scanKey(first ...any) ([]any, func() access.Key) {
	var k access.Key
	var scopes string
	var created int64
	var expires, revoked, used *int64
	var allow, profiles *string
	dest := slices.Concat(first, []any{&k.ID, &k.Tenant, &k.Name, &scopes, &created, &expires, &revoked, &used, &allow, &profiles})
	return dest, func() access.Key {
		k.Scopes = strings.Fields(scopes)
		k.CreatedAt = paging.Time(created)
		k.ExpiresAt, k.RevokedAt, k.LastUsedAt = moment(expires), moment(revoked), moment(used)
		k.Allow, k.Profiles = wordsOf(allow), wordsOf(profiles)
		return k
	}
}

// wordsOf is a list of a key that was kept. What cannot be read allows nothing.
func wordsOf(text *string) (all []string) {
	if text != nil && json.Unmarshal([]byte(*text), &all) != nil || text != nil && all == nil {
		return []string{}
	}
	return all
}

// kept is a list of a key as it is kept.
func kept(list []string) (any, error) {
	if list == nil {
		return nil, nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}

func instant(t *time.Time) any {
	if t == nil {
		return nil
	}
	return paging.Nanos(*t)
}

func moment(nanos *int64) *time.Time {
	if nanos == nil {
		return nil
	}
	t := paging.Time(*nanos)
	return &t
}
