package egress

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/sandbox"
)

// through is a client of a program inside that speaks through a proxy alone.
func (s *site) through(scheme string, port int) *http.Client {
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: scheme, Host: s.doors[port]})}
	if s.relay.means.Authority != nil {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(s.relay.means.Authority.PEM())
		tr.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// proxies are the two, as clients name them.
var proxies = map[string]int{"http": httpProxy, "socks5": socksProxy}

// What speaks through a proxy reaches what is declared, over HTTP and TLS, and other protocols,
// with the server's own words.
func TestProxiesPass(t *testing.T) {
	for scheme, proxy := range proxies {
		web, _ := webServer(t)
		s := newSite(t, web, nil, 80, 8080)
		for i, body := range []func() io.Reader{
			func() io.Reader { return nil }, func() io.Reader { return strings.NewReader("sized") },
			func() io.Reader { return io.MultiReader(strings.NewReader("chun"), strings.NewReader("ked")) }, func() io.Reader { return nil },
		} {
			for _, host := range []string{"OK.test", "ok.test:8080"} {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("http://%s/x?y=%d", host, i), body())
				req.Header.Set("Proxy-Authorization", "Basic c2VjcmV0")
				r, err := s.through(scheme, proxy).Do(req)
				if err != nil {
					t.Fatalf("%s: %v", scheme, err)
				}
				got, _ := io.ReadAll(r.Body)
				_ = r.Body.Close()
				if want := fmt.Sprintf("%s /x?y=%d %s", host, i, []string{"", "sized", "chunked", ""}[i]); string(got) != want {
					t.Errorf("%s: %q, want %q", scheme, got, want)
				}
			}
		}
		if u := s.relay.Use(); len(u.Endpoints) != 1 || u.Endpoints[0].Connections < 4 || u.Endpoints[0].BytesUp == 0 || len(u.Denied) > 0 {
			t.Errorf("%s: %+v", scheme, u)
		}
		echo, _ := echoServer(t)
		s = newSite(t, echo, nil, 443, 5432)
		for port, text := range map[int]string{443: string(helloOf(t, "ok.test", nil)), 5432: "\x00\x00\x00\x08\x04\xd2\x16\x2f"} {
			c := s.dial(proxy)
			if err := knockAt(c, scheme, "ok.test", port); err != nil {
				t.Errorf("%s: %v", scheme, err)
			}
			_, _ = io.WriteString(c, text)
			_ = c.CloseWrite()
			if got, err := io.ReadAll(c); err != nil || string(got) != text {
				t.Errorf("%s, port %d: %q %v", scheme, port, got, err)
			}
		}
	}
}

// knockAt asks a proxy for a name at a port. The error is why it is not to be had.
func knockAt(c net.Conn, scheme, name string, port int) error {
	if scheme == "http" {
		_, _ = fmt.Fprintf(c, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", name, port, name, port)
		line := make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))
		if _, err := io.ReadFull(c, line); err != nil || !strings.HasPrefix(string(line), "HTTP/1.1 200 ") {
			return fmt.Errorf("%q %w", line, err)
		}
		return nil
	}
	_, _ = io.WriteString(c, socksAsk(1, 3, string(rune(len(name)))+name, port))
	reply := make([]byte, 12)
	if _, err := io.ReadFull(c, reply); err != nil || reply[3] != 0 {
		return fmt.Errorf("%v %w", reply, err)
	}
	return nil
}

// socksAsk is a greeting with a request.
func socksAsk(command, kind byte, address string, port int) string {
	return "\x05\x01\x00" + string([]byte{5, command, 0, kind}) + address + string([]byte{byte(port >> 8), byte(port)})
}

