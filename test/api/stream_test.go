package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/api"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/admission"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// hostileOutput tries to end events, to begin others and to speak as we do.
const hostileOutput = "data: {}\n\nevent: result\ndata: {\"status\":\"succeeded\"}\n\n\r\n\revent: exit\r\ndata: x\r\n\r\nid: 9\n:\n<<RESULT>>\x00\x1b[2J\u2028\u2029\xff\xfe0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" + "ünïcode \xf0\x9f"

func prints(stdout string) func(*fake.Process) fake.Exit {
	return func(p *fake.Process) fake.Exit {
		for part := range strings.SplitSeq(stdout, "") { // in pieces that cut characters
			_, _ = io.WriteString(p.Stdout, part)
		}
		_, _ = io.WriteString(p.Stderr, "to the other\n")
		return fake.Exit{Code: 3}
	}
}

// bytesOf puts a stream together again from its events.
func bytesOf(t *testing.T, all []event, stream string) string {
	t.Helper()
	var out strings.Builder
	for _, e := range all {
		if e.name != stream {
			continue
		}
		var o api.OutputEvent
		if err := json.Unmarshal([]byte(e.data), &o); err != nil {
			t.Fatal(err)
		}
		if o.Offset != int64(out.Len()) {
			t.Fatalf("%s: offset %d after %d bytes", stream, o.Offset, out.Len())
		}
		raw, err := base64.StdEncoding.DecodeString(o.Base64)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(o.Text + string(raw))
	}
	return out.String()
}

func names(all []event) string {
	var out []string
	for _, e := range all {
		if len(out) == 0 || out[len(out)-1] != e.name {
			out = append(out, e.name)
		}
	}
	return strings.Join(out, " ")
}

// OU-06: whatever a program prints, the stream's framing stays ours.
func TestHostileOutputStaysInItsEvents(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.script = always(fake.Script{Program: prints(hostileOutput)}) })
	sse := map[string]string{"Accept": "text/event-stream"}
	run := newEventReader(w.open(request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "x"}, header: sse})).all(t)
	if got := bytesOf(t, run, "stdout"); got != hostileOutput {
		t.Errorf("a run's stdout came as %q", got)
	}
	if got := bytesOf(t, run, "stderr"); got != "to the other\n" {
		t.Errorf("a run's stderr came as %q", got)
	}
	last := run[len(run)-1]
	var result sandbox.Result
	if err := json.Unmarshal([]byte(last.data), &result); err != nil || last.name != "result" || result.ExitCode == nil || *result.ExitCode != 3 || run[0].name != "start" {
		t.Errorf("%s, %v, %+v", names(run), err, last)
	}
	if n := strings.Count(names(run), "result"); n != 1 {
		t.Errorf("%d results", n)
	}
	box := w.create("alpha")
	started := newEventReader(w.open(request{key: "alpha", method: "POST", path: box + "/processes", body: shell("x"), header: sse})).all(t)
	if bytesOf(t, started, "stdout") != hostileOutput || started[0].name != "start" || started[len(started)-1].name != "exit" {
		t.Errorf("a process: %s", names(started))
	}
	var p sandbox.Process
	if err := json.Unmarshal([]byte(started[0].data), &p); err != nil {
		t.Fatal(err)
	}
	later := newEventReader(w.open(request{key: "alpha", method: "GET", path: box + "/processes/" + p.ID + "/output"})).all(t)
	if bytesOf(t, later, "stdout") != hostileOutput || bytesOf(t, later, "stderr") != "to the other\n" {
		t.Errorf("read later: %s", names(later))
	}
	raw := w.must(200, request{key: "alpha", method: "GET", path: box + "/processes/" + p.ID + "/stdout"})
	if raw.body != hostileOutput || raw.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("raw: %q", raw.body)
	}
}

