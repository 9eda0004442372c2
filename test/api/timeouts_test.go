package api

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver/fake"
)

// finished waits until the server is done with a request on a route.
func (w *world) finished(route string) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(w.log.String(), `msg=request `) || !strings.Contains(w.log.String(), route) {
		if time.Now().After(deadline) {
			w.t.Fatalf("the server still holds a request on %s: %s", route, w.log)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// send opens a bare connection and writes to it.
func (w *world) send(text string) net.Conn {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4 << 10)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		w.t.Fatal(err)
	}
	return conn
}

// A client that announces a body and does not send it is answered and dropped.
func TestSilentBodiesAreDropped(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.api.ClientTimeout = 100 * time.Millisecond })
	box := w.create("alpha")
	for _, head := range []string{
		"POST /v1/runs HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n",
		"PUT " + box + "/files?path=x HTTP/1.1\r\nContent-Length: 1000\r\n",
		"PUT " + box + "/archive HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
	} {
		conn := w.send(head + "Host: localhost\r\nAuthorization: Bearer " + w.keys["alpha"] + "\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		b, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 400 ") || !strings.Contains(string(b), "request_invalid") {
			t.Errorf("%.30s: %v %.400s", head, err, b)
		}
	}
	// An error that came before the body does not wait for it either.
	conn := w.send("PUT /v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if b, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 404 ") {
		t.Errorf("%v %.400s", err, b)
	}
}

// Nobody waits for a body that is announced as too large.
func TestTooLargeIsSaidAtOnce(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.api.ClientTimeout = 10 * time.Minute })
	box := w.create("alpha")
	for _, line := range []string{"POST /v1/runs", "POST " + box + "/processes", "GET /v1/runs"} {
		conn := w.send(line + " HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 999999999999999\r\nHost: localhost\r\nAuthorization: Bearer " + w.keys["alpha"] + "\r\n\r\n{")
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 12)
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != "HTTP/1.1 413" {
			t.Errorf("%s: %q %v", line, b, err)
		}
		_ = conn.Close()
	}
}

// A client that asks for much and reads none of it is dropped.
func TestAnswersThatNobodyReadsAreDropped(t *testing.T) {
	large := strings.Repeat("x", 32<<20)
	w := newWorld(t, func(s *settings) {
		s.api.ClientTimeout = 300 * time.Millisecond
		s.script = always(fake.Script{Program: func(p *fake.Process) fake.Exit {
			_, _ = io.WriteString(p.Stdout, large)
			return fake.Exit{}
		}})
	})
	body := `{"language":"sh","code":"x","limits":{"output_bytes":67108864}}`
	w.send("POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 64\r\nAuthorization: Bearer " + w.keys["alpha"] + "\r\n\r\n" + body + " ")
	w.finished(`route="POST /v1/runs"`)
	box := w.create("alpha")
	w.must(200, request{key: "alpha", method: "PUT", path: box + "/files?path=x", body: []byte(large)})
	w.send("GET " + box + "/files?path=x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + w.keys["alpha"] + "\r\n\r\n")
	w.finished(`route="GET /v1/sandboxes/{id}/files"`)
}

// A body that drips, each byte in time, is dropped all the same: it would hold
// its memory for days.
func TestDrippingBodiesAreDropped(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.api.ClientTimeout = 200 * time.Millisecond })
	conn := w.send("POST /v1/runs HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\nHost: localhost\r\nAuthorization: Bearer " + w.keys["alpha"] + "\r\n\r\n")
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if _, err := io.WriteString(conn, " "); err != nil {
				return
			}
		}
	}()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 12)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "HTTP/1.1 400" {
		t.Fatalf("%q %v", b, err)
	}
}
