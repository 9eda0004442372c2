package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// answers is a resolver that says what a test wants.
type answers map[string][]netip.Addr

func (a answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	found, ok := a[strings.TrimSuffix(host, ".")]
	if !ok || !strings.HasSuffix(host, ".") {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return found, nil
}

// site is a relay with its doors, whose endpoints are servers of the test.
type site struct {
	t     *testing.T
	relay *Relay
	doors map[int]string // addresses by port
}

// Where a site has its proxies.
const httpProxy, socksProxy = 3128, 1080

// newSite opens doors at those ports of ok.test, which lead to a server's address.
func newSite(t *testing.T, server string, change func(*Host, *sandbox.Network), ports ...int) *site {
	t.Helper()
	return newSiteWith(t, server, nil, change, ports...)
}

// newSiteWith is newSite of who has secrets.
func newSiteWith(t *testing.T, server string, find secret.Finder, change func(*Host, *sandbox.Network), ports ...int) *site {
	to := netip.MustParseAddrPort(server)
	h := NewHost(100)
	h.port = func(int) int { return int(to.Port()) }
	h.resolver = answers{}
	n := sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "ok.test", Ports: ports, Address: to.Addr().String()}}}
	if change != nil {
		change(h, &n)
	}
	n, err := n.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, doors: map[int]string{}}
	var doors []Door
	for _, p := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.doors[p] = l.Addr().String()
		doors = append(doors, Door{Listener: l, Host: n.Endpoints[0].Host, Port: p})
	}
	for port, p := range map[int]Proxy{httpProxy: ProxyHTTP, socksProxy: ProxySOCKS} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.doors[port] = l.Addr().String()
		doors = append(doors, Door{Listener: l, Host: "127.66.0.1", Port: port, Proxy: p})
	}
	means, err := NewMeans(t.Context(), n, "team", find)
	if err != nil {
		t.Fatal(err)
	}
	if s.relay, err = Open(h, n, means, doors, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.relay.Close)
	return s
}

func (s *site) dial(port int) *net.TCPConn {
	c, err := net.Dial("tcp", s.doors[port])
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

// say sends bytes and the end, and returns what comes back until the end.
func (s *site) say(port int, text string) string {
	c := s.dial(port)
	_, _ = io.WriteString(c, text)
	_ = c.CloseWrite()
	got, _ := io.ReadAll(c)
	return string(got)
}

// denials are the reasons that were written down, when there are some.
func (s *site) denials() (reasons []sandbox.DenialReason) {
	for range 1000 {
		for _, d := range s.relay.Use().Denied {
			reasons = append(reasons, d.Reason)
			if d.Host != "ok.test" && !strings.HasSuffix(d.Host, ".ok.test") && d.Host != "example.com" || d.Hint == "" {
				s.t.Errorf("%+v", d)
			}
		}
		if len(reasons) > 0 {
			return reasons
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// echoServer answers everything with itself, and counts connections.
func echoServer(t *testing.T) (address string, hits *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	hits = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			hits.Add(1)
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String(), hits
}

// webServer says which host each request was for, and its body.
func webServer(t *testing.T) (address string, hits *atomic.Int64) {
	hits = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Host, r.URL, body)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), hits
}

func TestHTTPPasses(t *testing.T) {
	web, _ := webServer(t)
	s := newSite(t, web, nil, 80, 8080)
	for _, port := range []int{80, 8080} {
		client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return s.dial(port), nil }}}
		for i, body := range []io.Reader{nil, strings.NewReader("sized"), io.MultiReader(strings.NewReader("chun"), strings.NewReader("ked"))} {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("http://OK.test:%d/x?y", port), body)
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(port, i, err)
			}
			got, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if want := "/x?y " + []string{"", "sized", "chunked"}[i]; !strings.HasSuffix(string(got), want) {
				t.Errorf("%d: %q", port, got)
			}
		}
		client.CloseIdleConnections()
	}
	u := s.relay.Use().Endpoints[0]
	if u.Connections != 2 || u.BytesUp == 0 || u.BytesDown == 0 || u.Errors != 0 {
		t.Errorf("%+v: six requests are on two connections", u)
	}
}

