package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"pinfold/sandbox"
)

// secureServer speaks TLS with HTTP/1 and HTTP/2, and says what it was asked for.
func secureServer(t *testing.T, handler http.HandlerFunc) (s *httptest.Server, hits *atomic.Int64) {
	hits = new(atomic.Int64)
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		if handler != nil {
			handler(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s %s %s", r.Proto, r.Method, r.Host, r.RequestURI, body)
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, hits
}

// rulesFor has the endpoint's requests held to what is given, and its server's certificate
// be trusted.
func rulesFor(s *httptest.Server, methods []string, paths ...string) func(*Host, *sandbox.Network) {
	return func(h *Host, n *sandbox.Network) {
		n.Endpoints[0].Methods, n.Endpoints[0].Paths = methods, paths
		n.Endpoints[0].Host = "example.com" // httptest's certificate is for that
		if s.Certificate() != nil {
			h.roots = x509.NewCertPool()
			h.roots.AddCert(s.Certificate())
		}
	}
}

// trusting is a client of a program inside, which trusts the sandbox's authority alone.
func (s *site) trusting(port int, http2too bool) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.relay.means.Authority.PEM())
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: http2too,
	}
	tr.Dial = func(string, string) (net.Conn, error) { return net.Dial("tcp", s.doors[port]) } //nolint:staticcheck // it needs no context
	s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// ask makes a request and returns the status and the body.
func ask(t *testing.T, c *http.Client, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	got, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(got)
}

// Requests in TLS are held to methods and paths, over HTTP/1 and HTTP/2, and what passes
// gets where it should as it was.
func TestRequestsAreHeldToRules(t *testing.T) {
	for _, two := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", two), func(t *testing.T) {
			server, hits := secureServer(t, nil)
			s := newSite(t, server.Listener.Addr().String(), rulesFor(server, []string{"GET", "POST"}, "/repos/**"), 443)
			c := s.trusting(443, two)
			code, got := ask(t, c, "GET", "https://example.com/repos/a%2Fb/c?q=1;x&%zz", "")
			if want := "GET example.com /repos/a%2Fb/c?q=1;x&%zz "; code != 200 || !strings.HasSuffix(got, want) {
				t.Errorf("%d %q", code, got)
			}
			big := strings.Repeat("x", 1<<20)
			if code, got := ask(t, c, "POST", "https://example.com/repos/a", big); code != 200 || !strings.HasSuffix(got, "/repos/a "+big) {
				t.Errorf("%d %.80q", code, got)
			}
			passed := hits.Load()
			for _, denied := range []string{"DELETE /repos/a", "GET /admin", "GET /repos/%2e%2e/admin", "GET /repos"} {
				method, path, _ := strings.Cut(denied, " ")
				code, got := ask(t, c, method, "https://example.com"+path, "")
				if code != 403 || !strings.Contains(got, "pinfold: ") {
					t.Errorf("%s: %d %s", denied, code, got)
				}
			}
			if hits.Load() != passed {
				t.Error("what was denied reached the server")
			}
			u := s.relay.Use()
			if u.Endpoints[0].Requests != 2 || u.Endpoints[0].BytesUp < 1<<20 || u.Endpoints[0].BytesDown < 1<<20 || len(u.Denied) != 4 {
				t.Errorf("%+v", u)
			}
			if d := u.Denied[0]; d.Reason != sandbox.DeniedRequest || d.Evidence != "DELETE /repos/a" || !strings.Contains(d.Hint, `"methods": ["DELETE"]`) {
				t.Errorf("%+v", d)
			}
		})
	}
}

// A server whose certificate does not hold is not spoken with, and the program learns it.
func TestServersCertificateIsVerified(t *testing.T) {
	server, hits := secureServer(t, nil)
	s := newSite(t, server.Listener.Addr().String(), func(h *Host, n *sandbox.Network) {
		rulesFor(server, []string{"GET"})(h, n)
		h.roots = x509.NewCertPool()
	}, 443)
	code, got := ask(t, s.trusting(443, true), "GET", "https://example.com/", "")
	if code != 502 || !strings.Contains(got, "certificate does not hold") || hits.Load() != 0 {
		t.Errorf("%d %s %d", code, got, hits.Load())
	}
	if u := s.relay.Use().Endpoints[0]; u.Errors != 1 || !strings.Contains(u.LastError, "certificate") {
		t.Errorf("%+v", u)
	}
}

