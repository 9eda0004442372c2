package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/api"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/admission"
	"pinfold/sandbox"
)

// holding are machines whose programs go on until they are ended, where their
// last argument is "hold".
func holding(driver.Plan) fake.Script {
	return fake.Script{Program: func(p *fake.Process) fake.Exit {
		if p.Args[len(p.Args)-1] != "hold" {
			return fake.Builtin(p)
		}
		_, _ = io.WriteString(p.Stdout, "heldé\n")
		<-p.Killed
		return fake.Exit{}
	}}
}

// held is a run that goes on until it is cancelled.
func held(metadata ...string) sandbox.Spec {
	s := sandbox.Spec{Language: "sh", Code: "x", Args: []string{"hold"}}
	if len(metadata) > 0 {
		s.Metadata = map[string]string{"name": metadata[0]}
	}
	return s
}

// detach starts a run of alpha's that goes on by itself.
func (w *world) detach(key string, spec sandbox.Spec) api.Run {
	w.t.Helper()
	var run api.Run
	a := w.must(202, request{key: key, method: "POST", path: "/v1/runs?wait=false", body: spec})
	a.json(w.t, &run)
	if a.header.Get("Location") != "/v1/runs/"+run.ID || run.Result != nil {
		w.t.Fatalf("%v %s", a.header, a.body)
	}
	w.t.Cleanup(func() { // the server waits for it otherwise
		if _, err := w.CancelRun(context.Background(), "alpha", run.ID); err != nil {
			w.t.Error(err)
		}
	})
	return run
}

// A run goes on when its caller is gone; it can be listed, followed, waited for
// and cancelled.
func TestDetachedRuns(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.engine.Capacity.Runs, s.script = 1, holding })
	first := w.detach("alpha", held("first"))
	second := w.detach("run", held("second"))
	events := newEventReader(w.open(request{key: "read", method: "GET", path: "/v1/runs/" + first.ID + "/events"}))
	var last event
	for seen := ""; seen != "heldé\n"; {
		last = events.next(t)
		if last.name == "stdout" {
			var o api.OutputEvent
			if err := json.Unmarshal([]byte(last.data), &o); err != nil || o.Offset != int64(len(seen)) {
				t.Fatalf("%+v %v", last, err)
			}
			seen += o.Text
		} else if last.name != "state" {
			t.Fatalf("%+v", last)
		}
	}
	if last.id != "7.0" {
		t.Errorf("the last event's id is %q", last.id)
	}
	for query, want := range map[string][]string{
		"state=running": {first.ID}, "state=queued": {second.ID}, "state=queued&state=running&order=oldest": {first.ID, second.ID}, "state=finished": nil,
		"metadata=name%3Dsecond": {second.ID}, "language=sh": {second.ID, first.ID}, "language=python": nil,
		"since=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339): nil, "before=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339): {second.ID, first.ID},
	} {
		var page api.List[api.Run]
		w.must(200, request{key: "read", method: "GET", path: "/v1/runs?" + query}).json(t, &page)
		var ids []string
		for _, r := range page.Items {
			ids = append(ids, r.ID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%s: %v, want %v", query, ids, want)
		}
	}
	var run api.Run
	w.must(200, request{key: "read", method: "GET", path: "/v1/runs/" + second.ID + "/wait?timeout_ms=1"}).json(t, &run)
	if run.State != sandbox.RunQueued || !run.StartedAt.IsZero() {
		t.Errorf("%+v", run)
	}
	for range 2 {
		w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs/" + first.ID + "/cancel"}).json(t, &run)
		if run.State != sandbox.RunFinished || run.Cause != sandbox.CauseCancelled || run.Result == nil || run.Result.Stdout != "heldé\n" || run.FinishedAt.IsZero() {
			t.Fatalf("%+v", run)
		}
	}
	rest := events.all(t)
	if n := len(rest); n != 1 || rest[0].name != "result" || !strings.Contains(rest[0].data, first.ID) {
		t.Errorf("%+v", rest)
	}
	// One that was cut off goes on where it was, also afterwards.
	again := newEventReader(w.open(request{key: "alpha", method: "GET", path: "/v1/runs/" + first.ID + "/events", header: map[string]string{"Last-Event-ID": "4.0"}})).all(t)
	if len(again) != 2 || again[0].data != `{"stream":"stdout","offset":4,"text":"é\n"}` || again[1].name != "result" {
		t.Errorf("%+v", again)
	}
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs/" + second.ID + "/cancel"})
}

