package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"pinfold/internal/driver/fake"
	"pinfold/sandbox"
)

// revocable makes a key of alpha's and the way to revoke it.
func (w *world) revocable(name string) (revoke func()) {
	w.t.Helper()
	k, secret, err := w.access.Create(w.t.Context(), "alpha", name, []string{"run", "sandbox"}, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.keys[name] = secret
	return func() {
		if _, err := w.access.Revoke(context.Background(), k.ID); err != nil {
			w.t.Error(err)
		}
	}
}

// A stream that began with a good key ends when the key is revoked, and says
// why; what it showed lives on.
func TestStreamsEndWithTheirKey(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.api.Heartbeat = 20 * time.Millisecond
		s.script = always(fake.Script{Program: echoing})
	})
	box := w.create("alpha")
	path := w.start("alpha", box, sandbox.Command{Args: []string{"sh"}, Terminal: size})
	revoke := w.revocable("short")
	kept := newEventReader(w.open(request{key: "alpha", method: "GET", path: path + "/output"}))
	follow := newEventReader(w.open(request{key: "short", method: "GET", path: path + "/output"}))
	watch := newEventReader(w.open(request{key: "short", method: "GET", path: box + "/files/watch?path=."}))
	if e := watch.next(t); e.name != "ready" {
		t.Fatalf("%+v", e)
	}
	raw := w.open(request{key: "short", method: "GET", path: path + "/stdout"})
	terminal := w.dial("short", path+"/terminal")
	revoke()
	for name, r := range map[string]*eventReader{"output": follow, "watch": watch} {
		if e := r.next(t); e.name != "error" || !strings.Contains(e.data, `"code":"unauthorized"`) {
			t.Errorf("%s: %+v", name, e)
		}
	}
	b := make([]byte, 1)
	if n, err := raw.body.Read(b); err == nil {
		t.Errorf("raw output: %d bytes more", n)
	}
	_, frame, err := terminal.Read(soon(t))
	var last sandbox.ErrorBody
	if err != nil || json.Unmarshal(frame, &last) != nil || last.Error == nil || last.Error.Code != sandbox.CodeUnauthorized {
		t.Errorf("terminal: %v %s", err, frame)
	}
	if _, _, err := terminal.Read(soon(t)); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("terminal: closed with %v", err)
	}
	w.must(200, request{key: "alpha", method: "POST", path: path + "/stdin", body: []byte("quit")})
	if all := kept.all(t); len(all) == 0 || all[len(all)-1].name != "exit" {
		t.Errorf("the other key's stream: %+v", all)
	}
}

// However seldom a stream has something to say, it ends with its key: nobody waits
// for its next sign of life.
func TestQuietStreamsEndAtOnceWithTheirKey(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.api.Heartbeat = time.Hour })
	box := w.create("alpha")
	revoke := w.revocable("short")
	watch := newEventReader(w.open(request{key: "short", method: "GET", path: box + "/files/watch?path=."}))
	if e := watch.next(t); e.name != "ready" {
		t.Fatalf("%+v", e)
	}
	revoke()
	if e := watch.next(t); e.name != "error" || !strings.Contains(e.data, `"code":"unauthorized"`) {
		t.Errorf("%+v", e)
	}
}

// A run that may be asked for again goes on without the stream.
func TestKeyedRunsOutliveTheirKey(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, func(s *settings) {
		s.api.Heartbeat = 20 * time.Millisecond
		s.script = always(fake.Script{Program: func(*fake.Process) fake.Exit { <-release; return fake.Exit{Code: 3} }})
	})
	revoke := w.revocable("short")
	ask := request{
		key: "short", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "x"},
		header: map[string]string{"Accept": "text/event-stream", "Idempotency-Key": "job-1"},
	}
	r := newEventReader(w.open(ask))
	if e := r.next(t); e.name != "start" {
		t.Fatalf("%+v", e)
	}
	revoke()
	if e := r.next(t); e.name != "error" || !strings.Contains(e.data, `"code":"unauthorized"`) {
		t.Errorf("%+v", e)
	}
	close(release)
	if e := r.next(t); e.name != "" {
		t.Errorf("after the error: %+v", e)
	}
	var result sandbox.Result
	ask.key, ask.header = "alpha", map[string]string{"Idempotency-Key": "job-1"}
	w.must(200, ask).json(t, &result)
	if result.ExitCode == nil || *result.ExitCode != 3 {
		t.Errorf("%+v", result)
	}
}

// A connection to a server inside that was taken over ends with the key.
func TestPortsEndWithTheirKey(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.api.Heartbeat = 20 * time.Millisecond
		s.script = always(fake.Script{Ports: portsInside()})
	})
	path := w.create("alpha") + "/ports/8000/ws"
	revoke := w.revocable("short")
	conn := w.dial("short", path)
	revoke()
	if _, _, err := conn.Read(soon(t)); err == nil || soon(t).Err() != nil {
		t.Errorf("%v", err)
	}
	if a := w.do(request{key: "short", method: "GET", path: path}); a.status != http.StatusUnauthorized {
		t.Errorf("%d", a.status)
	}
}

// A program that reads nothing of what is typed keeps its terminal from nobody:
// pongs are read, and a client that types too much is told why it is dropped.
func TestTerminalsOfProgramsThatDoNotRead(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, func(s *settings) {
		s.api.Heartbeat, s.api.ClientTimeout = 20*time.Millisecond, 400*time.Millisecond
		s.script = always(fake.Script{Program: func(p *fake.Process) fake.Exit {
			<-release
			return echoing(p)
		}})
	})
	box := w.create("alpha")
	path := w.start("alpha", box, sandbox.Command{Args: []string{"sh"}, Terminal: size})
	conn := w.dial("alpha", path+"/terminal")
	closed := make(chan error, 1)
	go func() {
		for {
			if _, _, err := conn.Read(context.Background()); err != nil {
				closed <- err
				return
			}
		}
	}()
	for range 8 { // fits
		if err := conn.Write(t.Context(), websocket.MessageBinary, make([]byte, 60<<10)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // the server reads while the program does not
		if err := conn.Ping(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		for conn.Write(context.Background(), websocket.MessageBinary, make([]byte, 60<<10)) == nil {
		}
	}()
	select {
	case err := <-closed:
		if websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
			t.Errorf("closed with %v", err)
		}
	case <-soon(t).Done():
		t.Fatal("the terminal still waits")
	}
	var p sandbox.Process
	if w.must(200, request{key: "alpha", method: "GET", path: path}).json(t, &p); !p.Running {
		t.Fatalf("%+v", p)
	}
	close(release)
	again := w.dial("alpha", path+"/terminal")
	again.SetReadLimit(4 << 20)
	if err := again.Write(t.Context(), websocket.MessageBinary, []byte("quit")); err != nil {
		t.Fatal(err)
	}
	if _, exit := screen(t, again, ""); exit == nil {
		t.Error("its input did not stay open")
	}
}
