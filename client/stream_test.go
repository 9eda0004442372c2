package client_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"pinfold/client"
	"pinfold/sandbox"
)

// events writes an answer of server-sent events, as raw text.
func events(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

func ev(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

const resultJSON = `{"id":"run_1","status":"succeeded","exit_code":0,"cause":{"kind":"exited"},"stdout":"héllo\nworld\n","stderr":"warn"}`

func TestARunsOutputComesAsItIs(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "text/event-stream" {
			t.Errorf("Accept: %s", r.Header.Get("Accept"))
		}
		events(w, ": hello\n\n"+ev("start", `{"id":"run_1"}`)+
			"event:stdout\r\ndata:{\"offset\":0,\r\ndata: \"text\":\"h\u00e9\\u001b[2J\\n\"}\r\n\r\n"+": beat\n\n"+
			ev("stderr", `{"offset":0,"base64":"/wA="}`)+ev("future", `{"a":1}`)+ev("result", resultJSON))
	})
	var out, warn bytes.Buffer
	r, err := c.Run(t.Context(), sandbox.Spec{Code: "x"}, client.RunOptions{Stdout: &out, Stderr: &warn})
	if err != nil || r.ID != "run_1" || out.String() != "hé\x1b[2J\n" || warn.String() != "\xff\x00" {
		t.Fatalf("%+v %v %q %q", r, err, out.String(), warn.String())
	}
}

func TestAnErrorEventIsTheError(t *testing.T) {
	for _, data := range []string{`{"error":{"code":"busy","message":"m"}}`, `{"code":"busy","message":"m"}`} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { events(w, ev("start", `{}`)+ev("error", data)) })
		_, err := c.Run(t.Context(), sandbox.Spec{Code: "x"}, client.RunOptions{Stdout: io.Discard})
		if codeOf(err) != sandbox.CodeBusy {
			t.Fatal(err)
		}
	}
}

func TestABrokenRunIsAnErrorWithoutAKey(t *testing.T) {
	var n atomic.Int64
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		events(w, ev("stdout", `{"offset":0,"text":"hé"}`)+"event: resu")
	})
	_, err := c.Run(t.Context(), sandbox.Spec{Code: "x"}, client.RunOptions{Stdout: io.Discard})
	if codeOf(err) != sandbox.CodeDisconnected || !errors.Is(err, io.ErrUnexpectedEOF) || n.Load() != 1 {
		t.Fatalf("%v after %d requests", err, n.Load())
	}
}

func TestARunWithAKeySurvivesABrokenConnection(t *testing.T) {
	var n atomic.Int64
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") != "k" {
			t.Error("the key is missing")
		}
		switch n.Add(1) {
		case 1:
			events(w, ev("stdout", `{"offset":0,"text":"hé"}`))
		case 2:
			hijack(w, "")
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, resultJSON)
		}
	})
	var out, warn bytes.Buffer
	r, err := c.Run(t.Context(), sandbox.Spec{Code: "x"}, client.RunOptions{Stdout: &out, Stderr: &warn, IdempotencyKey: "k"})
	if err != nil || r.ID != "run_1" || out.String() != "héllo\nworld\n" || warn.String() != "warn" || n.Load() != 3 {
		t.Fatalf("%+v %v %q %q after %d requests", r, err, out.String(), warn.String(), n.Load())
	}
}

func TestAWriterThatFailsEndsTheRun(t *testing.T) {
	gone := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		events(w, ev("stdout", `{"offset":0,"text":"x"}`))
		<-r.Context().Done()
		close(gone)
	})
	_, err := c.Run(t.Context(), sandbox.Spec{Code: "x"}, client.RunOptions{Stdout: failing{}})
	if !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	<-gone
}

var errFull = errors.New("full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestASilentServerCountsAsBroken(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		events(w, ": hello\n\n")
		<-r.Context().Done()
	}, client.WithSilence(50*time.Millisecond))
	_, err := c.Run(t.Context(), sandbox.Spec{Code: "x"}, client.RunOptions{Stdout: io.Discard})
	if codeOf(err) != sandbox.CodeDisconnected || !strings.Contains(err.Error(), "too long") {
		t.Fatal(err)
	}
}

func TestWhatCannotTravelIsRefused(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("was asked") })
	for _, s := range []sandbox.Spec{
		{Code: "\xff"},
		{Code: "x", Stdin: "\xff"},
		{Code: "x", Mounts: []sandbox.Mount{{Host: "/", Guest: "/x"}}},
	} {
		if _, err := c.Run(t.Context(), s, client.RunOptions{}); codeOf(err) != sandbox.CodeSpecInvalid {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// process plays a process that has printed some bytes. Every connection breaks
// after a few events.
type process struct {
	out, warn string
	per       int // bytes in one event
	events    int // in one connection
	asked     []string
	stdin     bytes.Buffer
	closed    bool
	mu        sync.Mutex
}

func (p *process) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/stdin"):
		if r.Method == http.MethodDelete {
			p.closed = true
		} else {
			_, _ = p.stdin.ReadFrom(r.Body)
		}
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost:
		p.asked = append(p.asked, "start")
		p.stream(w, 0, 0, ev("start", `{"id":"prc_1","running":true}`))
	default:
		q := r.URL.Query()
		p.asked = append(p.asked, q.Get("stdout")+","+q.Get("stderr"))
		at, _ := strconv.Atoi(q.Get("stdout"))
		at2, _ := strconv.Atoi(q.Get("stderr"))
		p.stream(w, at, at2, "")
	}
}