// What is asked for wrongly starts nothing.
func TestDetachedRunsAreAskedForRightly(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.engine.Capacity = admission.Capacity{Runs: 1, Detached: 1}
		s.script = holding
	})
	if a := w.do(request{key: "alpha", method: "POST", path: "/v1/runs?wait=false", body: held(), header: map[string]string{"Accept": "text/event-stream"}}); a.status != 400 || a.code(t).Field != "wait" {
		t.Errorf("events: %d %s", a.status, a.body)
	}
	if a := w.do(request{key: "alpha", method: "POST", path: "/v1/runs?wait=no", body: held()}); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do(request{key: "alpha", method: "POST", path: "/v1/runs?wait=false", body: sandbox.Spec{Language: "nope", Code: "x"}}); a.status != 422 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, bad := range []string{"state=gone", "since=yesterday", "before=2026-01-31", "timeout_ms=1"} {
		if a := w.do(request{key: "alpha", method: "GET", path: "/v1/runs?" + bad}); a.status != 400 {
			t.Errorf("%s: %d", bad, a.status)
		}
	}
	keyed := request{key: "alpha", method: "POST", path: "/v1/runs?wait=false", body: held(), header: map[string]string{"Idempotency-Key": "k"}}
	var first, again api.Run
	w.must(202, keyed).json(t, &first)
	w.must(202, keyed).json(t, &again)
	if first.ID != again.ID {
		t.Errorf("%s, then %s", first.ID, again.ID)
	}
	if a := w.do(request{key: "alpha", method: "POST", path: "/v1/runs?wait=false", body: held()}); a.status != 429 || a.code(t).Code != sandbox.CodeQuotaExceeded || a.header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", a.status, a.body)
	}
	if a := w.do(request{key: "alpha", method: "GET", path: "/v1/runs/" + first.ID + "/events?stdout=1000"}); a.status != 410 || a.code(t).Code != sandbox.CodeOffsetGone {
		t.Errorf("a byte that nobody wrote: %d %s", a.status, a.body)
	}
	if a := w.do(request{key: "read", method: "POST", path: "/v1/runs/" + first.ID + "/cancel"}); a.status != 403 {
		t.Errorf("a key to read cancels: %d", a.status)
	}
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs/" + first.ID + "/cancel"})
}

// A run that was asked for with a key goes on when its caller is gone, and can
// be found and cancelled.
func TestRunsWithAKeyCanBeCancelled(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.script = holding })
	first := newEventReader(w.open(request{
		key: "alpha", method: "POST", path: "/v1/runs", body: held(), header: map[string]string{"Idempotency-Key": "k", "Accept": "text/event-stream"},
	}))
	start := first.next(t)
	_ = first.from.body.Close() // the caller is gone
	var page api.List[api.Run]
	w.must(200, request{key: "alpha", method: "GET", path: "/v1/runs?state=running"}).json(t, &page)
	if len(page.Items) != 1 || !strings.Contains(start.data, page.Items[0].ID) {
		t.Fatalf("%+v after %+v", page, start)
	}
	var run api.Run
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs/" + page.Items[0].ID + "/cancel"}).json(t, &run)
	if run.Cause != sandbox.CauseCancelled {
		t.Errorf("%+v", run)
	}
	var result sandbox.Result
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs", body: held(), header: map[string]string{"Idempotency-Key": "k"}}).json(t, &result)
	if result.ID != run.ID || result.Cause.Kind != sandbox.CauseCancelled {
		t.Errorf("%+v", result)
	}
}

// A client that asks again for a run with a key, and goes away, leaves nothing that
// waits for the end of the run.
func TestWaitingForARunEndsWithTheClient(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.script = holding })
	keyed := request{key: "alpha", method: "POST", path: "/v1/runs?wait=false", body: held(), header: map[string]string{"Idempotency-Key": "k"}}
	var run api.Run
	w.must(202, keyed).json(t, &run)
	answered := func() int { return strings.Count(w.log.String(), `method=POST route="POST /v1/runs"`) }
	before := answered()
	body, err := json.Marshal(held())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nIdempotency-Key: k\r\nAuthorization: Bearer %s\r\n\r\n%s", len(body), w.keys["alpha"], body)
	if err := errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	for soon := soon(t); answered() == before; time.Sleep(time.Millisecond) {
		if soon.Err() != nil {
			t.Fatal("the server still waits for the run")
		}
	}
	w.must(200, request{key: "alpha", method: "GET", path: "/v1/runs/" + run.ID}).json(t, &run)
	if run.State == sandbox.RunFinished {
		t.Errorf("the run has ended: %+v", run)
	}
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs/" + run.ID + "/cancel"})
}

// Whoever watches loses nothing of the server's: a stream ends with its key.
func TestWatchedRunsEndWithTheKey(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.script = holding })
	run := w.detach("alpha", held())
	id, secret, err := w.access.Create(t.Context(), "alpha", "short", []string{"read"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.keys["short"] = secret
	events := newEventReader(w.open(request{key: "short", method: "GET", path: "/v1/runs/" + run.ID + "/events"}))
	if e := events.next(t); e.name != "state" {
		t.Fatalf("%+v", e)
	}
	if _, err := w.access.Revoke(t.Context(), id.ID); err != nil {
		t.Fatal(err)
	}
	rest := events.all(t)
	if n := len(rest); n == 0 || rest[n-1].name != "error" || !strings.Contains(rest[n-1].data, sandbox.CodeUnauthorized) {
		t.Errorf("%+v", rest)
	}
	w.must(http.StatusOK, request{key: "alpha", method: "POST", path: "/v1/runs/" + run.ID + "/cancel"})
}
