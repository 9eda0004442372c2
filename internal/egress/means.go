package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"

	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// Means is what it takes to read requests, and to put secrets into them. The zero value is
// that of a declaration for which nothing of the kind is done.
type Means struct {
	Authority *Authority
	Secrets   map[string]secret.Secret // by name
}

// NewMeans makes those of a canonical declaration of a tenant's. find may be nil: there are
// no secrets.
func NewMeans(ctx context.Context, n sandbox.Network, tenant string, find secret.Finder) (m Means, err error) {
	if m.Authority, err = NewAuthority(n); err != nil {
		return Means{}, err
	}
	m.Secrets, err = findSecrets(ctx, n, tenant, find, nil)
	return m, err
}

// findSecrets finds the secrets that a declaration names, but for those that are there.
func findSecrets(ctx context.Context, n sandbox.Network, tenant string, find secret.Finder, have map[string]secret.Secret) (all map[string]secret.Secret, err error) {
	if find == nil {
		find = secret.Fixed{}
	}
	for i, e := range n.Endpoints {
		if had, ok := have[e.Secret]; e.Secret == "" || ok && slices.Contains(had.Hosts, e.Host) {
			continue
		}
		field := fmt.Sprintf("network.endpoints[%d].secret", i)
		s, err := find.Find(ctx, tenant, e.Secret)
		if err != nil {
			found := sandbox.AsError(err)
			if found.Code == sandbox.CodeNotFound { // of what was asked for it is a part
				found = (&sandbox.Error{Code: sandbox.CodeSpecInvalid, Message: found.Message}).WithHint(found.Hint)
			}
			return nil, found.WithField(field)
		}
		if !slices.Contains(s.Hosts, e.Host) {
			return nil, (&sandbox.Error{Code: sandbox.CodeEndpointDenied, Field: field, Message: fmt.Sprintf("the secret %s is not for %s", e.Secret, e.Host)}).
				WithHint("set it anew with that host, if it may be sent there; it is for " + strings.Join(s.Hosts, ", "))
		}
		if all == nil {
			all = map[string]secret.Secret{}
		}
		all[e.Secret] = s
	}
	return all, nil
}

// serve says whether the means are enough for a declaration.
func (m Means) serve(n sandbox.Network) error {
	for _, e := range n.Endpoints {
		switch s, ok := m.Secrets[e.Secret]; {
		case e.Set != "":
			return errors.New("egress: a set of endpoints, in whose place nothing was put")
		case e.Ruled() && m.Authority == nil:
			return errors.New("egress: there are rules for requests, and no authority")
		case e.Secret != "" && (!ok || !slices.Contains(s.Hosts, e.Host)):
			return errors.New("egress: a secret is not there, or not for this host")
		}
	}
	return nil
}

// withSecret is a request with the secret that a rule has for it, if one has.
func (f *forwarder) withSecret(r *http.Request, rules []sandbox.Endpoint, secrets map[string]secret.Secret) (*http.Request, sandbox.DenialReason, error) {
	name := secretName(rules, r.Method, r.RequestURI)
	switch {
	case name == "":
		return r, "", nil
	case f.scheme != "https":
		return nil, sandbox.DeniedNotTLS, errPlainSecret
	case r.Method == http.MethodTrace: // its answer is the request
		return nil, sandbox.DeniedMalformed, errors.New("TRACE would have the server say the secret")
	}
	return r.WithContext(context.WithValue(r.Context(), ofSecret{}, secrets[name])), "", nil
}

var errPlainSecret = errors.New("the request would get a secret, and is not in TLS")

// ofSecret is the key of a request's secret in its context.
type ofSecret struct{}

func secretOf(ctx context.Context) (secret.Secret, bool) {
	s, ok := ctx.Value(ofSecret{}).(secret.Secret)
	return s, ok
}

// inject puts the secret into what goes to the server, and asks for an answer in which it
// could be seen.
func inject(out *http.Request) {
	if s, ok := secretOf(out.Context()); ok {
		for _, name := range []string{"Accept-Encoding", "Range", "If-Range"} { // an answer in pieces has pieces of the secret
			secret.Drop(out.Header, name)
		}
		out.Header.Set("Accept-Encoding", "identity")
		s.Put(out)
	}
}

// Why an answer does not reach the program.
var (
	errUnasked = errors.New("the server goes over to another protocol, for which it was not asked")
	errCoded   = errors.New("the server's answer to a request with a secret is compressed (Content-Encoding), though it was asked not to: the secret could be in it")
)

// check looks at an answer, and takes the secret out of it as far as it can be seen there.
// After an error its connection is closed.
func check(answer *http.Response) error {
	if answer.StatusCode == http.StatusSwitchingProtocols &&
		(!strings.EqualFold(answer.Request.Header.Get("Upgrade"), websocket) || !strings.EqualFold(answer.Header.Get("Upgrade"), websocket)) {
		return errUnasked
	}
	s, ok := secretOf(answer.Request.Context())
	if !ok {
		return nil
	}
	for _, coding := range answer.Header["Content-Encoding"] {
		if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
			return errCoded
		}
	}
	r := s.Redactor()
	r.Header(answer.Header)
	r.Header(answer.Trailer)                                // whose names are known already
	if answer.StatusCode != http.StatusSwitchingProtocols { // that is the server's connection
		answer.Body = &redactedBody{Reader: r.Reader(answer.Body), Closer: answer.Body, end: func() { r.Header(answer.Trailer) }}
	}
	return nil
}

// redactedBody is a body without the secret. Trailers come with its end.
type redactedBody struct {
	io.Reader
	io.Closer
	end func()
}

// Read implements io.Reader.
func (b *redactedBody) Read(into []byte) (int, error) {
	n, err := b.Reader.Read(into)
	if errors.Is(err, io.EOF) {
		b.end()
	}
	return n, err
}

// finalAnswers has a program get only the last answer to a request with a secret: those
// before it (100 to 199) are not looked at.
type finalAnswers struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t finalAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, ok := secretOf(r.Context()); ok {
		r = r.WithContext(untraced{r.Context()})
	}
	return t.RoundTripper.RoundTrip(r)
}

// untraced is a context without what listens for those answers.
type untraced struct{ context.Context }

// Value implements context.Context.
func (c untraced) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}