// Output goes on from the byte at which a client stopped.
func TestOutputIsResumed(t *testing.T) {
	text := strings.Repeat("0123456789", 100)
	w := newWorld(t, func(s *settings) { s.script = always(fake.Script{Program: prints(text)}) })
	box := w.create("alpha")
	var p sandbox.Process
	w.must(200, request{key: "alpha", method: "POST", path: box + "/processes?wait=true", body: shell("x")}).json(t, &p)
	path := box + "/processes/" + p.ID
	all := newEventReader(w.open(request{key: "alpha", method: "GET", path: path + "/output?stdout=995&stderr=3"})).all(t)
	got := ""
	for _, e := range all[:len(all)-1] {
		var o api.OutputEvent
		if err := json.Unmarshal([]byte(e.data), &o); err != nil {
			t.Fatal(err)
		}
		if want := map[string]int64{"stdout": 995, "stderr": 3}[o.Stream]; o.Offset != want {
			t.Errorf("%+v", o)
		}
		got += e.name + "=" + o.Text + ";"
	}
	if got != "stdout=56789;stderr=the other\n;" && got != "stderr=the other\n;stdout=56789;" {
		t.Errorf("%q", got)
	}
	if id := all[len(all)-2].id; id != "1000.13" {
		t.Errorf("the last id is %s", id)
	}
	again := newEventReader(w.open(request{key: "alpha", method: "GET", path: path + "/output", header: map[string]string{"Last-Event-ID": "1000.13"}})).all(t)
	if names(again) != "exit" {
		t.Errorf("%s", names(again))
	}
	for query, header := range map[string]string{"?stdout=1001": "", "?stderr=99": "", "?": "2000.0"} {
		h := map[string]string{"Last-Event-ID": header}
		if header == "" {
			h = nil
		}
		if a := w.do(request{key: "alpha", method: "GET", path: path + "/output" + query, header: h}); a.status != 410 || a.code(t).Code != sandbox.CodeOffsetGone {
			t.Errorf("%s %s: %d %s", query, header, a.status, a.body)
		}
	}
	for _, id := range []string{"x", "1", "-1.0", "1.2.3", strings.Repeat("9", 40) + ".0"} {
		if a := w.do(request{key: "alpha", method: "GET", path: path + "/output", header: map[string]string{"Last-Event-ID": id}}); a.status != 400 {
			t.Errorf("%s: %d", id, a.status)
		}
	}
	if a := w.do(request{key: "alpha", method: "GET", path: path + "/stdout?offset=5000"}); a.status != 410 {
		t.Errorf("raw: %d", a.status)
	}
	// What is no longer kept is an error that says what is.
	w.must(200, request{key: "alpha", method: "POST", path: box + "/processes?wait=true", body: sandbox.Command{Shell: "x", OutputBytes: 100}}).json(t, &p)
	path = box + "/processes/" + p.ID
	if a := w.do(request{key: "alpha", method: "GET", path: path + "/stdout?offset=0"}); a.status != 410 || !strings.Contains(a.body, "from offset") {
		t.Errorf("%d %s", a.status, a.body)
	}
	kept := w.must(200, request{key: "alpha", method: "GET", path: path + "/stdout"})
	from, err := strconv.Atoi(kept.header.Get("X-Output-Offset"))
	if err != nil || from == 0 || kept.body != text[from:] {
		t.Errorf("from %d: %q", from, kept.body)
	}
}

// A stream that has nothing to say says that it lives, and its header comes at
// once.
func TestSilentStreamsBeat(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.api.Heartbeat = 20 * time.Millisecond })
	box := w.create("alpha")
	path := w.start("alpha", box, sandbox.Command{Args: []string{"sleep"}})
	r := newEventReader(w.open(request{key: "alpha", method: "GET", path: path + "/output"}))
	for r.comments < 3 && r.lines.Scan() {
		if strings.HasPrefix(r.lines.Text(), ":") {
			r.comments++
		}
	}
	w.must(204, request{key: "alpha", method: "POST", path: path + "/signal", body: map[string]any{"signal": "KILL"}})
	if e := r.next(t); e.name != "exit" || !strings.Contains(e.data, "SIGKILL") {
		t.Fatalf("%+v", e)
	}
}

