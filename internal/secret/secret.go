// Package secret keeps what programs in sandboxes use and never have: a tenant's secrets,
// which the host puts into requests (package egress).
//
// They are written and not read: only Find, whose callers are in this process, returns one
// with its value, and that is not printed.
package secret

import (
	"bytes"
	"cmp"
	"errors"
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
		Drop(r.Header, name)
		r.Header.Set(name, strings.Replace(strings.TrimSpace(format), sandbox.Place, s.value.text, 1))
	}
}

// Drop drops a header in every spelling: some servers take _ for -.
func Drop(h http.Header, name string) {
	for have := range h {
		if strings.EqualFold(strings.ReplaceAll(have, "_", "-"), name) {
			delete(h, have)
		}
	}
}

// Redactor takes a secret out of what a server answers, in the forms in which it would
// say it again. It is safe for concurrent use.
type Redactor struct {
	forms [][]byte // the longest first
	hold  int      // how much of a text's end is held back at most
}

// holdStep rounds how much is held back, so that it does not tell how long the secret is.
const holdStep = 64

// Redactor returns that of s.
func (s Secret) Redactor() Redactor {
	all := formsOf(s.value.text)
	if s.Basic != "" {
		all = append(all, base64Forms(s.Basic+":"+s.value.text)...)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	var r Redactor
	for _, form := range slices.Compact(all) {
		r.forms = append(r.forms, []byte(form))
	}
	r.hold = (len(all[0]) + holdStep - 1) / holdStep * holdStep
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

// Find says where in data the secret stands, as [from, to): in order, without overlaps, at
// most that many places.
func (r Redactor) Find(data []byte, most int) (places [][2]int) {
	for _, form := range r.forms {
		for at, n := 0, 0; n < most; n++ {
			next := bytes.Index(data[at:], form)
			if next < 0 {
				break
			}
			places = append(places, [2]int{at + next, at + next + len(form)})
			at += next + len(form)
		}
	}
	slices.SortFunc(places, func(a, b [2]int) int { return a[0] - b[0] })
	apart := places[:0]
	for _, p := range places {
		if n := len(apart); n > 0 && p[0] < apart[n-1][1] {
			apart[n-1][1] = max(apart[n-1][1], p[1])
			continue
		}
		apart = append(apart, p)
	}
	return apart[:min(len(apart), most)]
}

// Header takes it out of headers, or trailers. Names are the same in any case of letters.
func (r Redactor) Header(h http.Header) {
	for name, values := range h {
		if slices.ContainsFunc(r.forms, func(form []byte) bool {
			return bytes.Contains(bytes.ToLower([]byte(name)), bytes.ToLower(form))
		}) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = string(r.Bytes([]byte(v)))
		}
	}
}

// Reader reads what from has without the secret. The printable text at the end of what has
// come is held back until more comes, as far as a secret could have begun in it: whatever
// its letters are, or who can have a server say letters and stop would learn the secret from
// what comes and what does not. A line's end gives everything out.
func (r Redactor) Reader(from io.Reader) io.Reader { return &redacted{redactor: r, from: from} }

const readSize = 32 << 10

type redacted struct {
	redactor Redactor
	from     io.Reader
	pending  []byte // read
	ready    int    // of these, that may be given away
	err      error
}

// Read implements io.Reader. What is held back when reading fails is dropped.
func (r *redacted) Read(into []byte) (int, error) {
	for r.ready == 0 && r.err == nil {
		start := len(r.pending)
		r.pending = append(r.pending, make([]byte, readSize)...)
		n, err := r.from.Read(r.pending[start:])
		r.pending, r.err = r.redactor.Bytes(r.pending[:start+n]), err
		r.ready = len(r.pending)
		if !errors.Is(err, io.EOF) {
			r.ready -= r.redactor.held(r.pending)
		}
	}
	n := copy(into, r.pending[:r.ready])
	r.pending, r.ready = r.pending[n:], r.ready-n
	if n > 0 || len(into) == 0 {
		return n, nil
	}
	return 0, r.err
}

// held is how much at the end of data is held back.
func (r Redactor) held(data []byte) (n int) {
	for n < min(r.hold, len(data)) && isPrintable(data[len(data)-1-n]) {
		n++
	}
	return n
}

func isPrintable(b byte) bool { return ' ' <= b && b <= '~' }
