package access

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"sync"
	"time"

	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

const (
	// What another process changed (pinfold key revoke) is seen after this
	// time at the latest.
	cacheFor = 500 * time.Millisecond
	// More keys and tenants than this in half a second are asked for anew.
	cacheSize = 4096
	// A key's last use is kept to the minute: writing it at each use would
	// cost more than the use.
	touchEvery = time.Minute
)

// Options are what a Service needs.
type Options struct {
	Store   Store
	Default admission.Quota // for every tenant, where its own says nothing
	Log     *slog.Logger    // nil: nowhere
}

// Service answers who somebody is and how much a tenant may have. It is safe
// for concurrent use.
type Service struct {
	options Options
	now     func() time.Time
	compare func(a, b []byte) int

	mu     sync.Mutex
	keys   map[string]cached[Record]
	quotas map[string]cached[admission.Quota]
}

type cached[T any] struct {
	value T
	until time.Time
	used  time.Time // the last use that was noted
}

// NewService returns a service over a store.
func NewService(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{
		options: o, now: time.Now, compare: subtle.ConstantTimeCompare,
		keys: make(map[string]cached[Record]), quotas: make(map[string]cached[admission.Quota]),
	}
}

// Create makes a key and returns it with its description. This is the only
// time that the key can be seen. A ttl of 0 means that it does not expire.
func (s *Service) Create(ctx context.Context, tenant, name string, scopes []string, ttl time.Duration) (Key, string, error) {
	return s.CreateNarrow(ctx, tenant, name, scopes, ttl, nil)
}

// CreateNarrow is Create of a key whose requests may declare endpoints of a list only, see
// Key.Allow.
func (s *Service) CreateNarrow(ctx context.Context, tenant, name string, scopes []string, ttl time.Duration, allow []string) (Key, string, error) {
	return s.create(ctx, Key{Tenant: tenant, Name: name, Scopes: scopes, Allow: allow}, ttl, func(string) error { return nil })
}

// CreateConfined is CreateNarrow of a key each request of which has to name one of these
// profiles, see Key.Profiles.
func (s *Service) CreateConfined(ctx context.Context, tenant, name string, scopes []string, ttl time.Duration, allow, profiles []string) (Key, string, error) {
	return s.create(ctx, Key{Tenant: tenant, Name: name, Scopes: scopes, Allow: allow, Profiles: profiles}, ttl, func(string) error { return nil })
}

// create makes a key like that one, shows it to keep, and stores it unless that fails.
func (s *Service) create(ctx context.Context, like Key, ttl time.Duration, keep func(key string) error) (Key, string, error) {
	ordered, err := checkKey(like.Tenant, like.Name, like.Scopes, ttl)
	if err == nil {
		like.Allow, err = checkAllow(like.Allow)
	}
	if err == nil {
		err = checkProfiles(like.Profiles, ordered)
	}
	if err != nil {
		return Key{}, "", err
	}
	id, key := newKey()
	now := s.now().UTC().Round(0)
	like.ID, like.Scopes, like.CreatedAt = id, ordered, now
	r := Record{Key: like, Hash: hash(key)}
	if ttl > 0 {
		end := now.Add(ttl)
		r.ExpiresAt = &end
	}
	if err := keep(key); err != nil {
		return Key{}, "", err
	}
	if err := s.options.Store.InsertKey(ctx, r); err != nil {
		return Key{}, "", err
	}
	return r.Key, key, nil
}

// EnsureFirstKey makes a key with all scopes for the tenant "local" when there
// is no key at all, so that a new server can be used. Otherwise made is false.
// keep is called before the key is stored and puts it where the server's owner
// finds it: a key that is stored and lost would be the only one.
func (s *Service) EnsureFirstKey(ctx context.Context, keep func(key string) error) (key string, made bool, err error) {
	all, err := s.options.Store.ListKeys(ctx, "")
	if err != nil || len(all) > 0 {
		return "", false, err
	}
	_, key, err = s.create(ctx, Key{Tenant: records.LocalTenant, Name: "first key", Scopes: Scopes()}, 0, keep)
	return key, err == nil, err
}

// List returns the keys of a tenant, or of all where it is empty, the oldest
// first, with those that are revoked or expired.
func (s *Service) List(ctx context.Context, tenant string) ([]Key, error) {
	if tenant != "" {
		if err := CheckTenant(tenant); err != nil {
			return nil, err
		}
	}
	return s.options.Store.ListKeys(ctx, tenant)
}

