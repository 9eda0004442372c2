package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"pinfold/internal/access"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// Authenticator says whose a key is. A key that is not known, has expired or
// was revoked gives a *sandbox.Error of code unauthorized. It is safe for
// concurrent use, and does the same work for every key.
type Authenticator interface {
	Authenticate(ctx context.Context, presented string) (access.Principal, error)
	// Standing is the same for the id of a key that was authenticated before.
	Standing(ctx context.Context, keyID string) (access.Principal, error)
}

// Scopes of keys. What a route wants stands in the table of routes.
const (
	scopeRun     = "run"     // runs
	scopeSandbox = "sandbox" // living sandboxes and everything in them
	scopeApprove = "approve" // deciding on runs that wait for a person
	scopeRead    = "read"    // reading anything of the tenant
	scopeAdmin   = "admin"   // everything, pools and metrics too
	scopeAny     = "any"     // a valid key, whatever its scopes
)

type localPeerKey struct{}

// WithLocalPeer marks the context of a connection whose other end the
// operating system has already let in: the unix socket, by its file mode. Its
// requests are the local tenant's, with every scope, and need no key.
func WithLocalPeer(ctx context.Context) context.Context {
	return context.WithValue(ctx, localPeerKey{}, true)
}

func isLocalPeer(ctx context.Context) bool {
	local, _ := ctx.Value(localPeerKey{}).(bool)
	return local
}

// localKeyID stands for the key that a local peer does not need.
const localKeyID = "local"

func localPeer() access.Principal {
	return access.Principal{Tenant: records.LocalTenant, KeyID: localKeyID, Scopes: []string{scopeRun, scopeSandbox, scopeRead, scopeAdmin}}
}

// identify says who asks.
func (s *server) identify(r *http.Request) (access.Principal, error) {
	if who, ok, err := s.linked(r.Context()); ok {
		return who, err
	}
	if isLocalPeer(r.Context()) {
		return localPeer(), nil
	}
	key, err := presentedKey(r.Header)
	if err != nil {
		return access.Principal{}, err
	}
	return s.o.Access.Authenticate(r.Context(), key)
}

const maxKeyBytes = 256

// presentedKey takes the key from Authorization: Bearer or X-API-Key. A key in
// the query would end up in logs and histories, so there is none.
func presentedKey(h http.Header) (string, error) {
	hint := "send it as: Authorization: Bearer pfk_…; pinfold key create --state DIR makes one"
	keys := slices.Clone(h.Values("X-Api-Key"))
	for _, v := range h.Values("Authorization") {
		if scheme, key, _ := strings.Cut(v, " "); strings.EqualFold(scheme, "Bearer") && (len(keys) == 0 || isOurKey(key)) {
			keys = append(keys, strings.TrimSpace(key))
		}
	}
	switch {
	case len(keys) == 0:
		return "", &sandbox.Error{Code: sandbox.CodeUnauthorized, Message: "an API key is needed", Hint: hint}
	case len(keys) > 1:
		return "", &sandbox.Error{Code: sandbox.CodeUnauthorized, Message: "more than one API key was sent", Hint: hint}
	case keys[0] == "" || len(keys[0]) > maxKeyBytes:
		return "", &sandbox.Error{Code: sandbox.CodeUnauthorized, Message: "that is not an API key", Hint: hint}
	}
	return keys[0], nil
}

// isOurKey tells an API key of this server's from a token meant for a server
// inside a sandbox.
func isOurKey(token string) bool { return strings.HasPrefix(strings.TrimSpace(token), "pfk_") }

// holdsOurKey says whether a header has such a key, behind whatever word: as a
// password of Basic it may also be in base64.
func holdsOurKey(authorization string) bool {
	for word := range strings.FieldsSeq(authorization) {
		plain, _ := base64.RawStdEncoding.DecodeString(strings.TrimRight(word, "="))
		if strings.Contains(word, "pfk_") || strings.Contains(string(plain), "pfk_") {
			return true
		}
	}
	return false
}

// allow says whether a principal has one of the scopes.
func allow(p access.Principal, scopes []string) error {
	for _, scope := range scopes {
		if scope == scopeAny || p.Allows(scope) {
			return nil
		}
	}
	return (&sandbox.Error{Code: sandbox.CodeForbidden, Message: "the key lacks the scope " + strings.Join(scopes, " or ")}).
		WithAdvice(sandbox.Advise("make one that has it: %s", sandbox.HostCommand("pinfold key create --state DIR --scope "+scopes[0])))
}
