package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver/fake"
	"pinfold/sandbox"
)

// A small output that is large in JSON: six bytes for each. An answer of the size
// is the only one of a tenant's.
const (
	unreadOutput = 9 << 20
	unreadAnswer = 6 * unreadOutput
)

// loudWorld is a server whose programs print that.
func loudWorld(t *testing.T) *world {
	t.Helper()
	return newWorld(t, func(s *settings) {
		s.api.ClientTimeout = time.Minute // who does not read stays
		s.script = always(fake.Script{Program: func(p *fake.Process) fake.Exit {
			_, _ = io.WriteString(p.Stdout, strings.Repeat("\x01", unreadOutput))
			return fake.Exit{}
		}})
	})
}

var loudRun = sandbox.Spec{Language: "sh", Code: "x", Limits: sandbox.Limits{OutputBytes: unreadOutput}}

// loud makes such a run, and reads its whole answer.
func (w *world) loud(key string) (path string) {
	w.t.Helper()
	var r sandbox.Result
	w.must(200, request{key: key, method: "POST", path: "/v1/runs", body: loudRun}).json(w.t, &r)
	if len(r.Stdout) != unreadOutput {
		w.t.Fatalf("%d bytes", len(r.Stdout))
	}
	return "/v1/runs/" + r.ID
}

// unread is an answer of which only the beginning was read.
type unread struct {
	*http.Response

	t    *testing.T
	conn net.Conn
}

func (w *world) begin(key, path string) unread {
	w.t.Helper()
	// With its usual buffers: the rest would take minutes through small ones.
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, w.keys[key]); err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 1<<10), nil) //nolint:bodyclose // with its connection
	if err != nil {
		w.t.Fatal(err)
	}
	return unread{resp, w.t, conn}
}

// read reads the rest after all.
func (u unread) read() {
	u.t.Helper()
	if n, err := io.Copy(io.Discard, u.Body); err != nil || n != u.ContentLength || n < unreadAnswer {
		u.t.Errorf("who reads late got %d bytes of %d: %v", n, u.ContentLength, err)
	}
	_ = u.conn.Close()
}

// Answers that nobody reads take a bounded amount of memory: who asks for more is
// told to come back. Whoever reads gets all of it, and other tenants theirs.
func TestUnreadAnswersHaveABudget(t *testing.T) {
	w := loudWorld(t)
	mine, others := w.loud("alpha"), w.loud("beta")
	before := heap()
	var held []unread
	refused := 0
	for range 24 {
		a := w.begin("alpha", mine)
		switch a.StatusCode {
		case http.StatusOK:
			held = append(held, a)
		case http.StatusTooManyRequests:
			if refused++; a.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		default:
			t.Fatal(a.Status)
		}
	}
	if grown := heap() - before; len(held) == 0 || refused < 20 || grown > 4*unreadAnswer {
		t.Errorf("%d answers are held and take %d MiB, %d were refused", len(held), grown>>20, refused)
	}
	w.must(429, request{key: "alpha", method: "GET", path: mine + "/events"})
	w.must(429, request{key: "alpha", method: "GET", path: mine + "/wait"})
	w.must(200, request{key: "alpha", method: "GET", path: "/v1/runs"}) // small answers are not kept out
	if a := w.must(200, request{key: "beta", method: "GET", path: others}); len(a.body) < unreadAnswer {
		t.Errorf("another tenant got %d bytes", len(a.body))
	}
	for _, late := range held {
		late.read()
	}
	w.roomAgain(mine)
}

// roomAgain asks until the server has noticed that there is room.
func (w *world) roomAgain(path string) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		a := w.do(request{key: "alpha", method: "GET", path: path})
		if a.status == http.StatusOK && len(a.body) > unreadAnswer {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("still %d", a.status)
		}
	}
}

// A run whose result finds no room is not refused: it has happened. Its answer
// waits until there is room.
func TestResultsWaitForRoom(t *testing.T) {
	w := loudWorld(t)
	late := w.begin("alpha", w.loud("alpha"))
	answers := make(chan answered)
	for range 2 {
		go func() { answers <- w.do(request{key: "alpha", method: "POST", path: "/v1/runs", body: loudRun}) }()
	}
	w.finishedRuns("alpha", 3)
	late.read()
	for range 2 {
		a := <-answers
		var r sandbox.Result
		if err := json.Unmarshal([]byte(a.body), &r); err != nil || a.status != http.StatusOK || len(r.Stdout) != unreadOutput {
			t.Errorf("%d %.300s %v", a.status, a.body, err)
		}
	}
}

// finishedRuns waits until so many runs have finished.
func (w *world) finishedRuns(key string, want int) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var page struct{ Items []json.RawMessage }
		w.must(200, request{key: key, method: "GET", path: "/v1/runs?state=finished"}).json(w.t, &page)
		if len(page.Items) == want {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("%d have finished", len(page.Items))
		}
	}
}