// What trusts another than the sandbox's authority gets nowhere, and the result says why.
func TestProgramThatDoesNotTrustTheAuthority(t *testing.T) {
	server, hits := secureServer(t, nil)
	s := newSite(t, server.Listener.Addr().String(), rulesFor(server, []string{"GET"}), 443)
	c := s.trusting(443, true)
	c.Transport.(*http.Transport).TLSClientConfig.RootCAs = x509.NewCertPool()
	if code, got := ask(t, c, "GET", "https://example.com/", ""); code != 0 || hits.Load() != 0 {
		t.Errorf("%d %s", code, got)
	}
	for range 1000 {
		if u := s.relay.Use().Endpoints[0]; u.Errors > 0 {
			if u.LastError != errUntrusted.Error() {
				t.Error(u.LastError)
			}
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("nothing was written down")
}

// The authority's certificate is good for its hosts and for nothing else.
func TestAuthorityIsForItsHostsAlone(t *testing.T) {
	n := sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test", Ports: []int{443}, Methods: []string{"GET"}}, {Host: "b.test", Ports: []int{443}}}}
	a, err := NewAuthority(n)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.PEM())
	for host, good := range map[string]bool{"a.test": true, "b.test": false, "evil.test": false, "xa.test": false} {
		c, err := a.of(host)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host})
		if (err == nil) != good {
			t.Errorf("%s: %v", host, err)
		}
	}
	if bytes.Contains(a.PEM(), []byte("PRIVATE")) {
		t.Error("the key is in it")
	}
	if a, err := NewAuthority(sandbox.Network{Endpoints: n.Endpoints[1:]}); a != nil || err != nil {
		t.Errorf("%v %v where nothing wants one", a, err)
	}
	if _, err := Open(NewHost(1), n, Means{}, nil, nil); err == nil {
		t.Error("a relay with rules has no authority")
	}
}

// raw begins TLS by hand and returns what is in it.
func (s *site) raw(port int, protocol string) *tls.Conn {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.relay.means.Authority.PEM())
	c := tls.Client(s.dial(port), &tls.Config{RootCAs: roots, ServerName: "example.com", NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12})
	if err := c.Handshake(); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// Requests with two readings do not pass, in TLS and without: what another host, another
// path or a second request could be made of.
func TestRulesAgainstSmuggling(t *testing.T) {
	plain, plainHits := webServer(t)
	server, hits := secureServer(t, nil)
	for name, text := range map[string]string{
		"another host":           "GET /ok HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"two hosts":              "GET /ok HTTP/1.1\r\nHost: H\r\nHost: evil.test\r\n\r\n",
		"absolute form":          "GET http://H/admin HTTP/1.1\r\nHost: H\r\n\r\n",
		"a user":                 "GET /ok HTTP/1.1\r\nHost: u@H\r\n\r\n",
		"two lengths":            "POST /ok HTTP/1.1\r\nHost: H\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: H\r\n\r\n",
		"two numbers":            "POST /ok HTTP/1.1\r\nHost: H\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
		"a strange coding":       "POST /ok HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"a bare line feed":       "GET /ok HTTP/1.1\nHost: H\n\n",
		"a folded line":          "GET /ok HTTP/1.1\r\nHost: H\r\nX: a\r\n b\r\n\r\n",
		"a blank before a colon": "GET /ok HTTP/1.1\r\nHost: H\r\nContent-Length : 3\r\n\r\nabc",
		"a method override":      "GET /ok HTTP/1.1\r\nHost: H\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
		"another override":       "GET /ok HTTP/1.1\r\nHost: H\r\nx_http_method_override: DELETE\r\n\r\n",
		"another path":           "GET /ok HTTP/1.1\r\nHost: H\r\nX-Original-URL: /admin\r\n\r\n",
		"CONNECT":                "CONNECT evil.test:443 HTTP/1.1\r\nHost: H\r\n\r\n",
		"another protocol":       "GET /ok HTTP/1.1\r\nHost: H\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nGET /admin HTTP/1.1\r\nHost: H\r\n\r\n",
		"dots":                   "GET /ok/../admin HTTP/1.1\r\nHost: H\r\n\r\n",
		"HTTP/2 in the clear":    http2.ClientPreface,
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.ReplaceAll(text, ": H\r", ": example.com\r")
			text = strings.ReplaceAll(strings.ReplaceAll(text, "@H", "@example.com"), "//H/", "//example.com/")
			rules := rulesFor(server, []string{"GET", "POST"}, "/ok")
			s := newSite(t, server.Listener.Addr().String(), rules, 443)
			c := s.raw(443, "http/1.1")
			_, _ = io.WriteString(c, text)
			_ = c.CloseWrite()
			got, _ := io.ReadAll(c)
			if hits.Load() > 0 || strings.Contains(string(got), " 200 ") {
				t.Errorf("in TLS: %q", got)
			}
			if len(s.relay.Use().Denied) == 0 {
				t.Error("nothing was written down")
			}
			s = newSite(t, plain, func(_ *Host, n *sandbox.Network) {
				rulesFor(&httptest.Server{}, []string{"GET", "POST"}, "/ok")(NewHost(1), n)
			}, 80)
			if got := s.say(80, text); plainHits.Load() > 0 || strings.Contains(got, " 200 ") {
				t.Errorf("plain: %q", got)
			}
		})
	}
	// The controls: they reach a server that nobody stands before.
	if code, _ := ask(t, server.Client(), "DELETE", server.URL+"/admin", ""); code != 200 {
		t.Error(code)
	}
	s := newSite(t, plain, func(_ *Host, n *sandbox.Network) { rulesFor(&httptest.Server{}, []string{"GET"}, "/ok")(NewHost(1), n) }, 80)
	if got := s.say(80, "GET /ok HTTP/1.1\r\nHost: example.com\r\n\r\nGET /ok HTTP/1.1\r\nHost: example.com\r\n\r\n"); strings.Count(got, " 200 OK") != 2 {
		t.Errorf("the twin: %q", got)
	}
}

