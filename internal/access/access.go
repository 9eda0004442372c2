// Package access says who may do what: tenants, their quotas, and API keys.
//
// A key is shown once, when it is made; what is kept is its SHA-256. That needs
// no slow hash, as passwords do: the secret part is 140 random bits, and nobody
// can try 2^139 of them. Comparing takes the same work whether the key exists or
// not.
//
// It knows no HTTP and no database: the edge hands it what a client presented,
// and a Store keeps its records.
package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pinfold/internal/engine/admission"
	"pinfold/sandbox"
)

// Scopes of a key.
const (
	ScopeRun     = "run"     // run programs
	ScopeSandbox = "sandbox" // living sandboxes and all that is in them
	ScopeApprove = "approve" // decide on runs of the tenant that wait for a person
	ScopeRead    = "read"    // look at anything of the tenant
	ScopeAdmin   = "admin"   // everything, also what is not a tenant's own: pools, metrics
)

// Scopes returns all scopes, the narrowest first.
func Scopes() []string { return []string{ScopeRead, ScopeApprove, ScopeRun, ScopeSandbox, ScopeAdmin} }

// Key describes an API key. The key itself is known to its owner alone.
type Key struct {
	ID     string   `json:"id"` // the part of the key that is not secret
	Tenant string   `json:"tenant"`
	Name   string   `json:"name,omitempty"` // for people
	Scopes []string `json:"scopes"`
	// Allow are the endpoints that requests made with it may declare, as
	// sandbox.ParseAllowed reads them, of those that its tenant may; nil: all of these.
	Allow []string `json:"allow,omitzero"`
	// Profiles are those one of which each request made with it has to name; nil: it need not.
	Profiles   []string   `json:"profiles,omitzero"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"` // nil: never
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"` // to the minute
}

// Record is a key as it is kept.
type Record struct {
	Key

	Hash []byte // SHA-256 of the whole key
}

// Tenant is somebody whose objects nobody else sees.
type Tenant struct {
	Name      string          `json:"name"`
	CreatedAt time.Time       `json:"created_at"`
	Quota     admission.Quota `json:"quota"` // a zero field: the server's default
}

// KeyStore keeps keys. Errors are *sandbox.Error; a key that is not there is one
// of code not_found.
type KeyStore interface {
	// InsertKey keeps a new key and makes its tenant if need be.
	InsertKey(ctx context.Context, r Record) error
	FindKey(ctx context.Context, id string) (Record, error)
	// ListKeys returns the keys of a tenant, or of all where it is empty, the
	// oldest first.
	ListKeys(ctx context.Context, tenant string) ([]Key, error)
	// RevokeKey ends a key at a time. One that is revoked stays as it is.
	RevokeKey(ctx context.Context, id string, at time.Time) (Key, error)
	// TouchKey notes that a key was used.
	TouchKey(ctx context.Context, id string, at time.Time) error
}

// TenantStore keeps tenants.
type TenantStore interface {
	// SaveTenant makes a tenant, or changes its quota.
	SaveTenant(ctx context.Context, t Tenant) error
	FindTenant(ctx context.Context, name string) (Tenant, error)
	ListTenants(ctx context.Context) ([]Tenant, error)
}

// Store keeps both.
type Store interface {
	KeyStore
	TenantStore
}

// Principal is who makes a request.
type Principal struct {
	Tenant string
	KeyID  string
	Scopes []string
	// Allow are the endpoints that requests may declare, of those that the tenant may; nil:
	// all of these.
	Allow []sandbox.Endpoint
	// Profiles are as in a Key.
	Profiles []string
}

// Allows says whether the principal has a scope. The scope admin has all.
func (p Principal) Allows(scope string) bool {
	return slices.Contains(p.Scopes, scope) || slices.Contains(p.Scopes, ScopeAdmin)
}

const (
	maxTenant = 40
	maxName   = 100
	maxAllow  = 64
	maxTTL    = 100 * 365 * 24 * time.Hour
)