// Revoke ends a key for good. Doing it twice changes nothing.
func (s *Service) Revoke(ctx context.Context, id string) (Key, error) {
	k, err := s.options.Store.RevokeKey(ctx, id, s.now())
	if err == nil {
		s.mu.Lock()
		delete(s.keys, id)
		s.mu.Unlock()
	}
	return k, err
}

// Authenticate says who presents a key. Its errors are of code unauthorized,
// never contain what was presented, and tell a key that has expired or was
// revoked from an unknown one only to who knows its secret.
func (s *Service) Authenticate(ctx context.Context, presented string) (Principal, error) {
	id, ok := parse(presented)
	if !ok {
		message := "this is not a key of Pinfold"
		if presented == "" {
			message = "a key is needed"
		}
		return Principal{}, unauthorized(message)
	}
	r, err := s.find(ctx, id)
	if err != nil {
		return Principal{}, err
	}
	// One comparison in any case: r is empty for an unknown id, and then
	// compared with a hash that nothing has.
	kept := r.Hash
	if len(kept) == 0 {
		kept = make([]byte, 32)
	}
	same := s.compare(hash(presented), kept) == 1
	now := s.now()
	switch {
	case !same || len(r.Hash) == 0:
		return Principal{}, unauthorized("this key is not known")
	case r.RevokedAt != nil:
		return Principal{}, unauthorized("this key was revoked")
	case r.ExpiresAt != nil && !now.Before(*r.ExpiresAt):
		return Principal{}, unauthorized("this key has expired")
	}
	s.touch(ctx, r.ID, now)
	return r.principal(), nil
}

// Standing says whose key has that id, if it opens anything still. It is for what
// a key has granted to others, which must end with it; it proves nothing about
// who asks.
func (s *Service) Standing(ctx context.Context, id string) (Principal, error) {
	r, err := s.find(ctx, id)
	if err != nil {
		return Principal{}, err
	}
	now := s.now()
	if len(r.Hash) == 0 || r.RevokedAt != nil || r.ExpiresAt != nil && !now.Before(*r.ExpiresAt) {
		return Principal{}, unauthorized("the key behind this is no longer valid")
	}
	return r.principal(), nil
}

func (r Record) principal() Principal {
	return Principal{Tenant: r.Tenant, KeyID: r.ID, Scopes: r.Scopes, Allow: endpoints(r.Allow), Profiles: r.Profiles}
}

// find returns a key's record, or an empty one for an id that is not known.
// Unknown ids are not remembered: anybody can make up any number of them.
func (s *Service) find(ctx context.Context, id string) (Record, error) {
	s.mu.Lock()
	c, ok := s.keys[id]
	s.mu.Unlock()
	now := s.now()
	if ok && fresh(c.until, now) {
		return c.value, nil
	}
	r, err := s.options.Store.FindKey(ctx, id)
	if err != nil {
		if sandbox.AsError(err).Code == sandbox.CodeNotFound {
			return Record{}, nil
		}
		return Record{}, err
	}
	used := c.used
	if r.LastUsedAt != nil && r.LastUsedAt.After(used) {
		used = *r.LastUsedAt
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) >= cacheSize {
		clear(s.keys)
	}
	s.keys[id] = cached[Record]{value: r, until: now.Add(cacheFor), used: used}
	return r, nil
}

// fresh says whether something is still remembered. A clock that was set back
// must not keep it longer than it was meant to be.
func fresh(until, now time.Time) bool { return now.Before(until) && until.Sub(now) <= cacheFor }

// touch notes the use of a key, now and then. That it could not be noted is no
// reason to turn its owner away.
func (s *Service) touch(ctx context.Context, id string, now time.Time) {
	s.mu.Lock()
	c, ok := s.keys[id]
	due := ok && now.Sub(c.used).Abs() >= touchEvery
	if due {
		c.used = now
		s.keys[id] = c
	}
	s.mu.Unlock()
	if !due {
		return
	}
	if err := s.options.Store.TouchKey(ctx, id, now); err != nil {
		s.options.Log.Warn("the use of a key could not be noted", "key", id, "error", err)
	}
}

func unauthorized(message string) error {
	return (&sandbox.Error{Code: sandbox.CodeUnauthorized, Message: message}).
		WithAdvice(sandbox.Advise("send Authorization: Bearer KEY; on the server, this makes one: %s", sandbox.HostCommand("pinfold key create --state DIR")))
}