// Requests in TLS through a proxy are held to the rules of their endpoint, as without one.
func TestProxiesHoldRequestsToTheirRules(t *testing.T) {
	for scheme, proxy := range proxies {
		server, hits := secureServer(t, nil)
		s := newSite(t, server.Listener.Addr().String(), rulesFor(server, []string{"GET"}, "/a/*"), 443)
		for path, want := range map[string]int{"/a/b": 200, "/a/b/c": 403, "/a/%2e%2e/x": 403} {
			r, err := s.through(scheme, proxy).Get("https://example.com" + path)
			if err != nil {
				t.Fatalf("%s: %v", scheme, err)
			}
			_ = r.Body.Close()
			if r.StatusCode != want {
				t.Errorf("%s %s: %d", scheme, path, r.StatusCode)
			}
		}
		if hits.Load() != 1 {
			t.Errorf("%s: %d requests arrived", scheme, hits.Load())
		}
		plain, hits := webServer(t)
		s = newSite(t, plain, func(_ *Host, n *sandbox.Network) { n.Endpoints[0].Methods = []string{"GET"} }, 80)
		for method, want := range map[string]int{"GET": 200, "DELETE": 403} {
			req, _ := http.NewRequestWithContext(t.Context(), method, "http://ok.test/x", nil)
			r, err := s.through(scheme, proxy).Do(req)
			if err != nil {
				t.Fatalf("%s: %v", scheme, err)
			}
			_ = r.Body.Close()
			if r.StatusCode != want {
				t.Errorf("%s %s: %d", scheme, method, r.StatusCode)
			}
		}
		if hits.Load() != 1 {
			t.Errorf("%s: %d plain requests arrived", scheme, hits.Load())
		}
	}
}