// Whatever HTTP/2 says of the host and the path is held to the same.
func TestRulesOverHTTP2(t *testing.T) {
	server, hits := secureServer(t, nil)
	s := newSite(t, server.Listener.Addr().String(), rulesFor(server, []string{"GET"}, "/ok"), 443)
	c := s.trusting(443, true)
	for name, change := range map[string]func(*http.Request){
		"another authority": func(r *http.Request) { r.Host = "evil.test" },
		"an override":       func(r *http.Request) { r.Header.Set("X-Method-Override", "DELETE") },
		"a port":            func(r *http.Request) { r.Host = "example.com:8443" },
		"dots":              func(r *http.Request) { r.URL.Opaque = "/ok/../admin" },
		"a blank":           func(r *http.Request) { r.URL.RawQuery = "x HTTP/1.1" },
		"other letters":     func(r *http.Request) { r.URL.RawQuery = "x=\u00e4" },
	} {
		r, _ := http.NewRequest(http.MethodGet, "https://example.com/ok", nil)
		change(r)
		answer, err := c.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden || answer.ProtoMajor != 2 {
			t.Errorf("%s: %s %s", name, answer.Proto, answer.Status)
		}
	}
	if hits.Load() != 0 {
		t.Error("the server was asked")
	}
	if code, got := ask(t, c, "GET", "https://example.com/ok", ""); code != 200 {
		t.Errorf("the twin: %d %s", code, got)
	}
}

// What streams is not held back: events as they come, and WebSockets both ways; and what a
// server says instead of changing the protocol is no tunnel.
func TestStreamsPassRules(t *testing.T) {
	more := make(chan struct{})
	server, _ := secureServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			<-more
			_, _ = io.WriteString(w, "data: 2\n\n")
		case "/socket":
			conn, rw, _ := w.(http.Hijacker).Hijack()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = io.Copy(conn, rw)
			_ = conn.Close()
		default:
			_, _ = io.WriteString(w, "served "+r.URL.Path)
		}
	})
	s := newSite(t, server.Listener.Addr().String(), rulesFor(server, []string{"GET"}, "/events", "/socket", "/none"), 443)
	for _, two := range []bool{false, true} {
		answer, err := s.trusting(443, two).Get("https://example.com/events")
		if err != nil {
			t.Fatal(err)
		}
		events := bufio.NewReader(answer.Body)
		if line, err := events.ReadString('\n'); line != "data: 1\n" {
			t.Fatalf("%q %v", line, err)
		}
		more <- struct{}{}
		if rest, _ := io.ReadAll(events); !strings.Contains(string(rest), "data: 2") {
			t.Errorf("%q", rest)
		}
		_ = answer.Body.Close()
	}
	const upgrade = "GET %s HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n"
	c := s.raw(443, "http/1.1")
	_, _ = fmt.Fprintf(c, upgrade, "/socket")
	in := bufio.NewReader(c)
	answer, err := http.ReadResponse(in, nil) //nolint:bodyclose // a tunnel has none
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v %v", answer, err)
	}
	_, _ = io.WriteString(c, "frame")
	echo := make([]byte, 5)
	if _, err := io.ReadFull(in, echo); string(echo) != "frame" {
		t.Errorf("%q %v", echo, err)
	}
	c = s.raw(443, "http/1.1")
	_, _ = fmt.Fprintf(c, upgrade+"GET /admin HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n", "/none")
	got, _ := io.ReadAll(c)
	if !strings.Contains(string(got), "served /none") || strings.Contains(string(got), "served /admin") || !strings.Contains(string(got), "403") {
		t.Errorf("after an upgrade that was not: %q", got)
	}
}

