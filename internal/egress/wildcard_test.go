package egress

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"pinfold/sandbox"
)

// asked is a resolver that writes down what it is asked, and knows nothing.
type asked struct {
	mu    sync.Mutex
	names []string
}

func (a *asked) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names = append(a.names, host)
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil // which is never dialled
}

// wild has the site's endpoint be a wildcard; its names are looked up with what is returned.
func wild(t *testing.T, server string, change func(*sandbox.Network), ports ...int) (*site, *asked) {
	t.Helper()
	r := &asked{}
	return newSite(t, server, func(h *Host, n *sandbox.Network) {
		n.Endpoints[0].Host, n.Endpoints[0].Address = "*.ok.test", ""
		h.resolver = r
		if change != nil {
			change(n)
		}
	}, ports...), r
}

// at has the wildcard's names be at the test's server, as an operator cannot.
func (s *site) at(server string) {
	s.relay.ledger.endpoints[0].Address = netip.MustParseAddrPort(server).Addr().String()
}

func get(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }

// What says a name below the wildcard passes, as it is, at any port; the host looks up that
// name and no other, and not before.
func TestWildcardPasses(t *testing.T) {
	for port, text := range map[int]string{443: string(helloOf(t, "A.b.ok.test", nil)), 8443: string(helloOf(t, "a.b.ok.test", nil)), 80: get("a.b.OK.test"), 8080: get("a.b.ok.test:8080")} {
		echo, hits := echoServer(t)
		s, resolver := wild(t, echo, nil, port)
		_ = s.say(port, text)
		if reasons := s.denials(); !slices.Equal(resolver.names, []string{"a.b.ok.test."}) || !slices.Equal(reasons, []sandbox.DenialReason{sandbox.DeniedAddress}) || hits.Load() != 0 {
			t.Errorf("port %d: asked for %q, %v", port, resolver.names, reasons)
		}
		s, _ = wild(t, echo, nil, port)
		s.at(echo)
		if got := s.say(port, text); got != text || hits.Load() != 1 {
			t.Errorf("port %d: %q, %d connections arrived; %v", port, got, hits.Load(), s.denials())
		}
		if u := s.relay.Use(); u.Endpoints[0].Host != "*.ok.test" || u.Endpoints[0].BytesUp != int64(len(text)) {
			t.Errorf("%+v", u)
		}
	}
}

// What says no name, or another one, does not, and nobody is asked for it.
func TestWildcardIsHeldToItsNames(t *testing.T) {
	for what, c := range map[string]struct {
		port   int
		text   string
		reason sandbox.DenialReason
	}{
		"the name above":        {443, string(helloOf(t, "ok.test", nil)), sandbox.DeniedSNI},
		"a name that ends so":   {443, string(helloOf(t, "evilok.test", nil)), sandbox.DeniedSNI},
		"another name":          {8443, string(helloOf(t, "evil.test", nil)), sandbox.DeniedSNI},
		"no name in TLS":        {443, string(helloOf(t, "", nil)), sandbox.DeniedNoSNI},
		"one that has its own":  {443, string(helloOf(t, "own.ok.test", nil)), sandbox.DeniedSNI},
		"one of the longer":     {443, string(helloOf(t, "x.deep.ok.test", nil)), sandbox.DeniedSNI},
		"another Host":          {80, get("evil.test"), sandbox.DeniedHost},
		"the pattern itself":    {80, get("*.ok.test"), sandbox.DeniedHost},
		"a name with a NUL":     {80, get("evil.test\x01.ok.test"), sandbox.DeniedMalformed},
		"a name with a user":    {80, get("x@evil.test/.ok.test"), sandbox.DeniedHost},
		"a Host with a port":    {80, get("a.ok.test:81"), sandbox.DeniedHost},
		"SSH":                   {22, "SSH-2.0-x\r\n", sandbox.DeniedNoName},
		"another protocol":      {5432, "\x00\x00\x00\x08\x04\xd2\x16\x2f", sandbox.DeniedNoName},
		"another at 443":        {443, "SSH-2.0-x\r\n", sandbox.DeniedNotTLS},
		"a second name, in one": {80, get("a.ok.test") + get("b.ok.test"), sandbox.DeniedHost},
	} {
		echo, hits := echoServer(t)
		s, resolver := wild(t, echo, func(n *sandbox.Network) {
			n.Endpoints = append(n.Endpoints, sandbox.Endpoint{Host: "own.ok.test"}, sandbox.Endpoint{Host: "*.deep.ok.test"})
		}, c.port)
		arrive := int64(0)
		if strings.HasPrefix(what, "a second") {
			s.at(echo)
			arrive = 1
		}
		got := s.say(c.port, c.text)
		if reasons := s.denials(); !slices.Equal(reasons, []sandbox.DenialReason{c.reason}) || len(resolver.names) > 0 || hits.Load() != arrive || strings.Contains(got, "b.ok.test\r\n\r\n") {
			t.Errorf("%s: %v, asked for %q, %d connections arrived", what, reasons, resolver.names, hits.Load())
		}
		for _, d := range s.relay.Use().Denied {
			if d.Hint == "" {
				t.Errorf("%s: no hint", what)
			}
		}
	}
}

