package access

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// shelf is a Store that counts what is asked of it.
type shelf struct {
	mu      sync.Mutex
	keys    map[string]Record
	tenants map[string]Tenant
	finds   int
	touches int
	broken  error
}

func newShelf() *shelf {
	return &shelf{keys: make(map[string]Record), tenants: make(map[string]Tenant)}
}

var errMissing = &sandbox.Error{Code: sandbox.CodeNotFound, Message: "missing"}

func (s *shelf) InsertKey(_ context.Context, r Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[r.ID] = r
	return s.broken
}

func (s *shelf) FindKey(_ context.Context, id string) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finds++
	if r, ok := s.keys[id]; ok || s.broken != nil {
		return r, s.broken
	}
	return Record{}, errMissing
}

func (s *shelf) ListKeys(_ context.Context, tenant string) ([]Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Key
	for _, r := range s.keys {
		if tenant == "" || r.Tenant == tenant {
			all = append(all, r.Key)
		}
	}
	return all, s.broken
}

func (s *shelf) RevokeKey(_ context.Context, id string, at time.Time) (Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.keys[id]
	if !ok {
		return Key{}, errMissing
	}
	r.RevokedAt = &at
	s.keys[id] = r
	return r.Key, s.broken
}

func (s *shelf) TouchKey(_ context.Context, id string, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touches++
	r := s.keys[id]
	r.LastUsedAt = &at
	s.keys[id] = r
	return s.broken
}

func (s *shelf) SaveTenant(_ context.Context, t Tenant) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenants[t.Name] = t
	return s.broken
}

func (s *shelf) FindTenant(_ context.Context, name string) (Tenant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finds++
	if t, ok := s.tenants[name]; ok || s.broken != nil {
		return t, s.broken
	}
	return Tenant{}, errMissing
}

func (s *shelf) ListTenants(context.Context) ([]Tenant, error) { return nil, s.broken }

// clocked returns a service whose clock stands until it is moved.
func clocked(s Store) (*Service, *time.Time) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	service := NewService(Options{Store: s, Default: admission.Quota{Sandboxes: 10, CPUs: 2}})
	service.now = func() time.Time { return now }
	return service, &now
}