// A server that goes over to another protocol without being asked gets nowhere, and its
// connection is closed.
func TestUnaskedProtocols(t *testing.T) {
	for _, says := range []string{"websocket", "other"} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+says+"\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn)
		}))
		t.Cleanup(server.Close)
		s := newSite(t, server.Listener.Addr().String(), rulesFor(server, []string{"GET"}), 443)
		for _, two := range []bool{false, true} {
			c := s.trusting(443, two)
			for range 50 {
				if code, got := ask(t, c, "GET", "https://example.com/", ""); code != 502 || !strings.Contains(got, errUnasked.Error()) {
					t.Fatalf("%s, HTTP/2 %v: %d %s", says, two, code, got)
				}
			}
			c.CloseIdleConnections()
		}
		asked := s.raw(443, "http/1.1")
		_, _ = io.WriteString(asked, "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := bufio.NewReader(asked).ReadString('\n')
		if ok := strings.Contains(line, "101"); ok != (says == "websocket") {
			t.Errorf("who asks for websocket and gets %s: %s", says, line)
		}
		_ = asked.Close()
		left := 0
		for range 1000 {
			s.relay.mu.Lock()
			left = len(s.relay.dialled)
			s.relay.mu.Unlock()
			if left == 0 && s.relay.host.open.Load() == 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if n := s.relay.host.open.Load(); left > 0 || n > 0 {
			t.Errorf("%s: %d connections to the server are open, and %d are counted", says, left, n)
		}
	}
}

// However a program writes the host, the server is told the door's.
func TestServersAreToldTheDoorsHost(t *testing.T) {
	server, _ := secureServer(t, nil)
	s := newSite(t, server.Listener.Addr().String(), rulesFor(server, []string{"GET"}), 443, 8443)
	for _, two := range []bool{false, true} {
		for port, want := range map[int]string{443: " example.com ", 8443: " example.com:8443 "} {
			for _, host := range []string{"Example.COM.", fmt.Sprintf("example.com:%d", port)} {
				r, _ := http.NewRequest(http.MethodGet, "https://example.com/", nil)
				r.Host = host
				answer, err := s.trusting(port, two).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				if !strings.Contains(string(got), want) {
					t.Errorf("%s: %s", host, got)
				}
			}
		}
	}
}

// Where requests are held to rules nothing else passes.
func TestNothingElsePassesRules(t *testing.T) {
	server, hits := echoServer(t)
	s := newSite(t, server, func(_ *Host, n *sandbox.Network) { n.Endpoints[0].Methods = []string{"GET"} }, 443, 5432)
	if got := s.say(5432, "\x00\x01other"); got != "" || hits.Load() != 0 {
		t.Errorf("%q", got)
	}
	if got := s.say(443, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n"); got != "" || hits.Load() != 0 {
		t.Errorf("%q", got)
	}
	if reasons := s.denials(); !slices.Contains(reasons, sandbox.DeniedNotHTTP) || !slices.Contains(reasons, sandbox.DeniedNotTLS) {
		t.Error(reasons)
	}
}

// The end of a relay is the end of requests under way, at both ends.
func TestCloseEndsRequests(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	server, _ := secureServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "x")
		w.(http.Flusher).Flush()
		close(begun)
		<-r.Context().Done()
		close(ended)
	})
	s := newSite(t, server.Listener.Addr().String(), rulesFor(server, []string{"GET"}), 443)
	answer, err := s.trusting(443, true).Get("https://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	s.relay.Close()
	if _, err := io.ReadAll(answer.Body); err == nil {
		t.Error("the program was told that it was all")
	}
	_ = answer.Body.Close()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the server's connection is there yet")
	}
	if n := s.relay.host.open.Load(); n != 0 {
		t.Errorf("%d connections are counted", n)
	}
}
