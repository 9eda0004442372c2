package egress

import (
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pinfold/internal/secret"
	"pinfold/sandbox"
)

const canary = "canary-4f1e9c77"

// secrets of a test, as the operator of a program has them.
func secrets(t *testing.T, given map[string]sandbox.SetSecret) secret.Fixed {
	t.Helper()
	for name, s := range given {
		s.Value = canary
		given[name] = s
	}
	f, err := secret.NewFixed(given)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// withSecret has the site's endpoint get one.
func withSecret(t *testing.T, server *httptest.Server, set sandbox.SetSecret, ports ...int) *site {
	t.Helper()
	set.Hosts = []string{"example.com"}
	find := secrets(t, map[string]sandbox.SetSecret{"token": set})
	return newSiteWith(t, server.Listener.Addr().String(), find, func(h *Host, n *sandbox.Network) {
		rulesFor(server, nil)(h, n)
		n.Endpoints[0].Methods, n.Endpoints[0].Paths, n.Endpoints[0].Secret = []string{"GET", "TRACE"}, []string{"/with/**"}, "token"
		n.Endpoints = append(n.Endpoints, sandbox.Endpoint{Host: n.Endpoints[0].Host, Ports: n.Endpoints[0].Ports, Address: n.Endpoints[0].Address, Paths: []string{"/without/**"}})
	}, ports...)
}

// A secret is in the requests for which it was declared, in its place, once; what the
// program put there is not; and it is in no other request.
func TestSecretIsInjected(t *testing.T) {
	var seen http.Header
	server, hits := secureServer(t, func(w http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() })
	for _, two := range []bool{false, true} {
		s := withSecret(t, server, sandbox.SetSecret{}, 443)
		c := s.trusting(443, two)
		r, _ := http.NewRequest(http.MethodGet, "https://example.com/with/x", nil)
		r.Header.Set("Authorization", "Bearer mine")
		if !two {
			r.Header.Set("Connection", "Authorization")
		}
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if got := seen["Authorization"]; len(got) != 1 || got[0] != "Bearer "+canary {
			t.Errorf("the server got %q", got)
		}
		if code, _ := ask(t, c, "GET", "https://example.com/without/x", ""); code != 200 || strings.Contains(fmt.Sprint(seen), canary) {
			t.Errorf("without: %d %v", code, seen)
		}
		before := hits.Load()
		for _, denied := range []string{"TRACE /with/x", "POST /with/x", "GET /with/..%2fwithout/x"} {
			method, path, _ := strings.Cut(denied, " ")
			if code, _ := ask(t, c, method, "https://example.com"+path, ""); code != 403 {
				t.Errorf("%s: %d", denied, code)
			}
		}
		if hits.Load() != before {
			t.Error("what was denied reached the server")
		}
		u := s.relay.Use()
		if e := u.Endpoints[0]; e.Requests != 2 || e.Secrets != 1 || len(e.SecretNames) != 1 || e.SecretNames[0] != "token" {
			t.Errorf("%+v", e)
		}
		if text, _ := json.Marshal(u); bytes.Contains(text, []byte(canary)) {
			t.Errorf("%s", text)
		}
	}
}

// What a server says back of a secret does not reach the program, as far as it can be seen:
// in headers (a redirect), trailers, early answers, and bodies in pieces.
func TestEchoesAreRedacted(t *testing.T) {
	server, _ := secureServer(t, func(w http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization") + r.URL.RawQuery
		switch r.URL.Path {
		case "/with/early":
			w.Header().Set("Link", got)
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
		case "/with/redirect":
			w.Header().Set("Location", "https://evil.test/?"+got)
			w.WriteHeader(http.StatusFound)
			return
		case "/with/trailer":
			w.Header().Set("Trailer", "X-Echo, X-"+canary)
			defer func() { w.Header().Set("X-Echo", got) }()
		case "/with/coded":
			if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				_, _ = io.WriteString(z, got)
				_ = z.Close()
				return
			}
		}
		w.Header().Set("X-Echo-Now", got)
		for _, piece := range []string{"begin ", got[:len(got)/2], got[len(got)/2:], " end"} {
			_, _ = io.WriteString(w, piece)
			w.(http.Flusher).Flush()
		}
	})
	for name, set := range map[string]sandbox.SetSecret{"header": {}, "query": {Query: "key"}} {
		s := withSecret(t, server, set, 443)
		for _, two := range []bool{false, true} {
			c := s.trusting(443, two)
			for _, path := range []string{"/with/body", "/with/early", "/with/redirect", "/with/trailer", "/with/coded"} {
				answer, err := c.Get("https://example.com" + path)
				if err != nil {
					t.Fatal(err)
				}
				if names := fmt.Sprint(answer.Trailer); strings.Contains(strings.ToLower(names), canary) {
					t.Errorf("trailers are announced: %s", names)
				}
				body, err := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				if all := fmt.Sprint(answer.Header, string(body), answer.Trailer); err != nil || strings.Contains(all, canary) || !strings.Contains(all, strings.Repeat("*", len(canary))) {
					t.Errorf("%s, %s, HTTP/2 %v: %v %s", name, path, two, err, all)
				}
			}
		}
	}
	// The control: who has the secret sees it in all of these.
	r, _ := http.NewRequest(http.MethodGet, server.URL+"/with/body", nil)
	r.Header.Set("Authorization", "Bearer "+canary)
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); !strings.Contains(string(body), canary) || !strings.Contains(fmt.Sprint(answer.Header), canary) {
		t.Errorf("the control: %s", body)
	}
}

