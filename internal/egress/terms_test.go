package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/sandbox"
)

// declare has another declaration hold.
func (s *site) declare(n sandbox.Network) {
	s.t.Helper()
	n, err := n.Canonical()
	if err != nil {
		s.t.Fatal(err)
	}
	begin, err := s.relay.Prepare(s.t.Context(), n, "team", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	begin()
}

// declares is a declaration in the words of the command line.
func declares(t *testing.T, words ...string) (n sandbox.Network) {
	t.Helper()
	for _, w := range words {
		e, err := sandbox.ParseEndpoint(w)
		if err != nil {
			t.Fatal(err)
		}
		n.Endpoints = append(n.Endpoints, e)
	}
	return n
}

// echoes says whether a connection still passes something on, in both directions.
func echoes(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte{0}); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}

// isCut waits a second at most for the end of a connection on which nothing comes.
func isCut(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, err := c.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// allOver waits until the relay counts no connection: a guest can see the end of one first.
func (s *site) allOver() {
	s.t.Helper()
	for range 5000 {
		s.relay.mu.Lock()
		n := len(s.relay.open)
		s.relay.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	s.t.Fatal("connections are left")
}

// What is no longer declared is cut at once, and can be had no more; what is goes on. What
// was there at first can be had again.
func TestNarrowingCutsConnections(t *testing.T) {
	echo, hits := echoServer(t)
	s := newSite(t, echo, nil, 5432, 5433)
	cut, kept := s.dial(5432), s.dial(5433)
	if !echoes(cut) || !echoes(kept) {
		t.Fatal("nothing passes")
	}
	s.declare(declares(t, "ok.test:5433=127.0.0.1"))
	if !isCut(cut) {
		t.Error("the connection goes on")
	}
	if !echoes(kept) || !echoes(s.dial(5433)) {
		t.Error("what is declared does not pass any more")
	}
	before := hits.Load()
	if s.passes(5432) || hits.Load() != before {
		t.Error("what is not declared any more can be reached")
	}
	var count int64
	for _, d := range s.relay.Use().Denied {
		if d.Reason != sandbox.DeniedNarrowed || d.Port != 5432 || !strings.Contains(d.Hint, "5432") {
			t.Errorf("%+v", d)
		}
		count += d.Count
	}
	if count != 2 {
		t.Errorf("%d denials: one was cut, one was refused", count)
	}
	s.declare(sandbox.Network{})
	if !isCut(kept) || s.passes(5433) {
		t.Error("there is something left without a declaration")
	}
	s.declare(declares(t, "ok.test:5432,5433=127.0.0.1"))
	if !echoes(s.dial(5432)) || !echoes(s.dial(5433)) {
		t.Error("what was declared at first cannot be had again")
	}
}

// passes says whether something passes at a door, which may break off a connection before
// whoever made it has looked at it.
func (s *site) passes(port int) bool {
	c, err := net.Dial("tcp", s.doors[port])
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return echoes(c.(*net.TCPConn))
}

// endless answers with a line now and then, for as long as somebody wants it.
func endless(w http.ResponseWriter, r *http.Request) {
	for {
		if _, err := io.WriteString(w, "still there\n"); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// goesOn says whether a body brings anything more for a second.
func goesOn(body io.Reader) bool {
	end := time.Now().Add(time.Second)
	for time.Now().Before(end) {
		if _, err := body.Read(make([]byte, 1<<10)); err != nil {
			return false
		}
	}
	return true
}

// A request under way that the rules do not let pass any more is cut; others beside it, on
// the same connection in HTTP/2, go on.
func TestNarrowingCutsRequests(t *testing.T) {
	for _, two := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", two), func(t *testing.T) {
			server, _ := secureServer(t, endless)
			s := newSite(t, server.Listener.Addr().String(), rulesFor(server, nil, "/a", "/b"), 443)
			c := s.trusting(443, two)
			begin := func(path string) io.Reader {
				answer, err := c.Get("https://example.com" + path)
				if err != nil || answer.StatusCode != http.StatusOK {
					t.Fatal(answer, err)
				}
				t.Cleanup(func() { _ = answer.Body.Close() })
				return answer.Body
			}
			a, b := begin("/a"), begin("/b")
			s.declare(declares(t, "https://example.com=127.0.0.1/b"))
			if goesOn(a) {
				t.Error("the transfer goes on")
			}
			if !goesOn(b) {
				t.Error("what is allowed was cut")
			}
			if code, got := ask(t, c, "GET", "https://example.com/a", ""); code != 403 || !strings.Contains(got, "(request)") {
				t.Errorf("%d %s", code, got)
			}
			if d := s.relay.Use().Denied; len(d) != 2 || d[0].Reason != sandbox.DeniedNarrowed || d[1].Reason != sandbox.DeniedRequest {
				t.Errorf("%+v", d)
			}
			s.declare(sandbox.Network{})
			if goesOn(b) {
				t.Error("the transfer goes on without a declaration")
			}
		})
	}
}

// Limits that are lowered count what was: connections over it are cut, those that came last
// first, and so is a transfer for which nothing is left.
func TestLoweredLimitsCut(t *testing.T) {
	echo, _ := echoServer(t)
	s := newSite(t, echo, nil, 5432)
	first, second := s.dial(5432), s.dial(5432)
	if !echoes(first) || !echoes(second) {
		t.Fatal("nothing passes")
	}
	n := declares(t, "ok.test:5432=127.0.0.1")
	n.Limits.Connections = 1
	s.declare(n)
	if !isCut(second) || !echoes(first) {
		t.Error("the wrong one was cut, or none")
	}
	n.Limits.BytesUp = 4 // of which 3 have passed
	s.declare(n)
	if !echoes(first) || echoes(first) {
		t.Error("the limit does not count what has passed")
	}
	s.allOver() // or the next would be one too many
	n.Limits.BytesUp = 6
	s.declare(n)
	third := s.dial(5432)
	passed := []bool{echoes(third), echoes(third), echoes(third)}
	if !slices.Equal(passed, []bool{true, true, false}) {
		t.Error("a limit that is raised does not count what has passed")
	}
}

// What was made with the machine bounds what it can have.
func TestWhatAMachineCannotHave(t *testing.T) {
	s := newSite(t, "127.0.0.1:1", nil, 443)
	for _, words := range []string{"ok.test:444=127.0.0.1", "other.test", "GET https://ok.test=127.0.0.1/a"} {
		n, err := declares(t, words).Canonical()
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.relay.Prepare(t.Context(), n, "team", nil)
		if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeNetworkUnsupported || !strings.HasPrefix(e.Field, "network.endpoints[0]") || e.Hint == "" {
			t.Errorf("%s: %+v", words, e)
		}
	}
}

// Programs that trust the sandbox's own authority alone could not use what passes unread.
func TestWhatIsReadStaysRead(t *testing.T) {
	server, _ := secureServer(t, endless)
	s := newSite(t, server.Listener.Addr().String(), rulesFor(server, nil, "/a"), 443)
	n, err := declares(t, "example.com=127.0.0.1").Canonical()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.relay.Prepare(t.Context(), n, "team", nil)
	if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeNetworkUnsupported || e.Field != "network.endpoints[0]" || !strings.Contains(e.Hint, `"/**"`) {
		t.Errorf("%+v", e)
	}
	n.Endpoints[0].Paths = []string{"/", "/**"} // as the hint says
	s.declare(n)
	if code, _ := ask(t, s.trusting(443, false), "HEAD", "https://example.com/b", ""); code != 200 {
		t.Error(code)
	}
}

func TestWithinDeclared(t *testing.T) {
	secret := func(n sandbox.Network, at int) sandbox.Network { n.Endpoints[at].Secret = "s"; return n }
	made := secret(declares(t, "a.test:80,443", "GET,POST https://b.test/x/**", "https://b.test/y", "c.test:1=10.0.0.1", "*.d.test"), 2)
	for words, want := range map[string]bool{
		"a.test": true, "a.test:80": true, "a.test:81": false, "GET https://a.test/x": true,
		"GET https://b.test/x/1": true, "DELETE https://b.test/x/1": false, "b.test": false, "https://b.test/y": true, "https://b.test/x/1": false,
		"c.test:1": true, "c.test:1=10.0.0.1": true, "c.test:1=10.0.0.2": false, "*.d.test": true, "e.d.test": false, "b.test:80": false,
	} {
		n, err := declares(t, words).Canonical()
		if err != nil {
			t.Fatal(err)
		}
		all, err := made.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		if got := WithinDeclared(n.Endpoints[0], all.Endpoints); got != want {
			t.Errorf("%s: %v", words, got)
		}
		n.Endpoints[0].Secret = "s"
		if got := WithinDeclared(n.Endpoints[0], all.Endpoints); got != (words == "https://b.test/y") {
			t.Errorf("%s with a secret: %v", words, got)
		}
	}
}

// A request under way whose secret is taken away is cut; the next one passes without it.
func TestNarrowingTakesTheSecret(t *testing.T) {
	server, _ := secureServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/with/once" {
			_, _ = io.WriteString(w, fmt.Sprint(len(r.Header["Authorization"])))
			return
		}
		endless(w, r)
	})
	s := withSecret(t, server, sandbox.SetSecret{}, 443)
	c := s.trusting(443, false)
	under, err := c.Get("https://example.com/with/x")
	if err != nil {
		t.Fatal(err)
	}
	defer under.Body.Close()
	if _, got := ask(t, c, "GET", "https://example.com/with/once", ""); got != "1" {
		t.Fatalf("%q headers", got)
	}
	n := declares(t, "GET https://example.com=127.0.0.1/with/**")
	s.declare(n)
	if goesOn(under.Body) {
		t.Error("the transfer with the secret goes on")
	}
	if code, got := ask(t, c, "GET", "https://example.com/with/once", ""); code != 200 || got != "0" {
		t.Errorf("%d %q headers", code, got)
	}
	n.Endpoints[0].Secret = "token" // which the sandbox was made with, and nobody finds any more
	s.declare(n)
	if _, got := ask(t, c, "GET", "https://example.com/with/once", ""); got != "1" {
		t.Errorf("%q headers", got)
	}
}

// A name that was declared by itself does not become one of a wildcard's when it is taken
// away.
func TestNamesStayTheirDeclarations(t *testing.T) {
	echo, _ := echoServer(t)
	s, _ := wild(t, echo, func(n *sandbox.Network) {
		n.Endpoints = append(n.Endpoints, sandbox.Endpoint{Host: "a.ok.test", Ports: []int{80}})
	}, 80)
	s.at(echo)
	s.declare(declares(t, "*.ok.test:80"))
	if got := s.say(80, get("a.ok.test")); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("%q", got)
	}
	if got := s.say(80, get("b.ok.test")); got != get("b.ok.test") {
		t.Errorf("%q", got)
	}
}