// A wildcard is no channel without end: it stands for so many names.
func TestNamesOfAWildcardAreBounded(t *testing.T) {
	echo, hits := echoServer(t)
	s, _ := wild(t, echo, nil, 443)
	s.at(echo)
	for range 2 { // the same ones again are no others
		for i := range sandbox.MaxNames {
			_ = s.say(443, string(helloOf(t, fmt.Sprintf("n%d.ok.test", i), nil)))
		}
	}
	if d := s.relay.Use().Denied; len(d) > 0 || hits.Load() != 2*sandbox.MaxNames {
		t.Fatalf("%d connections arrived, %+v", hits.Load(), d)
	}
	_ = s.say(443, string(helloOf(t, "more.ok.test", nil)))
	d := s.relay.Use().Denied
	if len(d) != 1 || d[0].Reason != sandbox.DeniedNames || d[0].Host != "*.ok.test" || d[0].Hint == "" || hits.Load() != 2*sandbox.MaxNames {
		t.Errorf("%d connections arrived, %+v", hits.Load(), d)
	}
}

// Requests to names of a wildcard are held to its rules, with a certificate for each name.
func TestRulesOfAWildcard(t *testing.T) {
	server, hits := secureServer(t, nil)
	s := newSite(t, server.Listener.Addr().String(), func(h *Host, n *sandbox.Network) {
		rulesFor(server, []string{"GET"}, "/a/**")(h, n)
		n.Endpoints[0].Host, n.Endpoints[0].Address = "*.example.com", "" // the server's certificate is for these
	}, 443)
	s.at(server.Listener.Addr().String())
	for _, two := range []bool{false, true} {
		for _, name := range []string{"x.example.com", "y.example.com"} {
			c := s.trusting(443, two)
			c.Transport.(*http.Transport).TLSClientConfig.ServerName = name
			if code, got := ask(t, c, "GET", "https://"+name+"/a/b", ""); code != 200 || !strings.HasSuffix(got, " GET "+name+" /a/b ") {
				t.Errorf("%d %s", code, got)
			}
			before := hits.Load()
			if code, got := ask(t, c, "GET", "https://"+name+"/b", ""); code != 403 || hits.Load() != before {
				t.Errorf("%d %s", code, got)
			}
			if code, got := ask(t, c, "GET", "https://z.example.com/a/b", ""); code != 403 || hits.Load() != before {
				t.Errorf("another name on the connection: %d %s", code, got)
			}
		}
	}
	u := s.relay.Use()
	if u.Endpoints[0].Requests != 4 {
		t.Errorf("%+v", u)
	}
	if d := u.Denied[0]; d.Host != "x.example.com" || d.Evidence != "GET /b" || !strings.Contains(d.Hint, `"host": "*.example.com", "ports": [443], "methods": ["GET"], "paths": ["/a/**", "/b"]`) {
		t.Errorf("%+v", d) // one for the name alone would take it out of the wildcard
	}
}

// The resolver inside has every name below a wildcard at its door, and asks nobody.
func TestNamesBelowAWildcard(t *testing.T) {
	declared := []sandbox.Endpoint{{Host: "*.ok.test"}, {Host: "own.ok.test"}, {Host: "*.deep.ok.test"}}
	for name, want := range map[string]string{
		"a.ok.test.": "*.ok.test", "a.b.ok.test.": "*.ok.test", "own.ok.test.": "own.ok.test", "a.own.ok.test.": "*.ok.test",
		"x.deep.ok.test.": "*.deep.ok.test", "deep.ok.test.": "*.ok.test", "ok.test.": "", "evilok.test.": "", "evil.test.": "", ".": "",
	} {
		q, err := parseQuery(packet(t, name, dnsmessage.TypeA))
		if got := standsFor(q.name, declared); err != nil || got != want {
			t.Errorf("%s is %q: %v", name, got, err)
		}
	}
}

func TestWildcardsHaveOneOwner(t *testing.T) {
	for host, one := range map[string]bool{
		"*.example.com": true, "*.a.example.co.uk": true, "*.corp.internal": true, "*.me.github.io": true, "github.io": true,
		"*.co.uk": false, "*.github.io": false, "*.s3.amazonaws.com": false, "*.com": false, "*.internal": false, "*.xn--p1ai": false,
	} {
		err := OneOwner(sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test"}, {Host: host}}})
		if (err == nil) != one || err != nil && (sandbox.AsError(err).Field != "network.endpoints[1].host" || sandbox.AsError(err).Hint == "") {
			t.Errorf("%s: %v", host, err)
		}
	}
}
