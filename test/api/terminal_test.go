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

var size = &sandbox.Terminal{Cols: 80, Rows: 24}

// screen reads a terminal until what has come ends so, or the exit.
func screen(t *testing.T, conn *websocket.Conn, until string) (text string, exit *sandbox.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for until == "" || !strings.HasSuffix(text, until) {
		kind, frame, err := conn.Read(ctx)
		if err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		if kind == websocket.MessageBinary {
			text += string(frame)
			continue
		}
		var last struct{ Exit *sandbox.Process }
		if err := json.Unmarshal(frame, &last); err != nil || last.Exit == nil {
			t.Fatalf("%s", frame)
		}
		return text, last.Exit
	}
	return text, nil
}

// echoing is a program whose terminal shows what is typed.
func echoing(p *fake.Process) fake.Exit {
	b := make([]byte, 1000)
	for {
		n, err := p.Stdin.Read(b)
		if err != nil || strings.Contains(string(b[:n]), "quit") {
			return fake.Exit{Code: 5}
		}
	}
}

func TestTerminal(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.script = always(fake.Script{Program: echoing}) })
	box := w.create("alpha")
	path := w.start("alpha", box, sandbox.Command{Args: []string{"sh"}, Terminal: size})
	conn := w.dial("alpha", path+"/terminal")
	write := func(c *websocket.Conn, kind websocket.MessageType, text string) {
		t.Helper()
		if err := c.Write(t.Context(), kind, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write(conn, websocket.MessageBinary, "first\xff")
	if text, _ := screen(t, conn, "\xff"); text != "first\xff" {
		t.Fatalf("%q", text)
	}
	write(conn, websocket.MessageText, `{"resize": {"cols": 100, "rows": 50}}`)
	_ = conn.CloseNow() // cut off
	again := w.dial("alpha", path+"/terminal?offset=3")
	write(again, websocket.MessageBinary, " second")
	if text, _ := screen(t, again, "second"); text != "st\xff second" {
		t.Fatalf("%q", text)
	}
	// Two at one terminal see the same.
	other := w.dial("alpha", path+"/terminal?offset=0")
	if text, _ := screen(t, other, "second"); text != "first\xff second" {
		t.Fatalf("%q", text)
	}
	write(again, websocket.MessageBinary, "quit")
	for _, c := range []*websocket.Conn{again, other} {
		if _, exit := screen(t, c, ""); exit == nil || exit.ExitCode == nil || *exit.ExitCode != 5 {
			t.Fatalf("%+v", exit)
		}
		if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("closed with %v", err)
		}
	}
	// After the end, what was kept and the exit are still there.
	late := w.dial("alpha", path+"/terminal")
	if text, exit := screen(t, late, ""); !strings.HasPrefix(text, "first") || exit == nil {
		t.Fatalf("%q %+v", text, exit)
	}
}

func TestTerminalsRefuseNonsense(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.script = always(fake.Script{Program: echoing}) })
	box := w.create("alpha")
	path := w.start("alpha", box, sandbox.Command{Args: []string{"sh"}, Terminal: size})
	for _, frame := range []string{`hello`, `{"resize": {"cols": 0, "rows": 1}}`, `{"resize": {"cols": 5000, "rows": 1}}`, `{"resise": {}}`, `{"resize": 1, "resize": 2}`, strings.Repeat("[", 10000)} {
		conn := w.dial("alpha", path+"/terminal")
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(frame)); err != nil {
			t.Fatal(err)
		}
		_, answer, err := conn.Read(t.Context())
		if err != nil || !strings.Contains(string(answer), `{"error":{"code":`) {
			t.Errorf("%.40s: %v %s", frame, err, answer)
		}
		if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("%.40s: closed with %v", frame, err)
		}
	}
	large := w.dial("alpha", path+"/terminal")
	_ = large.Write(t.Context(), websocket.MessageBinary, make([]byte, 1<<20)) // may be cut off in the middle
	if _, _, err := large.Read(t.Context()); err == nil {
		t.Error("a frame of 1 MiB was taken")
	}
	if a := w.do(request{key: "alpha", method: "GET", path: path + "/terminal"}); a.status != http.StatusUpgradeRequired || a.code(t).Code != sandbox.CodeRequestInvalid {
		t.Errorf("no WebSocket: %d %s", a.status, a.body)
	}
	plain := w.start("alpha", box, sandbox.Command{Args: []string{"sh"}, Stdin: true})
	if a := w.do(request{key: "alpha", method: "GET", path: plain + "/terminal"}); a.status != 409 {
		t.Errorf("no terminal: %d %s", a.status, a.body)
	}
	if a := w.do(request{key: "alpha", method: "POST", path: plain + "/resize", body: size}); a.status != 409 {
		t.Errorf("resized what has no terminal: %d %s", a.status, a.body)
	}
	var p sandbox.Process
	w.must(200, request{key: "alpha", method: "GET", path: path}).json(t, &p)
	if !p.Running {
		t.Error("a bad client ended the process")
	}
}

// A client that is silently gone is noticed by pings that nobody answers.
func TestTerminalsNoticeThatNobodyIsThere(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.api.Heartbeat, s.api.ClientTimeout = 20*time.Millisecond, 100*time.Millisecond
		s.script = always(fake.Script{Program: echoing})
	})
	box := w.create("alpha")
	path := w.start("alpha", box, sandbox.Command{Args: []string{"sh"}, Terminal: size})
	silent := w.dial("alpha", path+"/terminal") // does not read, so it answers no ping
	deadline := time.Now().Add(time.Minute)
	for strings.Count(w.log.String(), "/terminal") == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the server still waits")
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = silent.CloseNow()
	w.must(200, request{key: "alpha", method: "POST", path: path + "/stdin", body: []byte("quit")})
	w.must(200, request{key: "alpha", method: "GET", path: path + "/wait"})
}
