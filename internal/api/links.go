package api

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"pinfold/internal/access"
	"pinfold/internal/engine/living"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// A link is an address of one port of one sandbox that works without a key,
// until its time is over, for a browser. It is a sealed token (AES-GCM) in the
// path, so that relative links in a page keep it: nobody can make one, change
// one, or read in it whose it is. The key that seals them is made at the start
// and is nowhere else: links end with the server, as sandboxes do. They end
// with the key that made them, too.
const (
	linkPrefix  = "/p/"
	linkPattern = "/p/{token}/{path}"
)

// link is what a token says.
type link struct {
	Sandbox string `json:"s"`
	Port    int    `json:"p"`
	Tenant  string `json:"t"`
	KeyID   string `json:"k"`
	Expires int64  `json:"e"` // milliseconds since 1970
}

// Link is a link as people see it.
type Link struct {
	URL       string    `json:"url,omitempty"`
	Path      string    `json:"path"`
	Port      int       `json:"port"`
	ExpiresAt time.Time `json:"expires_at"`
}

// linkBody asks for a link.
type linkBody struct {
	Port  int   `json:"port"`
	TTLMS int64 `json:"ttl_ms,omitempty" zero:"refused"`
}

// Times to live of links, in milliseconds.
const (
	defaultLinkTTL = 3600 * 1000
	minLinkTTL     = 1000
	maxLinkTTL     = 7 * 24 * 3600 * 1000
	maxLinkToken   = 1024 // characters
)

const linkDescription = `An address under which a browser reaches a server inside, without a key: whoever has it may use that one port until its time is over. Relative links in a page go on working below it.

It ends earlier with the sandbox, with the key that made it, and with the server. What comes by it is sandboxed like all that comes by path: "Content-Security-Policy: sandbox" and no cookies; such a page's own requests ("Origin: null") are let through. url is left out where the server is reached over a unix socket; path goes behind the server's address.`

// newSealer makes the key for links.
func newSealer() cipher.AEAD {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has the right length
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return sealer
}

func (s *server) linkRoutes() []route {
	return []route{{
		method: http.MethodPost, path: "/v1/sandboxes/{id}/links", id: "createLink", tag: "Ports", summary: "Make an address of a port for a browser",
		description: linkDescription, scopes: []string{scopeSandbox}, body: jsonBody[linkBody]("The port, and how long the address works."),
		answers: []reply{jsonReply[Link](http.StatusCreated, "The address.")},
		example: `curl -s $SERVER/v1/sandboxes/$ID/links -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"port": 8000, "ttl_ms": 600000}'`,
		handle:  withBody((*call).sandbox, (*call).createLink),
	}}
}

func (c *call) createLink(inside *living.Sandbox, b *linkBody) error {
	b.TTLMS = cmp.Or(b.TTLMS, defaultLinkTTL)
	switch {
	case b.Port < 1 || b.Port > 65535:
		return badPort()
	case b.TTLMS < minLinkTTL || b.TTLMS > maxLinkTTL:
		return badRequest("ttl_ms", "is outside 1 s to 7 days", "make another one when it is over")
	}
	expires := time.Now().Add(time.Duration(b.TTLMS) * time.Millisecond)
	text, err := json.Marshal(link{Sandbox: inside.ID(), Port: b.Port, Tenant: c.tenant(), KeyID: c.who.KeyID, Expires: expires.UnixMilli()})
	if err != nil { // strings and numbers: cannot happen
		return err
	}
	l := Link{Port: b.Port, ExpiresAt: expires.UTC().Truncate(time.Millisecond)}
	l.Path = linkPrefix + base64.RawURLEncoding.EncodeToString(c.links.Seal(nil, nil, text, []byte(linkPrefix))) + "/"
	if !isLocalPeer(c.r.Context()) {
		scheme := "http://"
		if c.r.TLS != nil || c.r.Header.Get("X-Forwarded-Proto") == "https" {
			scheme = "https://"
		}
		l.URL = scheme + c.r.Host + l.Path
	}
	return c.reply(http.StatusCreated, l)
}

// linkPath cuts a path that is below a link.
func linkPath(escaped string) (token, rest, prefix string, ok bool) {
	after, ok := strings.CutPrefix(escaped, linkPrefix)
	if !ok {
		return "", "", "", false
	}
	token, rest, below := strings.Cut(after, "/")
	if below {
		rest = "/" + rest
	}
	return token, rest, linkPrefix + token, true
}

// readLink opens a token. All that is no link of this server's is refused alike.
func (s *server) readLink(token string) (link, error) {
	var l link
	sealed, err := base64.RawURLEncoding.DecodeString(token[:min(len(token), maxLinkToken)])
	if err == nil && len(token) <= maxLinkToken {
		var text []byte
		if text, err = s.links.Open(nil, nil, sealed, []byte(linkPrefix)); err == nil {
			err = json.Unmarshal(text, &l)
		}
	}
	if err != nil || l.Sandbox == "" {
		return l, &sandbox.Error{Code: sandbox.CodeNotFound, Message: "this is no address of a port, or no longer one", Hint: linkHint}
	}
	return l, l.check()
}

const linkHint = "ask for a new one: pinfold link SANDBOX PORT"

func (l link) check() error {
	if time.Now().UnixMilli() >= l.Expires {
		return &sandbox.Error{Code: sandbox.CodeUnauthorized, Message: "the time of this address is over", Hint: linkHint}
	}
	return nil
}

type linkKey struct{}

// serveLink serves what is below a link.
func (s *server) serveLink(a *answer, r *http.Request, token, rest, prefix string) {
	r.Pattern = linkPattern
	h := a.Header()
	h.Set("Cache-Control", "no-store")         // of our own answers; a page of the guest's says its own
	h.Set("Referrer-Policy", "no-referrer")    // the address is the key
	h.Set("X-Robots-Tag", "noindex, nofollow") // and belongs into no index
	l, err := s.readLink(token)
	if err != nil {
		s.fail(a, r, err)
		return
	}
	h.Del("Cache-Control")
	r = r.WithContext(context.WithValue(r.Context(), linkKey{}, l))
	s.servePort(a, r, portTarget{l.Sandbox, l.Port}, rest, prefix)
}

// linked says as whom a request by a link is made: as the one who made it, as
// long as their key is good and the time of the link is not over. Nothing but
// the port of the link is asked in their name.
func (s *server) linked(ctx context.Context) (who access.Principal, ok bool, err error) {
	l, ok := ctx.Value(linkKey{}).(link)
	if !ok {
		return who, false, nil
	}
	if err := l.check(); err != nil {
		return who, true, err
	}
	if l.KeyID == localKeyID && l.Tenant == records.LocalTenant {
		return localPeer(), true, nil
	}
	who, err = s.o.Access.Standing(ctx, l.KeyID)
	return who, true, err
}
