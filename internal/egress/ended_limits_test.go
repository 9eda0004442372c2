package egress

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"pinfold/sandbox"
)

// Answers in HTTP/2 that a program does not read are not in the host's memory: each stops
// its server.
func TestAnswersThatNobodyReads(t *testing.T) {
	const streams = 10
	var sent atomic.Int64
	server, hits := secureServer(t, func(w http.ResponseWriter, r *http.Request) {
		for block := make([]byte, 16<<10); r.Context().Err() == nil; {
			n, err := w.Write(block)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	s := newSite(t, server.Listener.Addr().String(), rulesFor(server, []string{"GET"}), 443)
	c := s.raw(443, "h2")
	_, _ = io.WriteString(c, http2.ClientPreface)
	frames := http2.NewFramer(c, nil)
	_ = frames.WriteSettings()
	var head bytes.Buffer
	coder := hpack.NewEncoder(&head)
	for i := range uint32(streams) {
		head.Reset()
		for name, value := range map[string]string{":method": "GET", ":scheme": "https", ":authority": "example.com", ":path": "/"} {
			_ = coder.WriteField(hpack.HeaderField{Name: name, Value: value})
		}
		if err := frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
	}
	last := int64(-1)
	for range 200 { // until nothing moves any more
		time.Sleep(50 * time.Millisecond)
		now := sent.Load()
		if hits.Load() == streams && now == last {
			break
		}
		last = now
	}
	if hits.Load() != streams || last < streams*maxStreamBuffer/2 || last > 3*streams*maxStreamBuffer {
		t.Errorf("%d requests, of whose answers the server could send %d bytes to who reads nothing", hits.Load(), last)
	}
}

// waiting is a server in HTTP/1 and, if so, HTTP/2 that answers when it is let go, and
// /now at once.
func waiting(t *testing.T, two bool) (server *httptest.Server, hits *atomic.Int64, goOn func()) {
	hits = new(atomic.Int64)
	held := make(chan struct{})
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/now" {
			hits.Add(1)
			<-held
		}
	}))
	server.EnableHTTP2 = two
	server.Config.ErrorLog = quiet
	server.StartTLS()
	goOn = sync.OnceFunc(func() { close(held) })
	t.Cleanup(server.Close)
	t.Cleanup(goOn)
	return server, hits, goOn
}

// until waits for a condition, for long.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 4000 {
		if holds() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("not in time: " + what)
}

// Requests at once are bounded, of a sandbox and of all together; the program learns it.
func TestRequestsAtOnceAreBounded(t *testing.T) {
	server, hits, goOn := waiting(t, true)
	s := newSite(t, server.Listener.Addr().String(), rulesFor(server, []string{"GET"}), 443)
	var c *http.Client
	var going sync.WaitGroup
	for range 4 { // connections, for a quarter each
		each := s.trusting(443, true)
		c = each
		if code, got := ask(t, c, "GET", "https://example.com/now", ""); code != 200 {
			t.Fatalf("%d %s", code, got)
		}
		for range maxRequests / 4 {
			going.Go(func() {
				if code, got := ask(t, each, "GET", "https://example.com/", ""); code != 200 {
					t.Errorf("%d %s", code, got)
				}
			})
		}
	}
	until(t, "all are under way", func() bool { return hits.Load() == maxRequests })
	if code, got := ask(t, c, "GET", "https://example.com/", ""); code != 503 || !strings.Contains(got, string(sandbox.DeniedBusy)) {
		t.Errorf("one more: %d %s", code, got)
	}
	goOn()
	going.Wait()
	s.relay.host.asked.Store(mostRequests)
	if code, got := ask(t, c, "GET", "https://example.com/", ""); code != 503 {
		t.Errorf("one more of all sandboxes: %d %s", code, got)
	}
	s.relay.host.asked.Store(0)
	if code, got := ask(t, c, "GET", "https://example.com/", ""); code != 200 {
		t.Errorf("afterwards: %d %s", code, got)
	}
	if u := s.relay.Use(); len(u.Denied) != 1 || u.Denied[0].Reason != sandbox.DeniedBusy || u.Denied[0].Count != 2 {
		t.Errorf("%+v", u.Denied)
	}
	until(t, "none is counted any more", func() bool { return s.relay.asked.Load() == 0 && s.relay.host.asked.Load() == 0 })
}