func (p *process) stream(w http.ResponseWriter, at, at2 int, first string) {
	text := first
	for n := 0; ; n++ {
		name, from, all := "stdout", &at, p.out
		if at >= len(p.out) {
			name, from, all = "stderr", &at2, p.warn
		}
		if *from >= len(all) {
			break
		}
		if n == p.events {
			events(w, text+"event: stdout\ndata: {") // and the connection breaks
			return
		}
		end := min(len(all), *from+p.per)
		text += ev(name, fmt.Sprintf(`{"stream":%q,"offset":%d,"base64":%q}`, name, *from, base64.StdEncoding.EncodeToString([]byte(all[*from:end]))))
		*from = end
	}
	events(w, text+ev("exit", `{"id":"prc_1","status":"succeeded","exit_code":0}`))
}

func TestOutputResumesAtTheByte(t *testing.T) {
	p := &process{out: strings.Repeat("0123456789", 20), warn: strings.Repeat("abc", 10), per: 7, events: 3}
	c := serve(t, p.serve)
	var out, warn bytes.Buffer
	info, err := c.Sandbox("sbx_1").Exec(t.Context(), sandbox.Command{Shell: "x"}, client.ExecOptions{Stdout: &out, Stderr: &warn})
	if err != nil || info.ID != "prc_1" || info.ExitCode == nil || out.String() != p.out || warn.String() != p.warn {
		t.Fatalf("%+v %v %q %q", info, err, out.String(), warn.String())
	}
	if len(p.asked) < 10 || p.asked[0] != "start" || p.asked[1] != "21,0" || p.asked[2] != "42,0" {
		t.Fatalf("asked %q", p.asked)
	}
	out.Reset()
	if _, err := c.Sandbox("sbx_1").Process("prc_1").Output(t.Context(), client.OutputOptions{Stdout: &out, StdoutOffset: 195}); err != nil || out.String() != "56789" {
		t.Fatalf("%q %v", out.String(), err)
	}
}

func TestOutputThatOverlapsComesOnceAndAGapIsAnError(t *testing.T) {
	text := ev("stdout", `{"offset":0,"text":"abc"}`) + ev("stdout", `{"offset":1,"text":"bcd"}`) + ev("stdout", `{"offset":1,"text":"b"}`)
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { events(w, text+ev("stdout", `{"offset":9,"text":"x"}`)) })
	var out bytes.Buffer
	_, err := c.Sandbox("s").Process("p").Output(t.Context(), client.OutputOptions{Stdout: &out})
	if codeOf(err) != sandbox.CodeOffsetGone || out.String() != "abcd" {
		t.Fatalf("%q %v", out.String(), err)
	}
}

func TestOutputGivesUpWhenNothingComes(t *testing.T) {
	var n atomic.Int64
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { n.Add(1); hijack(w, "") })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := c.Sandbox("s").Process("p").Output(ctx, client.OutputOptions{Stdout: io.Discard})
	if codeOf(err) != sandbox.CodeDisconnected || n.Load() < 2 || n.Load() > 40 {
		t.Fatalf("%v after %d requests", err, n.Load())
	}
}

func TestStdinGoesInAndIsClosed(t *testing.T) {
	p := &process{per: 1, events: 1}
	release := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/processes") {
			events(w, ev("start", `{"id":"prc_1","running":true}`))
			<-release
			events(w, ev("exit", `{"id":"prc_1","exit_code":0}`))
			return
		}
		p.serve(w, r)
		if r.Method == http.MethodDelete {
			close(release)
		}
	})
	input := strings.Repeat("x", 700<<10)
	info, err := c.Sandbox("s").Exec(t.Context(), sandbox.Command{Shell: "cat"}, client.ExecOptions{Stdin: strings.NewReader(input)})
	if err != nil || info.ExitCode == nil || p.stdin.String() != input || !p.closed {
		t.Fatalf("%+v %v: %d bytes, closed %v", info, err, p.stdin.Len(), p.closed)
	}
}

func TestStdinThatCannotBeReadEndsTheWait(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		events(w, ev("start", `{"id":"prc_1","running":true}`))
		<-r.Context().Done()
	})
	_, err := c.Sandbox("s").Exec(t.Context(), sandbox.Command{Shell: "cat"}, client.ExecOptions{Stdin: unreadable{}})
	if !errors.Is(err, errFull) {
		t.Fatal(err)
	}
}