// refused wants that nothing of what was said arrives, and that it is written down, of whom and
// why.
func (s *site) refused(what string, port int, text, who string, reason sandbox.DenialReason) {
	s.t.Helper()
	got := s.say(port, text)
	var seen []string
	for range 2000 {
		for _, d := range s.relay.Use().Denied {
			if seen = append(seen, fmt.Sprint(d.Host, ":", d.Port, " ", d.Reason)); d.Hint == "" {
				s.t.Errorf("%s: no hint", what)
			}
		}
		if len(seen) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if !slices.Equal(seen, []string{who + " " + string(reason)}) {
		s.t.Errorf("%s: denied %q, answered %q", what, seen, got)
	}
}

// No proxy is asked for something that is not declared, or that can be read in two ways.
func TestWrongRequestsToTheHTTPProxy(t *testing.T) {
	const itself = "127.66.0.1:3128"
	for what, c := range map[string]struct {
		text, who string
		reason    sandbox.DenialReason
	}{
		"another name":                {"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "evil.test:443", sandbox.DeniedUndeclared},
		"another port":                {"CONNECT ok.test:81 HTTP/1.1\r\nHost: ok.test:81\r\n\r\n", "ok.test:81", sandbox.DeniedUndeclared},
		"another name, plain":         {"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "evil.test:80", sandbox.DeniedUndeclared},
		"the proxy itself":            {"CONNECT 127.66.0.1:3128 HTTP/1.1\r\nHost: ok.test\r\n\r\n", itself, sandbox.DeniedMalformed},
		"an address":                  {"CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n", itself, sandbox.DeniedMalformed},
		"an address in one number":    {"CONNECT 0x7f000001:443 HTTP/1.1\r\n\r\n", itself, sandbox.DeniedMalformed},
		"an address of IPv6":          {"CONNECT [::1]:443 HTTP/1.1\r\n\r\n", itself, sandbox.DeniedMalformed},
		"no port":                     {"CONNECT ok.test HTTP/1.1\r\nHost: ok.test\r\n\r\n", itself, sandbox.DeniedMalformed},
		"port 0":                      {"CONNECT ok.test:0 HTTP/1.1\r\n\r\n", itself, sandbox.DeniedMalformed},
		"a port too large":            {"CONNECT ok.test:65979 HTTP/1.1\r\n\r\n", itself, sandbox.DeniedMalformed}, // 443 in 16 bits
		"a port with a sign":          {"CONNECT ok.test:+443 HTTP/1.1\r\n\r\n", itself, sandbox.DeniedMalformed},
		"two ports":                   {"CONNECT ok.test:443:80 HTTP/1.1\r\n\r\n", itself, sandbox.DeniedMalformed},
		"another Host":                {"CONNECT ok.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n", itself, sandbox.DeniedMalformed},
		"another port in Host":        {"CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:80\r\n\r\n", itself, sandbox.DeniedMalformed},
		"two Hosts":                   {"CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test\r\nHost: ok.test\r\n\r\n", itself, sandbox.DeniedMalformed},
		"a body":                      {"CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 5\r\n\r\nhello", itself, sandbox.DeniedMalformed},
		"a chunked body":              {"CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", itself, sandbox.DeniedMalformed},
		"another protocol":            {"CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test\r\nUpgrade: websocket\r\n\r\n", itself, sandbox.DeniedMalformed},
		"HTTP/2's":                    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", itself, sandbox.DeniedMalformed},
		"a user":                      {"CONNECT x@ok.test:443 HTTP/1.1\r\n\r\n", itself, sandbox.DeniedMalformed},
		"a user, plain":               {"GET http://ok.test@evil.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", itself, sandbox.DeniedMalformed},
		"a path in CONNECT":           {"CONNECT ok.test:443/ HTTP/1.1\r\n\r\n", itself, sandbox.DeniedMalformed},
		"a backslash":                 {"GET http://ok.test\\@evil.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", itself, sandbox.DeniedMalformed},
		"a fragment":                  {"GET http://ok.test#@evil.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", itself, sandbox.DeniedMalformed},
		"a name with a percent":       {"GET http://ok%2etest/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", itself, sandbox.DeniedMalformed},
		"a path alone":                {"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", itself, sandbox.DeniedMalformed},
		"TLS without CONNECT":         {"GET https://ok.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", itself, sandbox.DeniedMalformed},
		"another scheme":              {"GET ftp://ok.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", itself, sandbox.DeniedMalformed},
		"a scheme in capitals":        {"GET HTTP://ok.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", itself, sandbox.DeniedMalformed},
		"another version":             {"CONNECT ok.test:443 HTTP/0.9\r\n\r\n", itself, sandbox.DeniedMalformed},
		"two blanks":                  {"CONNECT  ok.test:443 HTTP/1.1\r\n\r\n", itself, sandbox.DeniedMalformed},
		"a tab":                       {"CONNECT\tok.test:443 HTTP/1.1\r\n\r\n", itself, sandbox.DeniedMalformed},
		"lines without CR":            {"CONNECT ok.test:443 HTTP/1.1\nHost: ok.test\n\n", itself, sandbox.DeniedMalformed},
		"a folded line":               {"CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test\r\n x: y\r\n\r\n", itself, sandbox.DeniedMalformed},
		"an empty line first":         {"\r\nCONNECT ok.test:443 HTTP/1.1\r\n\r\n", itself, sandbox.DeniedMalformed},
		"a head without an end":       {"CONNECT ok.test:443 HTTP/1.1\r\nx: " + strings.Repeat("x", maxHead), itself, sandbox.DeniedMalformed},
		"many lines":                  {"CONNECT ok.test:443 HTTP/1.1\r\n" + strings.Repeat("x: y\r\n", maxHeaders+1) + "\r\n", itself, sandbox.DeniedMalformed},
		"plain, another Host":         {"GET http://ok.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "ok.test:80", sandbox.DeniedHost},
		"plain, another port in Host": {"GET http://ok.test/ HTTP/1.1\r\nHost: ok.test:81\r\n\r\n", "ok.test:80", sandbox.DeniedHost},
		"plain, two Hosts":            {"GET http://ok.test/ HTTP/1.1\r\nHost: ok.test\r\nHost: evil.test\r\n\r\n", "ok.test:80", sandbox.DeniedMalformed},
		"plain, two lengths":          {"GET http://ok.test/ HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "ok.test:80", sandbox.DeniedMalformed},
		"plain, a name with a blank":  {"GET http://ok.test/ HTTP/1.1\r\nHost: ok.test\r\nConnection : close\r\n\r\n", "ok.test:80", sandbox.DeniedMalformed},
		"plain, at the port of TLS":   {"GET http://ok.test:443/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "ok.test:443", sandbox.DeniedHost},
		"then another name in TLS":    {"CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\n\r\n" + string(helloOf(t, "evil.test", nil)), "ok.test:443", sandbox.DeniedSNI},
		"then no TLS":                 {"CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\n\r\nGET / HTTP/1.1\r\n\r\n", "ok.test:443", sandbox.DeniedNotTLS},
		"then another Host":           {"CONNECT ok.test:80 HTTP/1.1\r\nHost: ok.test:80\r\n\r\n" + get("evil.test"), "ok.test:80", sandbox.DeniedHost},
		"then another CONNECT":        {"CONNECT ok.test:80 HTTP/1.1\r\nHost: ok.test:80\r\n\r\nCONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n", "ok.test:80", sandbox.DeniedMalformed},
	} {
		echo, hits := echoServer(t)
		s := newSite(t, echo, nil, 80, 443)
		if s.refused(what, httpProxy, c.text, c.who, c.reason); hits.Load() != 0 {
			t.Errorf("%s: arrived", what)
		}
	}
}

// Nor is the other one.
func TestWrongRequestsToTheSOCKSProxy(t *testing.T) {
	const itself = "127.66.0.1:1080"
	named := func(name string) string { return string([]byte{byte(len(name))}) + name }
	for what, c := range map[string]struct {
		text, who string
		reason    sandbox.DenialReason
	}{
		"another name":            {socksAsk(1, 3, named("evil.test"), 443), "evil.test:443", sandbox.DeniedUndeclared},
		"another port":            {socksAsk(1, 3, named("ok.test"), 81), "ok.test:81", sandbox.DeniedUndeclared},
		"port 0":                  {socksAsk(1, 3, named("ok.test"), 0), itself, sandbox.DeniedMalformed},
		"an address":              {socksAsk(1, 1, "\x7f\x00\x00\x01", 443), itself, sandbox.DeniedMalformed},
		"an address of IPv6":      {socksAsk(1, 4, strings.Repeat("\x00", 15)+"\x01", 443), itself, sandbox.DeniedMalformed},
		"an address as a name":    {socksAsk(1, 3, named("127.0.0.1"), 443), itself, sandbox.DeniedMalformed},
		"a name with NUL":         {socksAsk(1, 3, named("ok.test\x00.evil.test"), 443), itself, sandbox.DeniedMalformed},
		"no name":                 {socksAsk(1, 3, named(""), 443), itself, sandbox.DeniedMalformed},
		"a long name":             {socksAsk(1, 3, named(strings.Repeat("a", 255)), 443), itself, sandbox.DeniedMalformed},
		"another kind":            {socksAsk(1, 9, named("ok.test"), 443), itself, sandbox.DeniedMalformed},
		"BIND":                    {socksAsk(2, 3, named("ok.test"), 443), itself, sandbox.DeniedMalformed},
		"UDP":                     {socksAsk(3, 3, named("ok.test"), 443), itself, sandbox.DeniedMalformed},
		"version 4":               {"\x04\x01\x01\xbb\x00\x00\x00\x01\x00ok.test\x00", itself, sandbox.DeniedMalformed},
		"HTTP":                    {"CONNECT ok.test:443 HTTP/1.1\r\n\r\n" + strings.Repeat("x", 255), itself, sandbox.DeniedMalformed},
		"another version behind":  {"\x05\x01\x00\x04\x01\x00\x03" + named("ok.test") + "\x01\xbb", itself, sandbox.DeniedMalformed},
		"something reserved":      {"\x05\x01\x00\x05\x01\x01\x03" + named("ok.test") + "\x01\xbb", itself, sandbox.DeniedMalformed},
		"a password alone":        {"\x05\x01\x02\x05\x01\x00\x03" + named("ok.test") + "\x01\xbb", itself, sandbox.DeniedMalformed},
		"no method":               {"\x05\x00\x05\x01\x00\x03" + named("ok.test") + "\x01\xbb", itself, sandbox.DeniedMalformed},
		"then another name":       {socksAsk(1, 3, named("ok.test"), 443) + string(helloOf(t, "evil.test", nil)), "ok.test:443", sandbox.DeniedSNI},
		"then another Host":       {socksAsk(1, 3, named("ok.test"), 80) + get("evil.test"), "ok.test:80", sandbox.DeniedHost},
		"then another request":    {socksAsk(1, 3, named("ok.test"), 443) + socksAsk(1, 3, named("ok.test"), 80), "ok.test:443", sandbox.DeniedNotTLS},
		"the name of the address": {socksAsk(1, 3, named("localhost"), 443), itself, sandbox.DeniedMalformed},
	} {
		echo, hits := echoServer(t)
		s := newSite(t, echo, nil, 80, 443)
		if s.refused(what, socksProxy, c.text, c.who, c.reason); hits.Load() != 0 {
			t.Errorf("%s: arrived", what)
		}
	}
}

// A request that is passed on by its target is the only one of its connection, and what was for
// the proxy does not leave.
func TestOneRequestInAbsoluteForm(t *testing.T) {
	const asked = "GET http://ok.test?q HTTP/1.1\r\nHost: ok.test\r\nProxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\nConnection: keep-alive\r\nX: y\r\n\r\n"
	for name, behind := range map[string]string{"nothing": "", "another one": "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"} {
		echo, _ := echoServer(t)
		s := newSite(t, echo, nil, 80)
		if got, want := s.say(httpProxy, asked+behind), "GET /?q HTTP/1.1\r\nConnection: close\r\nHost: ok.test\r\nX: y\r\n\r\n"; got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	echo, _ := echoServer(t)
	s := newSite(t, echo, nil, 80)
	_ = s.say(httpProxy, asked+strings.Repeat("x", maxHead))
	if reasons := s.denials(); !slices.Equal(reasons, []sandbox.DenialReason{sandbox.DeniedMalformed}) {
		t.Errorf("what goes on and on: %v", reasons)
	}
}

// A name below a wildcard that a proxy is asked for is the connection's: it passes whatever it
// speaks, and says no other.
func TestProxiesSayWhichNameOfAWildcard(t *testing.T) {
	for scheme, proxy := range proxies {
		for text, passes := range map[string]bool{
			"SSH-2.0-x\r\n": true, string(helloOf(t, "a.ok.test", nil)): true, string(helloOf(t, "b.ok.test", nil)): false, get("a.ok.test:22"): true, get("b.ok.test:22"): false,
		} {
			echo, hits := echoServer(t)
			s, _ := wild(t, echo, nil, 22)
			s.at(echo)
			c := s.dial(proxy)
			if err := knockAt(c, scheme, "a.ok.test", 22); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, text)
			_ = c.CloseWrite()
			got, _ := io.ReadAll(c)
			if passes != (string(got) == text) {
				t.Errorf("%s: %q gives %q; %d arrived", scheme, text, got, hits.Load())
			}
			if err := knockAt(s.dial(proxy), scheme, "ok.test", 22); err == nil {
				t.Errorf("%s: the name above is there", scheme)
			}
		}
		echo, _ := echoServer(t)
		s, _ := wild(t, echo, nil, 22)
		for i := range sandbox.MaxNames + 1 {
			if err := knockAt(s.dial(proxy), scheme, fmt.Sprintf("n%d.ok.test", i), 22); (err == nil) != (i < sandbox.MaxNames) {
				t.Errorf("%s: name %d: %v", scheme, i, err)
			}
		}
	}
}

// What is narrowed is narrowed there, too, at once.
func TestProxiesAreNarrowed(t *testing.T) {
	for scheme, proxy := range proxies {
		echo, _ := echoServer(t)
		s := newSite(t, echo, nil, 22, 23)
		c, stays := s.dial(proxy), s.dial(proxy)
		for port, c := range map[int]net.Conn{22: c, 23: stays} {
			if err := knockAt(c, scheme, "ok.test", port); err != nil || !echoes(c) {
				t.Fatal(scheme, err)
			}
		}
		begun := s.dial(proxy) // and has not said what it wants
		time.Sleep(10 * time.Millisecond)
		s.declare(declares(t, "ok.test:23=127.0.0.1"))
		if !isCut(c) || !echoes(stays) {
			t.Errorf("%s: what is open was not cut, or too much", scheme)
		}
		if err := knockAt(begun, scheme, "ok.test", 22); err == nil {
			t.Errorf("%s: it can be had again", scheme)
		}
		if err := knockAt(s.dial(proxy), scheme, "ok.test", 23); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
		if reasons := s.denials(); !slices.Contains(reasons, sandbox.DeniedNarrowed) {
			t.Errorf("%s: %v", scheme, reasons)
		}
		s.declare(sandbox.Network{})
		if err := knockAt(s.dial(proxy), scheme, "ok.test", 23); err == nil {
			t.Errorf("%s: with nothing declared", scheme)
		}
	}
}

// Who is slow to say what it wants is not waited for, however it goes on.
func TestSlowRequestsToProxies(t *testing.T) {
	for scheme, proxy := range proxies {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			echo, _ := echoServer(t)
			s := newSite(t, echo, nil, 80)
			c := s.dial(proxy)
			go func() {
				text := "CONNECT ok.test:80 HTTP/1.1\r\n" + strings.Repeat("x: y\r\n", 100)
				if scheme != "http" {
					text = "\x05\xff" + strings.Repeat("\x01", 255)
				}
				for i := range text {
					if _, err := io.WriteString(c, text[i:i+1]); err != nil {
						return
					}
					time.Sleep(200 * time.Millisecond)
				}
			}()
			begun := time.Now()
			_ = c.SetReadDeadline(begun.Add(decideTimeout + 5*time.Second))
			if _, err := io.ReadAll(bufio.NewReader(c)); os.IsTimeout(err) {
				t.Errorf("it goes on after %s", time.Since(begun))
			}
		})
	}
}