// Only so many requests pass in a sandbox's life, however they come; those that are denied
// do not count, and the program and the result learn why.
func TestRequestsOfALifeAreBounded(t *testing.T) {
	const asked = 20
	for limit, passed := range map[int64]int64{7: 7, 0: asked} { // 0: far more than these
		for _, two := range []bool{false, true} {
			server, hits := secureServer(t, nil)
			s := newSite(t, server.Listener.Addr().String(), func(h *Host, n *sandbox.Network) {
				rulesFor(server, []string{"GET"})(h, n)
				n.Limits.Requests = limit
			}, 443, 8443)
			var going sync.WaitGroup
			var denied atomic.Int64
			for port, c := range map[int]*http.Client{443: s.trusting(443, two), 8443: s.trusting(8443, two)} {
				url := "https://example.com:" + strconv.Itoa(port)
				if code, got := ask(t, c, "POST", url, ""); code != 403 {
					t.Errorf("%d %s", code, got)
				}
				for range asked / 2 {
					going.Go(func() {
						switch code, got := ask(t, c, "GET", url, ""); {
						case code == 403 && strings.Contains(got, string(sandbox.DeniedRequests)):
							denied.Add(1)
						case code != 200:
							t.Errorf("%d %s", code, got)
						}
					})
				}
			}
			going.Wait()
			u := s.relay.Use()
			if hits.Load() != passed || denied.Load() != asked-passed || u.Endpoints[0].Requests != passed {
				t.Errorf("of %d, %d passed, %d were denied: %+v", limit, hits.Load(), denied.Load(), u)
			}
			var count int64
			for _, d := range u.Denied {
				if d.Reason == sandbox.DeniedRequests && strings.Contains(d.Hint, "network.limits.requests") {
					count += d.Count
				}
			}
			if count != asked-passed {
				t.Errorf("%+v", u.Denied)
			}
		}
	}
}

// Connections to all servers of a sandbox are bounded together; those that nobody uses make
// room.
func TestConnectionsToServersAreBounded(t *testing.T) {
	server, hits, goOn := waiting(t, false)
	s := newSite(t, server.Listener.Addr().String(), func(h *Host, n *sandbox.Network) {
		rulesFor(server, []string{"GET"})(h, n)
		n.Limits.Connections = 2
	}, 443, 8443)
	first, second := s.trusting(443, true), s.trusting(8443, true)
	var going sync.WaitGroup
	for range 2 {
		going.Go(func() { ask(t, first, "GET", "https://example.com/", "") })
	}
	until(t, "both are under way", func() bool { return hits.Load() == 2 })
	if code, got := ask(t, second, "GET", "https://example.com:8443/", ""); code != 503 || !strings.Contains(got, string(sandbox.DeniedConnections)) {
		t.Errorf("a third: %d %s", code, got)
	}
	goOn()
	going.Wait()
	if code, got := ask(t, second, "GET", "https://example.com:8443/", ""); code != 200 {
		t.Errorf("where the others are idle: %d %s", code, got)
	}
	if u := s.relay.Use(); len(u.Denied) != 1 || u.Denied[0].Reason != sandbox.DeniedConnections {
		t.Errorf("%+v", u.Denied)
	}
}

// One sandbox does not get all the connections of the host.
func TestOneSandboxHasAShareOfTheHosts(t *testing.T) {
	echo, _ := echoServer(t)
	s := newSite(t, echo, func(h *Host, _ *sandbox.Network) { h.most = 4 }, 5432)
	for range 2 {
		c := s.dial(5432)
		_, _ = c.Write([]byte{0})
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := net.Dial("tcp", s.doors[5432]); err == nil { // it may have been broken off by then
		_, _ = c.Write([]byte{0})
		if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, io.EOF) {
			t.Errorf("a third of four: %d %v", n, err)
		}
		_ = c.Close()
	}
	if r := s.denials(); len(r) != 1 || r[0] != sandbox.DeniedBusy {
		t.Error(r)
	}
}

// hurried is a connection for which time runs a hundred times as fast.
type hurried struct{ net.Conn }

func (h hurried) SetReadDeadline(by time.Time) error {
	return h.Conn.SetReadDeadline(time.Now().Add(time.Until(by) / 100))
}

// Where requests are held to rules a program that says nothing does not stay, at any port.
func TestWhoSaysNothingDoesNotStay(t *testing.T) {
	for _, port := range []int{80, 443, 8443} {
		s := newSite(t, "127.0.0.1:1", func(_ *Host, n *sandbox.Network) { n.Endpoints[0].Methods = []string{"GET"} }, port)
		ours, theirs := net.Pipe()
		if !s.relay.admit(hurried{theirs}, s.relay.doors[0]) {
			t.Fatal("not admitted")
		}
		_ = ours.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("port %d: %v", port, err)
		}
		until(t, "it is written down", func() bool { return s.relay.Use().Endpoints[0].LastError == errMute.Error() })
	}
}