// CheckTenant refuses names that are not 1 to 40 of a to z, 0 to 9 and "-".
func CheckTenant(name string) error {
	bad := strings.IndexFunc(name, func(r rune) bool { return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') })
	if name == "" || len(name) > maxTenant || bad >= 0 {
		return &sandbox.Error{
			Code: sandbox.CodeSpecInvalid, Field: "tenant",
			Message: fmt.Sprintf("%q is no name for a tenant", sandbox.SafeText(name, 60)), Hint: "1 to 40 of a to z, 0 to 9 and -",
		}
	}
	return nil
}

// checkKey checks what a person wants a key to be, and returns the scopes in
// their order, each once.
func checkKey(tenant, name string, scopes []string, ttl time.Duration) ([]string, error) {
	if err := CheckTenant(tenant); err != nil {
		return nil, err
	}
	if len(name) > maxName || sandbox.SafeText(name, maxName+1) != name {
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "name", Message: fmt.Sprintf("a key's name has at most %d bytes, all of them printable", maxName)}
	}
	if ttl < 0 || ttl > maxTTL {
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "ttl", Message: "a key lives up to 100 years", Hint: "leave it away for a key that does not expire"}
	}
	if len(scopes) == 0 {
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "scopes", Message: "a key without scopes opens nothing", Hint: "the scopes are " + strings.Join(Scopes(), ", ")}
	}
	for _, s := range scopes {
		if !slices.Contains(Scopes(), s) {
			return nil, &sandbox.Error{
				Code: sandbox.CodeSpecInvalid, Field: "scopes", Message: fmt.Sprintf("no scope %q", sandbox.SafeText(s, 40)),
				Hint: "the scopes are " + strings.Join(Scopes(), ", "),
			}
		}
	}
	var ordered []string
	for _, s := range Scopes() {
		if slices.Contains(scopes, s) {
			ordered = append(ordered, s)
		}
	}
	return ordered, nil
}

// checkAllow checks the endpoints of a key, and returns them in one form each. Where they
// are is the operator's to say.
func checkAllow(list []string) ([]string, error) {
	if list == nil {
		return nil, nil
	}
	bad := func(message, hint string) ([]string, error) {
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "allow", Message: message, Hint: hint}
	}
	if len(list) > maxAllow {
		return bad(fmt.Sprintf("a key has at most %d endpoints", maxAllow), "put them into a set of the server's configuration (network.sets), and name that: @NAME")
	}
	all := []string{}
	for _, text := range list {
		e, err := sandbox.ParseAllowed(text)
		switch known := sandbox.AsError(err); {
		case err != nil:
			return bad(known.Message, known.Hint)
		case e.Address != "":
			return bad("where "+e.Host+" is, only the server's configuration says", "leave the address out")
		}
		all = append(all, e.Words()...)
	}
	return all, nil
}

// checkProfiles checks the profiles of a key. Only runs are made of them alone: who has
// living sandboxes, or is an administrator, has more.
func checkProfiles(list, scopes []string) error {
	if list == nil {
		return nil
	}
	bad := func(field, message, hint string) error {
		return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: field, Message: message, Hint: hint}
	}
	if len(list) == 0 || len(list) > maxAllow {
		return bad("profiles", fmt.Sprintf("a key that is for profiles only has 1 to %d", maxAllow), "name them as the server's configuration does")
	}
	for _, name := range list {
		if err := sandbox.CheckProfileName(name); err != nil {
			return sandbox.AsError(err).WithField("profiles")
		}
	}
	for _, scope := range scopes {
		if scope != ScopeRun && scope != ScopeRead {
			return bad("scopes", "a key that is for profiles only cannot have the scope "+scope, "give it run, or run and read")
		}
	}
	return nil
}

// endpoints are those of a key's list; nil where it has none. What cannot be read is left
// out, and with it what it would allow.
func endpoints(list []string) []sandbox.Endpoint {
	if list == nil {
		return nil
	}
	all := []sandbox.Endpoint{}
	for _, text := range list {
		if e, err := sandbox.ParseAllowed(text); err == nil {
			all = append(all, e)
		}
	}
	return all
}

// checkQuota refuses negative bounds. Zero is the server's default.
func checkQuota(q admission.Quota) error {
	for field, v := range map[string]float64{
		"sandboxes": float64(q.Sandboxes), "runs": float64(q.Runs), "memory_bytes": float64(q.MemoryBytes),
		"cpus": q.CPUs, "starts_per_second": q.StartsPerSecond,
	} {
		if !(v >= 0 && v < 1e18) { // also not a number
			return &sandbox.Error{Code: sandbox.CodeLimitInvalid, Field: "quota." + field, Message: "is negative or absurd", Hint: "0 stands for the server's default"}
		}
	}
	return nil
}