// A request with a secret asks for an answer that can be looked at, however a program asks
// for another; what is compressed all the same does not pass.
func TestAnswersThatHideTheSecret(t *testing.T) {
	var seen http.Header
	server, _ := secureServer(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		if coding := r.URL.Query().Get("coding"); coding != "" {
			w.Header()["Content-Encoding"] = strings.Split(coding, ";")
		}
	})
	s := withSecret(t, server, sandbox.SetSecret{}, 443)
	for _, two := range []bool{false, true} {
		c := s.trusting(443, two)
		r, _ := http.NewRequest(http.MethodGet, "https://example.com/with/x", nil)
		for _, name := range []string{"Accept-Encoding", "accept_encoding", "Accept_Encoding", "Range", "If-Range", "If_Range", "range"} {
			r.Header[name] = []string{"mine"}
		}
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if all := fmt.Sprint(seen); strings.Contains(all, "mine") || seen.Get("Accept-Encoding") != "identity" {
			t.Errorf("the server was asked with %s", all)
		}
		for query, want := range map[string]int{
			"/with/x?coding=gzip": 502, "/with/x?coding=identity%3B%20BR": 502, "/with/x?coding=identity,gzip": 502, "/with/x?coding=Identity": 200, "/without/x?coding=gzip": 200,
		} {
			r, _ := http.NewRequest(http.MethodGet, "https://example.com"+query, nil)
			r.Header.Set("Accept-Encoding", "gzip") // or it is decoded here
			answer, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode != want || want == 502 && !strings.Contains(string(got), "Content-Encoding") {
				t.Errorf("%s: %s %s", query, answer.Status, got)
			}
		}
	}
}

// A secret goes nowhere without TLS, nor to a server whose certificate does not hold.
func TestSecretNeedsTLS(t *testing.T) {
	plain, hits := webServer(t)
	find := secrets(t, map[string]sandbox.SetSecret{"token": {Hosts: []string{"ok.test"}}})
	s := newSiteWith(t, plain, find, func(_ *Host, n *sandbox.Network) { n.Endpoints[0].Secret = "token" }, 80)
	if got := s.say(80, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n"); !strings.Contains(got, "403 Forbidden") || hits.Load() != 0 {
		t.Errorf("%q", got)
	}
	if reasons := s.denials(); reasons[0] != sandbox.DeniedNotTLS {
		t.Error(reasons)
	}
	server, secureHits := secureServer(t, nil)
	s = withSecret(t, server, sandbox.SetSecret{}, 443)
	s.relay.host.roots = x509.NewCertPool()
	if code, got := ask(t, s.trusting(443, true), "GET", "https://example.com/with/x", ""); code != 502 || secureHits.Load() != 0 || strings.Contains(got, canary) {
		t.Errorf("%d %s", code, got)
	}
}

// Who declares a secret that is not there, or for a host that it is not for, is refused.
func TestWrongSecrets(t *testing.T) {
	find := secrets(t, map[string]sandbox.SetSecret{"token": {Hosts: []string{"a.test"}}})
	for _, test := range []struct {
		e    sandbox.Endpoint
		find secret.Finder
		code string
	}{
		{sandbox.Endpoint{Host: "a.test", Secret: "token"}, find, ""},
		{sandbox.Endpoint{Host: "b.test", Secret: "token"}, find, sandbox.CodeEndpointDenied},
		{sandbox.Endpoint{Host: "a.test", Secret: "other"}, find, sandbox.CodeSpecInvalid},
		{sandbox.Endpoint{Host: "a.test", Secret: "token"}, nil, sandbox.CodeSpecInvalid},
	} {
		n, err := sandbox.Network{Endpoints: []sandbox.Endpoint{test.e}}.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		m, err := NewMeans(t.Context(), n, "team", test.find)
		if test.code == "" {
			if err != nil || m.serve(n) != nil || m.Authority == nil {
				t.Errorf("%+v: %v", test.e, err)
			}
			continue
		}
		if e := sandbox.AsError(err); e == nil || e.Code != test.code || e.Field != "network.endpoints[0].secret" || e.Hint == "" {
			t.Errorf("%+v: %v", test.e, err)
		}
		if (Means{Authority: &Authority{}}).serve(n) == nil {
			t.Error("a relay without the secret")
		}
	}
}
