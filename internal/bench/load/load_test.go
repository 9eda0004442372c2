package load

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// do has the client do a task as a program would.
func do(t *testing.T, task Task) Seen {
	t.Helper()
	task.Wait = time.Minute
	text, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if status := Main([]string{string(text)}, &out, &errs); status != 0 {
		t.Fatalf("%d: %s", status, &errs)
	}
	var seen Seen
	if err := json.Unmarshal(out.Bytes(), &seen); err != nil {
		t.Fatal(err)
	}
	return seen
}

// Every request of a task is sent and measured, over TLS that its authority signed for.
func TestConstantRate(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ten bytes.") }))
	defer srv.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	for _, each := range []bool{false, true} {
		seen := do(t, Task{URL: "https://example.com/", Dial: srv.Listener.Addr().String(), CA: ca, Rate: 1000, Count: 50, New: each})
		if len(seen.Latencies) != 50 || seen.Bytes != 500 {
			t.Errorf("new %v: %d latencies, %d bytes", each, len(seen.Latencies), seen.Bytes)
		}
	}
	var errs bytes.Buffer
	if Main([]string{`{"url": "https://example.com/", "dial": "` + srv.Listener.Addr().String() + `", "wait": 60000000000}`}, io.Discard, &errs) == 0 {
		t.Error("it trusts anybody")
	}
}

// A server that answers nobody for a while makes those late that were to be sent meanwhile,
// too, also where no connection was left to send them: each by what was left of the while.
func TestLateCountsForThoseBehind(t *testing.T) {
	const stall, rate, count = 500 * time.Millisecond, 500, 200
	var mu sync.Mutex
	var asked int
	var open time.Time
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		if asked++; asked == Warmup+1 {
			open = time.Now().Add(stall)
		}
		until := time.Until(open)
		mu.Unlock()
		time.Sleep(until)
	}))
	defer srv.Close()
	seen := do(t, Task{URL: srv.URL, Rate: rate, Count: count})
	for i, took := range seen.Latencies {
		if least := stall - time.Duration(i)*time.Second/rate; took < least {
			t.Fatalf("request %d took %v; it was to be sent %v before the first answer", i, took, least)
		}
	}
}

// One request with a long answer.
func TestStream(t *testing.T) {
	const size = 3 << 20
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }))
	defer srv.Close()
	if seen := do(t, Task{URL: srv.URL}); len(seen.Latencies) != 1 || seen.Bytes != size {
		t.Errorf("%+v", seen)
	}
}