func TestHTTPIsHeldToItsHost(t *testing.T) {
	for _, c := range []struct {
		what, text string
		reason     sandbox.DenialReason
		hits       int64
	}{
		{"another host", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", sandbox.DeniedHost, 0},
		{"a name that ends so", "GET / HTTP/1.1\r\nHost: evilok.test\r\n\r\n", sandbox.DeniedHost, 0},
		{"another port", "GET / HTTP/1.1\r\nHost: ok.test:99\r\n\r\n", sandbox.DeniedHost, 0},
		{"the absolute form", "GET http://evil.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", sandbox.DeniedMalformed, 0},
		{"CONNECT", "CONNECT evil.test:443 HTTP/1.1\r\nHost: ok.test\r\n\r\n", sandbox.DeniedMalformed, 0},
		{"two hosts", "GET / HTTP/1.1\r\nHost: ok.test\r\nHost: evil.test\r\n\r\n", sandbox.DeniedMalformed, 0},
		{"HTTP/2 in the clear", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", sandbox.DeniedMalformed, 0},
		{"an empty line before", "\r\nGET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", sandbox.DeniedMalformed, 0},
		{"two lengths", "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", sandbox.DeniedMalformed, 0},
		{"no HTTP", "EHLO there\r\n\r\n", sandbox.DeniedNotHTTP, 0},
		{"TLS", string(helloOf(t, "ok.test", nil)), sandbox.DeniedNotHTTP, 0},
		{"another host behind a good one", "GET /1 HTTP/1.1\r\nHost: ok.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\n", sandbox.DeniedHost, 1},
		{"another host behind a body", "POST /1 HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\n", sandbox.DeniedHost, 1},
		{"another host behind chunks", "POST /1 HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\n", sandbox.DeniedHost, 1},
		{"a size with an extension", "POST /1 HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n", sandbox.DeniedMalformed, 1},
		{"trailers", "POST /1 HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n", sandbox.DeniedMalformed, 1},
	} {
		web, hits := webServer(t)
		s := newSite(t, web, nil, 80)
		got := s.say(80, c.text)
		if reasons := s.denials(); !slices.Equal(reasons, []sandbox.DenialReason{c.reason}) || hits.Load() > c.hits || strings.Contains(got, "evil.test ") {
			t.Errorf("%s: %v, %d requests arrived: %q", c.what, reasons, hits.Load(), got)
		}
		if c.hits == 0 && !strings.HasPrefix(got, "HTTP/1.1 403 Forbidden\r\n") {
			t.Errorf("%s: the program is told %q", c.what, got)
		}
	}
}

// An offer of HTTP/2 in the clear, as Java's client makes it, is taken out.
func TestOffersOfHTTP2AreTakenOut(t *testing.T) {
	echo, _ := echoServer(t)
	const offer = "POST / HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAA\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi"
	const without = "POST / HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 2\r\n\r\nhi"
	s := newSite(t, echo, nil, 80)
	if got := s.say(80, offer+strings.Replace(offer, "ok.test", "evil.test", 1)); !strings.HasPrefix(without, got) || s.denials()[0] != sandbox.DeniedHost {
		t.Errorf("%q", got) // what was passed on may have been cut off with the rest
	}
	if got := newSite(t, echo, nil, 80).say(80, offer); got != without {
		t.Errorf("%q", got)
	}
}

// With an operator's address another protocol may follow; with a public name what follows
// could be a request for another host.
func TestUpgrades(t *testing.T) {
	echo, hits := echoServer(t)
	const text = "GET / HTTP/1.1\r\nHost: ok.test\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n\x81\x85anything"
	if got := newSite(t, echo, nil, 80).say(80, text); got != text {
		t.Errorf("%q", got)
	}
	s := newSite(t, echo, func(_ *Host, n *sandbox.Network) { n.Endpoints[0].Address = "" }, 80)
	before := hits.Load()
	if got := s.say(80, text); !strings.HasPrefix(got, "HTTP/1.1 403") || hits.Load() != before || s.denials()[0] != sandbox.DeniedMalformed {
		t.Errorf("%q", got)
	}
}

func TestTLSPassesUntouched(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto+r.TLS.ServerName) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	s := newSite(t, server.Listener.Addr().String(), nil, 443, 8443)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for _, port := range []int{443, 8443} {
		transport := &http.Transport{
			DialContext:       func(context.Context, string, string) (net.Conn, error) { return s.dial(port), nil },
			ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "ok.test", InsecureSkipVerify: true},
		}
		answer, err := (&http.Client{Transport: transport}).Get("https://ok.test/")
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		transport.CloseIdleConnections()
		if string(got) != "HTTP/2.0ok.test" || !answer.TLS.PeerCertificates[0].Equal(server.Certificate()) {
			t.Errorf("%s: the certificate is another one than the server's", got)
		}
	}
}