type unreadable struct{}

func (unreadable) Read([]byte) (int, error) { return 0, errFull }

func TestReadingAFileGoesOnWhereItWas(t *testing.T) {
	content := strings.Repeat("0123456789", 100)
	etag := atomic.Value{}
	etag.Store(`"1"`)
	var ranges []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		rng := r.Header.Get("Range")
		ranges = append(ranges, rng)
		at, status := 0, 200
		if rng != "" {
			at, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(rng, "bytes="), "-"))
			status = 206
		}
		if at >= len(content) {
			refuse(w, 416, "request_invalid")
			return
		}
		end := min(len(content), at+300)
		head := fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/octet-stream\r\nETag: %s\r\nContent-Length: %d\r\n\r\n", status, etag.Load(), len(content)-at)
		hijack(w, head+content[at:end])
	})
	var out bytes.Buffer
	n, err := c.Sandbox("s").ReadFile(t.Context(), "f", 0, -1, &out)
	if err != nil || n != 1000 || out.String() != content || fmt.Sprint(ranges) != "[ bytes=300- bytes=600- bytes=900-]" {
		t.Fatalf("%d %v %q", n, err, ranges)
	}
	changing := &changer{then: func() { etag.Store(`"2"`) }}
	if _, err := c.Sandbox("s").ReadFile(t.Context(), "f", 0, -1, changing); codeOf(err) != sandbox.CodeConflict {
		t.Fatal(err)
	}
	if n, err := c.Sandbox("s").ReadFile(t.Context(), "f", 1000, -1, io.Discard); n != 0 || err != nil {
		t.Fatalf("%d bytes at the end, %v", n, err)
	}
}

type changer struct{ then func() }

func (c *changer) Write(p []byte) (int, error) { c.then(); return len(p), nil }

func TestAnArchiveThatBreaksOffIsAnError(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		hijack(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
	})
	if _, err := c.Sandbox("s").Download(t.Context(), "d", client.FormatTar, io.Discard); codeOf(err) != sandbox.CodeDisconnected {
		t.Fatal(err)
	}
}

func TestATerminalComesBack(t *testing.T) {
	var asked []string
	typed := make(chan string, 8)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("offset"))
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		if r.URL.Query().Get("offset") == "0" {
			_ = conn.Write(r.Context(), websocket.MessageBinary, []byte("hello "))
			_, data, _ := conn.Read(r.Context())
			typed <- string(data)
			_ = conn.CloseNow()
			return
		}
		_ = conn.Write(r.Context(), websocket.MessageBinary, []byte("again"))
		_ = conn.Write(r.Context(), websocket.MessageText, []byte(`{"exit":{"id":"prc_1","exit_code":3}}`))
		_ = conn.Close(websocket.StatusNormalClosure, "")
	})
	term, err := c.Sandbox("s").Process("prc_1").Terminal(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	if _, err := term.Write([]byte("ls\r")); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(term)
	info, ended := term.Process()
	if err != nil || string(out) != "hello again" || !ended || *info.ExitCode != 3 || <-typed != "ls\r" || fmt.Sprint(asked) != "[0 6]" {
		t.Fatalf("%q %v %+v %q", out, err, info, asked)
	}
}

func TestAPortIsAnOrdinaryServer(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"))
	}, client.WithKey("pfk_k"))
	web := &http.Client{Transport: c.Sandbox("sbx_1").Transport(8000)}
	resp, err := web.Get("http://box/a%2Fb/c?d=e")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, _ := io.ReadAll(resp.Body); string(got) != "GET /v1/sandboxes/sbx_1/ports/8000/a%2Fb/c?d=e Bearer pfk_k" {
		t.Fatalf("%s", got)
	}
	if u, err := c.Sandbox("sbx_1").URL(8000); err != nil || !strings.HasSuffix(u, "/v1/sandboxes/sbx_1/ports/8000/") {
		t.Fatal(u, err)
	}
}

// Whoever runs a program learns that a person is asked first, also without its output.
func TestPendingRunIsSaid(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		events(w, ev("start", `{"id":"run_1"}`)+ev("pending_approval", `{"run":"run_1","rules":[{"rule":"r","ask":"why?"}]}`)+ev("result", resultJSON))
	})
	var asked []sandbox.Approval
	r, err := c.Run(t.Context(), sandbox.Spec{Code: "x"}, client.RunOptions{Pending: func(a sandbox.Approval) { asked = append(asked, a) }})
	if err != nil || r.ID != "run_1" || len(asked) != 1 || asked[0].Run != "run_1" || asked[0].Rules[0].Ask != "why?" {
		t.Fatalf("%+v %v %+v", r, err, asked)
	}
}