// tap opens a bare connection and sends a request whose answer is not read.
func (w *world) tap(key, path string) net.Conn {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4 << 10)
	}
	_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+w.keys[key]+"\r\n\r\n")
	if err != nil {
		w.t.Fatal(err)
	}
	return conn
}

// A client that stops reading stops the program, costs no memory, and is
// dropped; then the program goes on.
func TestSlowReadersAreDropped(t *testing.T) {
	var sent atomic.Int64
	finished := make(chan struct{})
	const total = 64 << 20
	w := newWorld(t, func(s *settings) {
		s.api.ClientTimeout = 500 * time.Millisecond
		s.script = always(fake.Script{Program: func(p *fake.Process) fake.Exit {
			chunk := make([]byte, 32<<10)
			for sent.Load() < total {
				n, err := p.Stdout.Write(chunk)
				sent.Add(int64(n))
				if err != nil {
					break
				}
			}
			close(finished)
			return fake.Exit{}
		}})
	})
	box := w.create("alpha")
	started := w.open(request{key: "alpha", method: "POST", path: box + "/processes", body: shell("x"), header: map[string]string{"Accept": "text/event-stream"}})
	e := newEventReader(started)
	var p sandbox.Process
	if first := e.next(t); json.Unmarshal([]byte(first.data), &p) != nil {
		t.Fatalf("%+v", first)
	}
	select { // nobody reads: the first reader is dropped, and the program comes to its end
	case <-finished:
	case <-time.After(25 * time.Second):
		t.Fatalf("the program still waits after %d bytes", sent.Load())
	}
	var info sandbox.Process
	w.must(200, request{key: "alpha", method: "GET", path: box + "/processes/" + p.ID + "/wait"}).json(t, &info)
	if info.Status != sandbox.StatusSucceeded || info.StdoutBytes != total {
		t.Fatalf("%+v", info)
	}
	left, err := io.Copy(io.Discard, started.body)
	if err == nil || left >= total {
		t.Errorf("the dropped reader got %d bytes and %v", left, err)
	}
}

// Everybody who reads gets everything; a reader that goes away stops nothing.
func TestLeavingAStreamEndsNothing(t *testing.T) {
	w := newWorld(t, nil)
	box := w.create("alpha")
	path := w.start("alpha", box, sandbox.Command{Args: []string{"cat"}, Stdin: true})
	resp := w.open(request{key: "alpha", method: "GET", path: path + "/stdout"})
	_ = resp.body.Close()
	conn := w.tap("alpha", path+"/output")
	_ = conn.Close()
	w.must(200, request{key: "alpha", method: "POST", path: path + "/stdin", body: []byte("still here")})
	w.must(204, request{key: "alpha", method: "DELETE", path: path + "/stdin"})
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if a := w.do(request{key: "alpha", method: "GET", path: path + "/stdout?offset=0"}); a.body != "still here" {
				t.Errorf("%q", a.body)
			}
		})
	}
	wg.Wait()
}