func create(t *testing.T, s *Service, ttl time.Duration, scopes ...string) (Key, string) {
	t.Helper()
	k, secret, err := s.Create(t.Context(), "acme", "ci", scopes, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return k, secret
}

// refused fails unless the key is turned away with that message, and without
// being repeated.
func refused(t *testing.T, s *Service, presented, message string) {
	t.Helper()
	p, err := s.Authenticate(t.Context(), presented)
	e := sandbox.AsError(err)
	if e == nil || e.Code != sandbox.CodeUnauthorized || e.Message != message || p.Tenant != "" {
		t.Fatalf("%.60q: %+v, %v; want %q", presented, p, err, message)
	}
	if !strings.Contains(e.Hint, "pinfold key create --state DIR") {
		t.Fatal("no hint:", e.Hint)
	}
	if body := string(sandbox.MarshalErrorBody(err)) + fmt.Sprintf("%+v", e.Err); len(presented) > 8 && strings.Contains(body, presented[len(presented)-8:]) {
		t.Fatal("the answer repeats the key:", body)
	}
}

func TestAKeyOpensWhatItWasMadeFor(t *testing.T) {
	s, _ := clocked(newShelf())
	k, secret := create(t, s, 0, ScopeRun, ScopeRead, ScopeRun)
	p, err := s.Authenticate(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	if p.Tenant != "acme" || p.KeyID != k.ID || !slices.Equal(p.Scopes, []string{ScopeRead, ScopeRun}) {
		t.Fatalf("%+v", p)
	}
	for scope, want := range map[string]bool{ScopeRun: true, ScopeRead: true, ScopeSandbox: false, ScopeAdmin: false, "": false} {
		if p.Allows(scope) != want {
			t.Errorf("allows %q: %v", scope, !want)
		}
	}
	_, secret = create(t, s, 0, ScopeAdmin)
	if p, err = s.Authenticate(t.Context(), secret); err != nil || !p.Allows(ScopeRun) || !p.Allows(ScopeSandbox) {
		t.Fatal("admin may do everything", p, err)
	}
}

func TestOnlyTheWholeKeyOpens(t *testing.T) {
	s, _ := clocked(newShelf())
	_, secret := create(t, s, 0, ScopeRead)
	_, other := create(t, s, 0, ScopeRead)
	refused(t, s, "", "a key is needed")
	const malformed, unknown = "this is not a key of Pinfold", "this key is not known"
	for _, bad := range []string{
		secret[:len(secret)-1], secret + "a", strings.ToUpper(secret), " " + secret, "pfk_", "Bearer " + secret, strings.Repeat("a", 1<<20),
		strings.Replace(secret, "_", "-", 1), secret[:20] + "\x00" + secret[21:], secret[:20] + "1" + secret[21:], secret[:20] + "é" + secret[22:],
	} {
		refused(t, s, bad, malformed)
	}
	for i := len(prefix); i < keyLength; i++ { // a slip of one letter is noticed without a look at the store
		if secret[i] == '_' {
			continue
		}
		slip := []byte(secret)
		if slip[i]++; slip[i] > 'z' || slip[i] == '8' {
			slip[i] = 'a'
		}
		refused(t, s, string(slip), malformed)
	}
	// The id of one with the secret of another, made to look right.
	body := secret[:len(prefix)+idLength+1] + other[len(prefix)+idLength+1:keyLength-checkLength]
	refused(t, s, body+checksum(body), unknown)
	_, stranger := newKey()
	refused(t, s, stranger, unknown)
}

// TestUnknownIDsCostTheSame counts: one look-up and one comparison of 32 bytes
// for each key that is presented, whether its id exists or not.
func TestUnknownIDsCostTheSame(t *testing.T) {
	store := newShelf()
	s, now := clocked(store)
	compares, bytesCompared := 0, 0
	s.compare = func(a, b []byte) int {
		compares++
		bytesCompared += len(a) + len(b)
		return subtle.ConstantTimeCompare(a, b)
	}
	_, secret := create(t, s, 0, ScopeRead)
	_, other := create(t, s, 0, ScopeRead)
	body := secret[:len(prefix)+idLength+1] + other[len(prefix)+idLength+1:keyLength-checkLength]
	_, stranger := newKey()
	for name, presented := range map[string]string{"right": secret, "wrong secret": body + checksum(body), "unknown id": stranger} {
		*now = now.Add(time.Hour) // nothing is remembered
		store.finds, compares, bytesCompared = 0, 0, 0
		_, _ = s.Authenticate(t.Context(), presented)
		if store.finds != 1 || compares != 1 || bytesCompared != 64 {
			t.Errorf("%s: %d look-ups, %d comparisons, %d bytes", name, store.finds, compares, bytesCompared)
		}
	}
}

func TestExpiryAndRevocation(t *testing.T) {
	store := newShelf()
	s, now := clocked(store)
	k, secret := create(t, s, time.Hour, ScopeRead)
	if !k.ExpiresAt.Equal(now.Add(time.Hour)) {
		t.Fatal(k.ExpiresAt)
	}
	*now = now.Add(time.Hour - 1)
	if _, err := s.Authenticate(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(1) // although it is remembered
	refused(t, s, secret, "this key has expired")

	k, secret = create(t, s, 0, ScopeRead)
	if _, err := s.Authenticate(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	refused(t, s, secret, "this key was revoked") // at once
	if _, err := s.Revoke(t.Context(), "none"); sandbox.AsError(err).Code != sandbox.CodeNotFound {
		t.Fatal(err)
	}

	k, secret = create(t, s, 0, ScopeRead)
	if _, err := s.Authenticate(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if _, err := store.RevokeKey(t.Context(), k.ID, *now); err != nil { // by another process
		t.Fatal(err)
	}
	*now = now.Add(time.Second)
	refused(t, s, secret, "this key was revoked")

	// A clock that is set back does not make it remember longer.
	k, secret = create(t, s, 0, ScopeRead)
	if _, err := s.Authenticate(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if _, err := store.RevokeKey(t.Context(), k.ID, *now); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(-24 * time.Hour)
	refused(t, s, secret, "this key was revoked")
}

func TestKeysAreRememberedForAMomentAndInBounds(t *testing.T) {
	store := newShelf()
	s, now := clocked(store)
	_, secret := create(t, s, 0, ScopeRead)
	for range 100 {
		if _, err := s.Authenticate(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	if store.finds != 1 || store.touches != 1 {
		t.Fatalf("%d look-ups and %d notes of use for 100 requests", store.finds, store.touches)
	}
	for range 120 {
		*now = now.Add(time.Second)
		if _, err := s.Authenticate(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	if store.touches != 3 {
		t.Fatalf("%d notes of use in two minutes", store.touches)
	}
	for range cacheSize + 10 {
		_, stranger := newKey()
		refused(t, s, stranger, "this key is not known")
	}
	if len(s.keys) != 1 {
		t.Fatalf("%d unknown keys are remembered", len(s.keys))
	}
	for range cacheSize + 10 {
		_, secret := create(t, s, 0, ScopeRead)
		if _, err := s.Authenticate(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.keys) > cacheSize {
		t.Fatalf("%d keys are remembered", len(s.keys))
	}
}

// TestNothingSecretIsKept looks for the key in all that the store was given.
func TestNothingSecretIsKept(t *testing.T) {
	store := newShelf()
	s, _ := clocked(store)
	k, secret := create(t, s, 0, ScopeRead)
	kept := fmt.Sprintf("%+v %s %+v", store.keys, store.keys[k.ID].Hash, k)
	if strings.Contains(kept, secret[len(prefix)+idLength+1:]) {
		t.Fatal("the secret is kept:", kept)
	}
	if !bytes.Equal(store.keys[k.ID].Hash, hash(secret)) || len(store.keys[k.ID].Hash) != 32 {
		t.Fatal("not the SHA-256 of the key")
	}
}

func TestABrokenStoreOpensNothing(t *testing.T) {
	store := newShelf()
	s, now := clocked(store)
	_, secret := create(t, s, 0, ScopeAdmin)
	store.broken = &sandbox.Error{Code: sandbox.CodeInsufficient, Message: "full"}
	if p, err := s.Authenticate(t.Context(), secret); sandbox.AsError(err).Code != sandbox.CodeInsufficient || p.Tenant != "" {
		t.Fatal(p, err)
	}
	if _, _, err := s.Create(t.Context(), "t", "", []string{ScopeRead}, 0); err == nil {
		t.Fatal("a key was shown that is not kept")
	}
	if _, made, err := s.EnsureFirstKey(t.Context(), kept); made || err == nil {
		t.Fatal(made, err)
	}
	// A use that cannot be noted does not turn its owner away.
	store.broken = nil
	if _, err := s.Authenticate(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(300 * time.Millisecond)
	store.broken = errMissing
	if _, err := s.Authenticate(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// kept is the keeper of a first key that works.
func kept(string) error { return nil }

func TestFirstKey(t *testing.T) {
	s, _ := clocked(newShelf())
	full := errors.New("no room for the file")
	if _, made, err := s.EnsureFirstKey(t.Context(), func(string) error { return full }); made || !errors.Is(err, full) {
		t.Fatal("a key that could not be kept", made, err)
	}
	if all, err := s.List(t.Context(), ""); err != nil || len(all) > 0 {
		t.Fatal("it opens something", all, err)
	}
	seen := ""
	secret, made, err := s.EnsureFirstKey(t.Context(), func(key string) error {
		if all, err := s.List(t.Context(), ""); err != nil || len(all) > 0 {
			t.Error("it was stored before it was kept", all, err)
		}
		seen = key
		return nil
	})
	if err != nil || !made || seen != secret {
		t.Fatal(made, err)
	}
	p, err := s.Authenticate(t.Context(), secret)
	if err != nil || p.Tenant != records.LocalTenant || len(p.Scopes) != len(Scopes()) {
		t.Fatal(p, err)
	}
	if secret, made, err = s.EnsureFirstKey(t.Context(), kept); err != nil || made || secret != "" {
		t.Fatal("a second first key", made, err)
	}
}

func TestWhatAKeyMayBe(t *testing.T) {
	s, _ := clocked(newShelf())
	for name, c := range map[string]struct {
		tenant, name string
		scopes       []string
		ttl          time.Duration
		field        string
	}{
		"no tenant":       {"", "", []string{"read"}, 0, "tenant"},
		"tenant as path":  {"../x", "", []string{"read"}, 0, "tenant"},
		"capitals":        {"Acme", "", []string{"read"}, 0, "tenant"},
		"long tenant":     {strings.Repeat("a", 41), "", []string{"read"}, 0, "tenant"},
		"no scopes":       {"a", "", nil, 0, "scopes"},
		"unknown scope":   {"a", "", []string{"read", "all"}, 0, "scopes"},
		"negative ttl":    {"a", "", []string{"read"}, -1, "ttl"},
		"endless ttl":     {"a", "", []string{"read"}, 1 << 62, "ttl"},
		"long name":       {"a", strings.Repeat("a", 101), []string{"read"}, 0, "name"},
		"name of escapes": {"a", "\x1b[31m", []string{"read"}, 0, "name"},
		"name of 2 lines": {"a", "a\nb", []string{"read"}, 0, "name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, secret, err := s.Create(t.Context(), c.tenant, c.name, c.scopes, c.ttl)
			if e := sandbox.AsError(err); e == nil || e.Field != c.field || secret != "" {
				t.Fatal(err)
			}
		})
	}
	if _, err := s.List(t.Context(), "../x"); err == nil {
		t.Error("keys of a tenant that cannot be")
	}
	seen := make(map[string]bool)
	for range 1000 {
		id, key := newKey()
		if got, ok := parse(key); !ok || got != id || seen[id] || len(id) != idLength {
			t.Fatal(id, got, ok)
		}
		seen[id] = true
	}
}

func TestQuotas(t *testing.T) {
	store := newShelf()
	s, now := clocked(store)
	if q := s.Quota("acme"); q != (admission.Quota{Sandboxes: 10, CPUs: 2}) {
		t.Fatal("the default:", q)
	}
	if err := s.SetQuota(t.Context(), "acme", admission.Quota{Sandboxes: 3, Runs: 7}); err != nil {
		t.Fatal(err)
	}
	want := admission.Quota{Sandboxes: 3, Runs: 7, CPUs: 2}
	if q := s.Quota("acme"); q != want {
		t.Fatal("at once:", q)
	}
	finds := store.finds
	for range 100 {
		s.Quota("acme")
	}
	if store.finds != finds {
		t.Fatal("the store was asked", store.finds-finds, "times more")
	}
	*now = now.Add(time.Second)
	store.broken = &sandbox.Error{Code: sandbox.CodeStateCorrupt}
	if q := s.Quota("acme"); q != want {
		t.Fatal("a broken store changed a quota:", q)
	}
	if q := s.Quota("other"); q != (admission.Quota{Sandboxes: 10, CPUs: 2}) {
		t.Fatal("a broken store bounds nothing:", q)
	}
	for _, bad := range []admission.Quota{{Sandboxes: -1}, {CPUs: -0.5}, {StartsPerSecond: 1e300}} {
		if err := s.SetQuota(t.Context(), "acme", bad); sandbox.AsError(err).Code != sandbox.CodeLimitInvalid {
			t.Error(bad, err)
		}
	}
	if err := s.SetQuota(t.Context(), "A", admission.Quota{}); err == nil {
		t.Error("a tenant that cannot be")
	}
}

// A key's list of endpoints goes with whoever shows it, and with what it grants; a key
// without one is told from one that may declare nothing.
func TestKeysHaveEndpoints(t *testing.T) {
	s, _ := clocked(newShelf())
	for _, c := range []struct {
		given []string
		words string
	}{
		{nil, ""},
		{[]string{}, "[]"},
		{[]string{"A.test", "GET https://*.b.test/x/**", "@package indexes"}, "[a.test:443 GET https://*.b.test/x/** @package indexes]"},
	} {
		k, secret, err := s.CreateNarrow(t.Context(), "acme", "", []string{ScopeRun}, 0, c.given)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := s.Authenticate(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		standing, err := s.Standing(t.Context(), k.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []Principal{shown, standing} {
			if got := fmt.Sprint(p.Allow); (c.given == nil) != (p.Allow == nil) || c.given != nil && got != c.words {
				t.Errorf("%v: %s", c.given, got)
			}
		}
		text, _ := json.Marshal(k)
		if strings.Contains(string(text), `"allow"`) != (c.given != nil) {
			t.Errorf("%v: %s", c.given, text)
		}
	}
	for _, wrong := range [][]string{{"*"}, {"a.test", "b.test=10.0.0.1"}, {"@"}, {""}, make([]string, maxAllow+1)} {
		_, secret, err := s.CreateNarrow(t.Context(), "acme", "", []string{ScopeRun}, 0, wrong)
		if e := sandbox.AsError(err); e == nil || e.Field != "allow" || e.Hint == "" || secret != "" {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}
