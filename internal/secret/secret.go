// Package secret keeps what programs in sandboxes use and never have: a tenant's secrets,
// which the host puts into requests (package egress).
//
// They are written and not read: only Find, whose callers are in this process, returns one
// with its value, and that is not printed.
package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// Secret is one with its value.
type Secret struct {
	sandbox.Secret

	value *value
}

// value is behind a pointer: whatever prints, logs or encodes a Secret, or what holds one,
// finds an address there.
type value struct{ text string }

// New is a secret of that name. What is given must be canonical.
func New(name string, s sandbox.SetSecret) Secret {
	return Secret{sandbox.Secret{Name: name, Hosts: s.Hosts, Header: s.Header, Basic: s.Basic, Query: s.Query}, &value{s.Value}}
}

// Of is what is known of a secret, with its value.
func Of(known sandbox.Secret, text string) Secret { return Secret{known, &value{text}} }

// Put puts the secret into a request, in the place of what stands there.
func (s Secret) Put(r *http.Request) {
	switch {
	case s.Basic != "":
		r.SetBasicAuth(s.Basic, s.value.text)
	case s.Query != "":
		var kept []string
		for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
			name, _, _ := strings.Cut(pair, "=")
			if plain, err := url.QueryUnescape(name); pair != "" && (err != nil || !strings.EqualFold(plain, s.Query)) {
				kept = append(kept, pair)
			}
		}
		kept = append(kept, url.QueryEscape(s.Query)+"="+url.QueryEscape(s.value.text))
		r.URL.RawQuery = strings.Join(kept, "&")
	default:
		name, format, _ := strings.Cut(s.Header, ":")
		for have := range r.Header { // some servers take _ for -
			if strings.EqualFold(strings.ReplaceAll(have, "_", "-"), name) {
				delete(r.Header, have)
			}
		}
		r.Header.Set(name, strings.Replace(strings.TrimSpace(format), sandbox.Place, s.value.text, 1))
	}
}

// Redactor takes a secret out of what a server answers, in the forms in which it would
// say it again. It is safe for concurrent use.
type Redactor struct{ forms [][]byte }

// Redactor returns that of s.
func (s Secret) Redactor() Redactor {
	plain := s.value.text
	quoted, _ := json.Marshal(plain) // a string never fails
	all := []string{
		plain, url.QueryEscape(plain), url.PathEscape(plain), string(quoted[1 : len(quoted)-1]),
		base64.StdEncoding.EncodeToString([]byte(plain)), base64.URLEncoding.EncodeToString([]byte(plain)), base64.RawStdEncoding.EncodeToString([]byte(plain)),
	}
	if s.Basic != "" {
		all = append(all, base64.StdEncoding.EncodeToString([]byte(s.Basic+":"+plain)))
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	var r Redactor
	for _, form := range slices.Compact(all) {
		r.forms = append(r.forms, []byte(form))
	}
	return r
}

// Bytes is data with asterisks in the place of the secret, as many bytes as before. It
// changes data.
func (r Redactor) Bytes(data []byte) []byte {
	for _, form := range r.forms {
		for rest := data; ; {
			at := bytes.Index(rest, form)
			if at < 0 {
				break
			}
			for i := range form {
				rest[at+i] = '*'
			}
			rest = rest[at+len(form):]
		}
	}
	return data
}

// Header takes it out of headers, or trailers.
func (r Redactor) Header(h http.Header) {
	for name, values := range h {
		clean := string(r.Bytes([]byte(name)))
		if clean != name {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = string(r.Bytes([]byte(v)))
		}
	}
}

// Reader reads what from has without the secret. What is not its beginning is not held
// back.
func (r Redactor) Reader(from io.Reader) io.Reader { return &redacted{redactor: r, from: from} }

const readSize = 32 << 10

type redacted struct {
	redactor Redactor
	from     io.Reader
	pending  []byte // read
	ready    int    // of these, that may be given away
	err      error
}

// Read implements io.Reader.
func (r *redacted) Read(into []byte) (int, error) {
	for r.ready == 0 && r.err == nil {
		start := len(r.pending)
		r.pending = append(r.pending, make([]byte, readSize)...)
		n, err := r.from.Read(r.pending[start:])
		r.pending, r.err = r.redactor.Bytes(r.pending[:start+n]), err
		r.ready = len(r.pending)
		if err == nil {
			r.ready -= r.redactor.begun(r.pending)
		}
	}
	n := copy(into, r.pending[:r.ready])
	r.pending, r.ready = r.pending[n:], r.ready-n
	if n > 0 || len(into) == 0 {
		return n, nil
	}
	return 0, r.err
}

// begun is how much at the end of data may be the beginning of the secret.
func (r Redactor) begun(data []byte) (most int) {
	for _, form := range r.forms {
		for n := min(len(form)-1, len(data)); n > most; n-- {
			if bytes.Equal(data[len(data)-n:], form[:n]) {
				most = n
			}
		}
	}
	return most
}