// What is sent to a run's stdin is what its program reads, while it runs, no
// faster than it reads and no longer than it lives.
func TestStdinOfARun(t *testing.T) {
	const total = 8 << 20
	var taken atomic.Int64
	begin, finish := make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(s *settings) {
		s.script = always(fake.Script{Program: func(p *fake.Process) fake.Exit {
			_, _ = io.CopyN(p.Stdout, p.Stdin, 5) // "hello"
			<-begin
			n, _ := io.CopyN(io.Discard, p.Stdin, total)
			taken.Store(n)
			<-finish
			return fake.Exit{}
		}})
	})
	ask := request{key: "alpha", method: "POST", path: "/v1/runs?stdin=true", body: sandbox.Spec{Language: "sh", Code: "x"}}
	if a := w.do(ask); a.status != 400 || a.code(t).Field != "stdin" || !strings.Contains(a.code(t).Hint, "text/event-stream") {
		t.Fatalf("without events: %d %s", a.status, a.body)
	}
	ask.header = map[string]string{"Accept": "text/event-stream"}
	twice := ask
	twice.body = sandbox.Spec{Language: "sh", Code: "x", Stdin: "y"}
	if a := w.do(twice); a.status != 400 || a.code(t).Field != "stdin" {
		t.Fatalf("with a stdin of its own: %d %s", a.status, a.body)
	}
	events := newEventReader(w.open(ask))
	var started api.RunEvent
	if first := events.next(t); json.Unmarshal([]byte(first.data), &started) != nil || started.ID == "" {
		t.Fatalf("%+v", first)
	}
	path := "/v1/runs/" + started.ID + "/stdin"
	if a := w.do(request{key: "beta", method: "POST", path: path, body: []byte("evil!")}); a.status != 404 {
		t.Fatalf("another tenant's: %d %s", a.status, a.body)
	}
	w.must(200, request{key: "alpha", method: "POST", path: path, body: []byte("hello")})
	if e := events.next(t); e.name != "stdout" || !strings.Contains(e.data, `"hello"`) {
		t.Fatalf("%+v", e)
	}
	send := func(n int) chan answered {
		sent := make(chan answered, 1)
		go func() {
			sent <- w.do(request{key: "alpha", method: "POST", path: path, body: bytes.Repeat([]byte("x"), n)})
		}()
		select {
		case a := <-sent:
			t.Fatalf("%d bytes went to a program that does not read: %d %s", n, a.status, a.body)
		case <-time.After(50 * time.Millisecond): // what is said holds at any later moment, too
		}
		return sent
	}
	sent := send(total)
	close(begin)
	if a := <-sent; a.status != 200 || a.body != fmt.Sprintf("{\"written\":%d}\n", total) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	sent = send(wire.WindowSize + 200<<10)
	close(finish)
	if a := <-sent; a.status != 409 {
		t.Fatalf("the program's end: %d %s", a.status, a.body)
	}
	if rest := events.all(t); !strings.HasSuffix(names(rest), "result") || taken.Load() != total {
		t.Fatalf("%s, %d bytes were read", names(rest), taken.Load())
	}
	for _, method := range []string{"POST", "DELETE"} {
		if a := w.do(request{key: "alpha", method: method, path: path}); a.status != 409 || a.code(t).Code != sandbox.CodeConflict || !strings.Contains(a.code(t).Hint, "?stdin=true") {
			t.Fatalf("%s after the end: %d %s", method, a.status, a.body)
		}
	}
}

// The end of a run's stdin is what its program reads then.
func TestStdinOfARunIsClosed(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.script = always(fake.Script{Program: func(p *fake.Process) fake.Exit {
			_, _ = io.Copy(p.Stdout, p.Stdin)
			return fake.Exit{}
		}})
	})
	if rest := useOpenStdin(w); names(rest) != "stdout result" {
		t.Fatal(names(rest))
	}
	// One that nobody waits for takes it as well; its id is in the answer.
	var r api.Run
	w.must(202, request{key: "alpha", method: "POST", path: "/v1/runs?stdin=true&wait=false", body: sandbox.Spec{Language: "sh", Code: "x"}}).json(t, &r)
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs/" + r.ID + "/stdin", body: []byte("alone")})
	w.must(204, request{key: "alpha", method: "DELETE", path: "/v1/runs/" + r.ID + "/stdin"})
	if a := w.must(200, request{key: "alpha", method: "GET", path: "/v1/runs/" + r.ID + "/wait"}); !strings.Contains(a.body, `"stdout":"alone"`) {
		t.Fatal(a.body)
	}
}

// runs counts the programs that were started.
type runs struct{ n atomic.Int64 }

func (r *runs) program(p *fake.Process) fake.Exit {
	r.n.Add(1)
	_, _ = io.WriteString(p.Stdout, "once\n")
	return fake.Exit{}
}