func TestTLSIsHeldToItsName(t *testing.T) {
	for _, c := range []struct {
		what   string
		text   []byte
		public bool
		reason sandbox.DenialReason
	}{
		{"another name", helloOf(t, "evil.test", nil), false, sandbox.DeniedSNI},
		{"a name that ends so", helloOf(t, "evilok.test", nil), false, sandbox.DeniedSNI},
		{"no name", helloOf(t, "", nil), true, sandbox.DeniedNoSNI},
		{"no TLS", []byte("GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n"), false, sandbox.DeniedNotTLS},
		{"SSH", []byte("SSH-2.0-x\r\n"), false, sandbox.DeniedNotTLS},
		{"a broken hello", append([]byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 0}, make([]byte, 10)...), false, sandbox.DeniedMalformed},
	} {
		echo, hits := echoServer(t)
		s := newSite(t, echo, func(_ *Host, n *sandbox.Network) {
			if c.public {
				n.Endpoints[0].Address = ""
			}
		}, 443)
		got := s.say(443, string(c.text))
		if reasons := s.denials(); !slices.Equal(reasons, []sandbox.DenialReason{c.reason}) || hits.Load() != 0 {
			t.Errorf("%s: %v, %d connections arrived", c.what, reasons, hits.Load())
		}
		if c.reason == sandbox.DeniedSNI && got != string(alert(alertUnrecognizedName)) {
			t.Errorf("%s: the program is told %q", c.what, got)
		}
	}
	echo, _ := echoServer(t)
	hello := string(helloOf(t, "", nil))
	if got := newSite(t, echo, nil, 443).say(443, hello); got != hello {
		t.Errorf("at the operator's address no name is needed: %q", got)
	}
	if got := newSite(t, echo, nil, 8443).say(8443, string(helloOf(t, "evil.test", nil))); got != "" {
		t.Errorf("at another port another name passes: %q", got)
	}
}

func TestOtherProtocolsPass(t *testing.T) {
	echo, _ := echoServer(t)
	s := newSite(t, echo, nil, 5432)
	for _, text := range []string{"\x00\x00\x00\x08\x04\xd2\x16\x2f", "SSH-2.0-x\r\n", "PING\r\n", "no line", "", "{" + strings.Repeat("x", 1<<20)} {
		if got := s.say(5432, text); got != text {
			t.Errorf("%.20q comes back as %.20q", text, got)
		}
	}
	if got := s.say(5432, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"); got != "" || s.denials()[0] != sandbox.DeniedHost {
		t.Errorf("%q", got)
	}
	for _, line := range []string{strings.Repeat("X", 100) + " / HTTP/1.1", "GET\xa0/\xa0HTTP/1.1"} { // Go's servers take the one, Python's the other
		if got := s.say(5432, line+"\r\nHost: evil.test\r\n\r\n"); got != "" {
			t.Errorf("%.20q passes: %q", line, got)
		}
	}
}

// A server may speak first.
func TestServerSpeaksFirst(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "220 hello\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "250 "+line)
		_ = c.Close()
	}()
	c := newSite(t, l.Addr().String(), nil, 25).dial(25)
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); line != "220 hello\r\n" {
		t.Fatal(line, err)
	}
	_, _ = io.WriteString(c, "EHLO x\r\n")
	if rest, err := io.ReadAll(r); string(rest) != "250 EHLO x\r\n" || err != nil {
		t.Errorf("%q %v", rest, err)
	}
}

// A name that leads to this machine, or to anywhere that is not public, leads nowhere,
// in whichever mixture and however its answers change (NE-02, NE-03, NE-05).
func TestNamesOfForbiddenAddresses(t *testing.T) {
	echo, hits := echoServer(t)
	loop, mapped := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::ffff:127.0.0.1")
	for what, found := range map[string][]netip.Addr{
		"loopback": {loop}, "mapped": {mapped}, "v6": {netip.MustParseAddr("::1")}, "both": {netip.MustParseAddr("::1"), loop},
		"metadata": {netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254")}, "unspecified": {netip.MustParseAddr("0.0.0.0")},
	} {
		s := newSite(t, echo, func(h *Host, n *sandbox.Network) {
			n.Endpoints[0].Address, h.resolver = "", answers{"ok.test": found}
		}, 80)
		got := s.say(80, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n")
		if hits.Load() != 0 || !slices.Equal(s.denials(), []sandbox.DenialReason{sandbox.DeniedAddress}) || !strings.HasPrefix(got, "HTTP/1.1 502") {
			t.Errorf("%s: %d hits, %q", what, hits.Load(), got)
		}
	}
	if got := newSite(t, echo, nil, 5432).say(5432, "positive control"); got != "positive control" || hits.Load() != 1 {
		t.Errorf("with the operator's word: %q", got)
	}
}

func TestServersThatAreNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	s := newSite(t, l.Addr().String(), nil, 80)
	if got := s.say(80, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n"); !strings.Contains(got, errRefused.Error()) {
		t.Errorf("%q", got)
	}
	if u := s.relay.Use().Endpoints[0]; u.Errors != 1 || u.LastError != errRefused.Error() || len(s.relay.Use().Denied) != 0 {
		t.Errorf("%+v", u)
	}
	s = newSite(t, l.Addr().String(), func(_ *Host, n *sandbox.Network) { n.Endpoints[0].Address = "" }, 80)
	if got := s.say(80, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n"); !strings.Contains(got, errNoName.Error()) {
		t.Errorf("%q", got)
	}
}