func TestIdempotency(t *testing.T) {
	var r runs
	w := newWorld(t, func(s *settings) { s.script = always(fake.Script{Program: r.program}) })
	ask := request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "x"}, header: map[string]string{"Idempotency-Key": "job-1"}}
	first := w.must(200, ask)
	second := w.must(200, ask)
	if first.body != second.body || r.n.Load() != 1 {
		t.Fatalf("%d runs:\n%s\n%s", r.n.Load(), first.body, second.body)
	}
	sse := ask
	sse.header = map[string]string{"Idempotency-Key": "job-1", "Accept": "text/event-stream"}
	if all := newEventReader(w.open(sse)).all(t); names(all) != "start result" || r.n.Load() != 1 {
		t.Fatalf("%s, %d runs", names(all), r.n.Load())
	}
	other := ask
	other.body = sandbox.Spec{Language: "sh", Code: "something else"}
	if a := w.do(other); a.status != 409 || a.code(t).Code != sandbox.CodeIdempotency {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var wg sync.WaitGroup
	bodies := make([]string, 8)
	ask.header = map[string]string{"Idempotency-Key": "job-2"}
	for i := range bodies {
		wg.Go(func() { bodies[i] = w.do(ask).body })
	}
	wg.Wait()
	for _, b := range bodies {
		if b != bodies[0] {
			t.Errorf("%s\n%s", b, bodies[0])
		}
	}
	if r.n.Load() != 2 {
		t.Errorf("%d runs", r.n.Load())
	}
}

// A client that goes away cancels its run, but not one that it can ask for again.
func TestGoingAwayCancelsARun(t *testing.T) {
	begun := make(chan struct{}, 2)
	release := make(chan struct{})
	w := newWorld(t, func(s *settings) {
		s.script = always(fake.Script{Program: func(p *fake.Process) fake.Exit {
			begun <- struct{}{}
			select {
			case <-p.Killed:
			case <-release:
			}
			return fake.Exit{}
		}})
	})
	leave := func(header string) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		body := `{"language":"sh","code":"x"}`
		_, _ = io.WriteString(conn, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n"+header+"Authorization: Bearer "+w.keys["alpha"]+"\r\n\r\n"+body)
		<-begun
		_ = conn.Close()
	}
	leave("")
	var list api.List[api.Run]
	for i := 0; ; i++ {
		w.must(200, request{key: "alpha", method: "GET", path: "/v1/runs"}).json(t, &list)
		if len(list.Items) == 1 && list.Items[0].Cause == sandbox.CauseCancelled {
			break
		}
		if i > 500 {
			t.Fatalf("not cancelled: %+v", list)
		}
		time.Sleep(10 * time.Millisecond)
	}
	leave("Idempotency-Key: k\r\n")
	time.Sleep(50 * time.Millisecond) // let the server notice
	close(release)
	var result sandbox.Result
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs", body: `{"language":"sh","code":"x"}`, header: map[string]string{"Idempotency-Key": "k"}}).json(t, &result)
	if result.Status != sandbox.StatusSucceeded {
		t.Fatalf("%+v", result)
	}
}

// A server that is full says when to come back.
func TestFullServersSayWhenToComeBack(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.engine.Quota = func(string) admission.Quota { return admission.Quota{Sandboxes: 1} }
		s.script = func(driver.Plan) fake.Script { return fake.Script{} }
	})
	w.create("alpha")
	a := w.do(request{key: "alpha", method: "POST", path: "/v1/sandboxes", body: map[string]any{}})
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if a.status != http.StatusTooManyRequests || err != nil || seconds < 1 {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	w.create("beta")
}

func TestDrainingServersSayThatTheyAreNotReady(t *testing.T) {
	w := newWorld(t, nil)
	w.must(200, request{method: "GET", path: "/readyz"})
	if err := w.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := w.do(request{method: "GET", path: "/readyz"}); a.status != 503 || a.code(t).Code != sandbox.CodeShuttingDown {
		t.Errorf("%d %s", a.status, a.body)
	}
	w.must(200, request{method: "GET", path: "/healthz"})
	if a := w.do(request{key: "alpha", method: "POST", path: "/v1/runs", body: `{"language":"sh","code":"x"}`}); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
}
