package api

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"pinfold/internal/api"
	"pinfold/internal/audit"
	"pinfold/internal/template"
	"pinfold/internal/template/build"
	"pinfold/sandbox"
)

// operation is one operation of the OpenAPI document.
type operation struct {
	method, path string
	spec         struct {
		OperationID string           `json:"operationId"`
		RequestBody *json.RawMessage `json:"requestBody"`
		Scopes      []string         `json:"x-scopes"`
		Parameters  []struct {
			Name, In string
			Required bool
		}
	}
}

func (o operation) name() string { return o.method + " " + o.path }

// operations reads the document that the server gives.
func (w *world) operations() []operation {
	w.t.Helper()
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]json.RawMessage
	}
	w.must(200, request{method: "GET", path: "/openapi.json"}).json(w.t, &doc)
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		w.t.Fatalf("OpenAPI %s", doc.OpenAPI)
	}
	var all []operation
	for path, methods := range doc.Paths {
		for method, raw := range methods {
			o := operation{method: strings.ToUpper(method), path: path}
			if err := json.Unmarshal(raw, &o.spec); err != nil {
				w.t.Fatal(err)
			}
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.name(), b.name()) })
	if len(all) < 50 {
		w.t.Fatalf("%d operations: the document was not understood", len(all))
	}
	return all
}

// Every operation in the document works, once at least.
func TestEveryRouteWorks(t *testing.T) {
	var other *audit.Log
	w := newWorld(t, func(s *settings) {
		withAudit(t, s)
		other = withWatcher(t, s)
		s.api.Secrets = newVault(t)
		s.engine.Rules = askingAbout(t, "please ask")
		s.api.Build = func(_ context.Context, d *build.Declaration, o build.Options) (build.Result, error) {
			return build.Result{Template: template.Template{Name: d.Name}, Cached: !o.Fresh}, nil
		}
	})
	useRuns(w)
	useOpenStdin(w)
	box := w.create("alpha")
	useSandbox(w, box)
	useSnapshots(w, box)
	useProcesses(w, box)
	useFiles(w, box)
	usePorts(w, box)
	useLinks(w, box)
	useSecrets(w)
	useHost(w)
	useAudit(w)
	useWitness(w, other)
	useApprovals(w)
	w.must(200, request{key: "alpha", method: "DELETE", path: box})
	if a := w.must(200, request{key: "alpha", method: "DELETE", path: box}); !strings.Contains(a.body, `"ended"`) {
		t.Errorf("destroyed again: %s", a.body)
	}
	for _, o := range w.operations() {
		if !w.routes[o.name()] {
			t.Errorf("%s (%s) was not shown to work", o.name(), o.spec.OperationID)
		}
	}
}

func useRuns(w *world) {
	t := w.t
	t.Helper()
	var result sandbox.Result
	a := w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "x", Metadata: map[string]string{"a": "b=c"}}})
	a.json(t, &result)
	if result.Status != sandbox.StatusSucceeded || !strings.HasPrefix(result.ID, "run_") || result.Results == nil || !strings.HasPrefix(a.header.Get("X-Request-Id"), "req_") {
		t.Fatalf("%+v", result)
	}
	var run api.Run
	w.must(200, request{key: "read", method: "GET", path: "/v1/runs/" + result.ID}).json(t, &run)
	if run.ID != result.ID || run.Result == nil || run.Result.Status != result.Status {
		t.Fatalf("%+v", run)
	}
	if run.State != sandbox.RunFinished || run.FinishedAt.Before(run.CreatedAt) {
		t.Fatalf("%+v", run)
	}
	w.must(200, request{key: "read", method: "GET", path: "/v1/runs/" + result.ID + "/events"})
	w.must(200, request{key: "read", method: "GET", path: "/v1/runs/" + result.ID + "/wait"}).json(t, &run)
	w.must(200, request{key: "run", method: "POST", path: "/v1/runs/" + result.ID + "/cancel"}).json(t, &run)
	if run.Status != sandbox.StatusSucceeded {
		t.Fatalf("%+v", run)
	}
	var again sandbox.Result
	w.must(200, request{key: "run", method: "POST", path: "/v1/runs/" + result.ID + "/replay"}).json(t, &again)
	if again.Replay == nil || !again.Replay.Same || again.Replay.Of != result.ID {
		t.Fatalf("%+v", again.Replay)
	}
	var runs api.List[api.Run]
	w.must(200, request{key: "run", method: "GET", path: "/v1/runs?metadata=a%3Db%3Dc&status=succeeded&limit=1&order=oldest"}).json(t, &runs)
	if len(runs.Items) != 1 || runs.Items[0].ID != result.ID {
		t.Fatalf("%+v", runs)
	}
	useScan(w)
}

// useScan looks at programs: by itself, and of a run.
func useScan(w *world) {
	t := w.t
	t.Helper()
	var seen sandbox.ScanReport
	w.must(200, request{key: "run", method: "POST", path: "/v1/scan", body: sandbox.ScanRequest{Language: "sh", Code: "rm -rf /", File: "a.sh"}}).json(t, &seen)
	if seen.Worst != sandbox.SeverityDanger || len(seen.Findings) == 0 || seen.Findings[0].File != "a.sh" {
		t.Fatalf("%+v", seen)
	}
	w.must(422, request{key: "run", method: "POST", path: "/v1/scan", body: sandbox.ScanRequest{Language: "klingon", Code: "x"}})
	var result sandbox.Result
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "rm -rf /", Scan: true}}).json(t, &result)
	if len(result.Findings) != len(seen.Findings) {
		t.Fatalf("%+v", result.Findings)
	}
	if a := w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "rm -rf /"}}); strings.Contains(a.body, "findings") {
		t.Fatalf("unasked: %s", a.body)
	}
}

// useOpenStdin runs a program that reads until the end of its stdin.
func useOpenStdin(w *world) []event {
	t := w.t
	t.Helper()
	events := newEventReader(w.open(request{
		key: "alpha", method: "POST", path: "/v1/runs?stdin=true", body: sandbox.Spec{Language: "sh", Code: "x"}, header: map[string]string{"Accept": "text/event-stream"},
	}))
	var started api.RunEvent
	if first := events.next(t); json.Unmarshal([]byte(first.data), &started) != nil {
		t.Fatalf("%+v", first)
	}
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs/" + started.ID + "/stdin", body: []byte("in")})
	w.must(204, request{key: "alpha", method: "DELETE", path: "/v1/runs/" + started.ID + "/stdin"})
	return events.all(t)
}

func useSnapshots(w *world, box string) {
	t := w.t
	t.Helper()
	w.must(200, request{key: "alpha", method: "PUT", path: box + "/files?path=kept", body: []byte("secret")})
	var made sandbox.Snapshot
	a := w.must(201, request{key: "alpha", method: "POST", path: box + "/snapshots", body: sandbox.TakeSnapshot{Name: "first"}})
	a.json(t, &made)
	if a.header.Get("Location") != "/v1/snapshots/"+made.ID || made.Name != "first" || !slices.Equal(made.Holds, []string{sandbox.SnapshotFiles}) || made.Bytes == 0 || made.Files == 0 {
		t.Fatalf("%+v", made)
	}
	var all api.List[sandbox.Snapshot]
	w.must(200, request{key: "read", method: "GET", path: "/v1/snapshots"}).json(t, &all)
	if len(all.Items) != 1 || all.Items[0].ID != made.ID {
		t.Fatalf("%+v", all)
	}
	var again sandbox.Snapshot
	w.must(200, request{key: "read", method: "GET", path: "/v1/snapshots/" + made.ID}).json(t, &again)
	if !reflect.DeepEqual(again, made) {
		t.Fatalf("%+v, then %+v", made, again)
	}
	var forks api.List[sandbox.Info]
	w.must(201, request{key: "alpha", method: "POST", path: box + "/fork", body: sandbox.ForkSandbox{Count: 2}}).json(t, &forks)
	var of sandbox.Info
	w.must(201, request{key: "alpha", method: "POST", path: "/v1/sandboxes", body: sandbox.Create{Snapshot: made.ID}}).json(t, &of)
	if len(forks.Items) != 2 || of.Snapshot != made.ID || "/v1/sandboxes/"+forks.Items[0].ForkOf != box {
		t.Fatalf("%+v, %+v", forks, of)
	}
	for _, id := range []string{forks.Items[0].ID, forks.Items[1].ID, of.ID} {
		if a := w.must(200, request{key: "alpha", method: "GET", path: "/v1/sandboxes/" + id + "/files?path=kept"}); a.body != "secret" {
			t.Errorf("%s holds %q", id, a.body)
		}
		w.must(200, request{key: "alpha", method: "DELETE", path: "/v1/sandboxes/" + id})
	}
	w.must(204, request{key: "alpha", method: "DELETE", path: "/v1/snapshots/" + made.ID})
	w.must(404, request{key: "alpha", method: "GET", path: "/v1/snapshots/" + made.ID})
	w.must(404, request{key: "alpha", method: "POST", path: "/v1/sandboxes", body: sandbox.Create{Snapshot: made.ID}})
}

func useSandbox(w *world, box string) {
	t := w.t
	t.Helper()
	var info sandbox.Info
	w.must(200, request{key: "read", method: "GET", path: box}).json(t, &info)
	if info.State != sandbox.StateRunning {
		t.Fatalf("%+v", info)
	}
	var later sandbox.Info
	w.must(200, request{key: "alpha", method: "POST", path: box + "/extend", body: map[string]any{"ttl_ms": 3600_000}}).json(t, &later)
	if !later.ExpiresAt.After(info.ExpiresAt) {
		t.Fatalf("%v, then %v", info.ExpiresAt, later.ExpiresAt)
	}
	w.must(200, request{key: "alpha", method: "PATCH", path: box + "/network", body: map[string]any{"network": "none"}}).json(t, &later)
	var asks sandbox.Info
	w.must(201, request{key: "alpha", method: "POST", path: "/v1/sandboxes", body: map[string]any{"network": "ask"}}).json(t, &asks)
	follow := newEventReader(w.open(request{key: "read", method: "GET", path: "/v1/sandboxes/" + asks.ID + "/network/events"}))
	if e := follow.next(t); e.name != "network" || !strings.HasPrefix(e.data, `{"endpoints":[]`) {
		t.Fatalf("%+v", e)
	}
	w.must(200, request{key: "alpha", method: "DELETE", path: "/v1/sandboxes/" + asks.ID})
	if e := follow.next(t); e.name != "end" {
		t.Fatalf("%+v", e)
	}
	w.must(409, request{key: "read", method: "GET", path: box + "/network/events"})
	w.must(200, request{key: "alpha", method: "POST", path: box + "/pause"}).json(t, &later)
	if later.State != sandbox.StatePaused {
		t.Fatalf("paused: %+v", later)
	}
	w.must(409, request{key: "alpha", method: "GET", path: box + "/files/stat?path=x"})
	w.must(200, request{key: "alpha", method: "POST", path: box + "/resume"}).json(t, &later)
	if later.State != sandbox.StateRunning {
		t.Fatalf("resumed: %+v", later)
	}
	other := w.create("alpha")
	seen := map[string]bool{}
	for cursor := ""; ; {
		var page api.List[sandbox.Info]
		w.must(200, request{key: "alpha", method: "GET", path: "/v1/sandboxes?state=running&limit=1&cursor=" + cursor}).json(t, &page)
		for _, i := range page.Items {
			seen["/v1/sandboxes/"+i.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(seen) != 2 || !seen[box] || !seen[other] {
		t.Fatalf("%v", seen)
	}
}

func useProcesses(w *world, box string) {
	t := w.t
	t.Helper()
	var p sandbox.Process
	w.must(200, request{key: "alpha", method: "POST", path: box + "/processes?wait=true", body: shell("echo hello; exit 3")}).json(t, &p)
	if p.Running || p.Stdout != "hello\n" || p.ExitCode == nil || *p.ExitCode != 3 {
		t.Fatalf("%+v", p)
	}
	cat := w.start("alpha", box, sandbox.Command{Args: []string{"cat"}, Stdin: true})
	if a := w.must(200, request{key: "alpha", method: "POST", path: cat + "/stdin", body: []byte("in\xff")}); a.body != "{\"written\":3}\n" {
		t.Fatalf("%s", a.body)
	}
	w.must(204, request{key: "alpha", method: "DELETE", path: cat + "/stdin"})
	w.must(200, request{key: "read", method: "GET", path: cat + "/wait?timeout_ms=20000"}).json(t, &p)
	if p.Running || p.Status != sandbox.StatusSucceeded {
		t.Fatalf("%+v", p)
	}
	if a := w.must(200, request{key: "read", method: "GET", path: cat + "/stdout?offset=1"}); a.body != "n\xff" || a.header.Get("X-Output-Offset") != "1" {
		t.Fatalf("%q %v", a.body, a.header)
	}
	if a := w.must(200, request{key: "read", method: "GET", path: cat + "/stderr"}); a.body != "" {
		t.Fatalf("%q", a.body)
	}
	w.must(200, request{key: "alpha", method: "GET", path: cat + "/output"})
	var list api.List[sandbox.Process]
	w.must(200, request{key: "alpha", method: "GET", path: box + "/processes"}).json(t, &list)
	if len(list.Items) != 2 {
		t.Fatalf("%+v", list)
	}
	sleep := w.start("alpha", box, sandbox.Command{Args: []string{"sleep"}, Terminal: &sandbox.Terminal{Cols: 80, Rows: 24}})
	w.must(200, request{key: "alpha", method: "GET", path: sleep + "/wait?timeout_ms=1"}).json(t, &p)
	if !p.Running {
		t.Fatalf("%+v", p)
	}
	w.must(204, request{key: "alpha", method: "POST", path: sleep + "/resize", body: sandbox.Terminal{Cols: 100, Rows: 30}})
	conn := w.dial("alpha", sleep+"/terminal")
	_ = conn.CloseNow()
	w.must(204, request{key: "alpha", method: "POST", path: sleep + "/signal", body: map[string]any{"signal": "TERM"}})
	w.must(200, request{key: "alpha", method: "GET", path: sleep + "/wait"})
	w.must(200, request{key: "alpha", method: "GET", path: sleep}).json(t, &p)
	if p.Running || p.Signal != "SIGTERM" {
		t.Fatalf("%+v", p)
	}
}

// dial opens a WebSocket.
func (w *world) dial(key, path string) *websocket.Conn {
	w.t.Helper()
	conn, status, err := w.dialAs(path, "", http.Header{"Authorization": {"Bearer " + w.keys[key]}})
	if err != nil {
		w.t.Fatalf("%s: %d %v", path, status, err)
	}
	return conn
}

func (w *world) dialAs(path, host string, header http.Header) (conn *websocket.Conn, status int, err error) {
	w.t.Helper()
	conn, resp, err := websocket.Dial(w.t.Context(), w.url+path, &websocket.DialOptions{ //nolint:bodyclose // Dial closes it
		HTTPHeader: header, Host: host, HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	})
	if resp != nil {
		status = resp.StatusCode
	}
	if err == nil {
		w.t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, status, err
}

func useFiles(w *world, box string) {
	t := w.t
	t.Helper()
	var info sandbox.FileInfo
	w.must(200, request{key: "alpha", method: "PUT", path: box + "/files?path=d/a.bin&mode=600", body: []byte("0123456789")}).json(t, &info)
	if info.Path != "/home/user/d/a.bin" || info.Size != 10 || info.Mode != 0o600 {
		t.Fatalf("%+v", info)
	}
	if a := w.must(200, request{key: "read", method: "GET", path: box + "/files?path=d/a.bin"}); a.body != "0123456789" {
		t.Fatalf("%q", a.body)
	}
	w.must(200, request{key: "read", method: "GET", path: box + "/files/stat?path=d/a.bin"})
	w.must(204, request{key: "alpha", method: "POST", path: box + "/files/mkdir", body: map[string]any{"path": "e", "mode": 0o700}})
	w.must(204, request{key: "alpha", method: "POST", path: box + "/files/move", body: map[string]any{"from": "d/a.bin", "to": "e/b.bin"}})
	if a := w.must(200, request{key: "read", method: "GET", path: box + "/files/list?depth=3&limit=100"}); !strings.Contains(a.body, "/home/user/e/b.bin") || !strings.Contains(a.body, `"more":false`) {
		t.Fatalf("%s", a.body)
	}
	if a := w.must(200, request{key: "read", method: "GET", path: box + "/changes"}); !strings.Contains(a.body, "/home/user/e/b.bin") {
		t.Fatalf("%s", a.body)
	}
	packed := w.must(200, request{key: "read", method: "GET", path: box + "/archive?path=e"}).body
	w.must(200, request{key: "alpha", method: "PUT", path: box + "/archive?path=f", body: []byte(packed)})
	events := newEventReader(w.open(request{key: "read", method: "GET", path: box + "/files/watch?recursive=true"}))
	if e := events.next(t); e.name != "ready" {
		t.Fatalf("%+v", e)
	}
	w.must(204, request{key: "alpha", method: "DELETE", path: box + "/files?path=e"})
	if e := events.next(t); e.name != "change" || !strings.Contains(e.data, "/home/user/e") {
		t.Fatalf("%+v", e)
	}
	if a := w.do(request{key: "alpha", method: "GET", path: box + "/files?path=e/b.bin"}); a.status != 404 || a.code(t).Code != sandbox.CodeFileNotFound {
		t.Fatalf("%+v", a)
	}
}

func usePorts(w *world, box string) {
	w.t.Helper()
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"} {
		a := w.must(200, request{key: "alpha", method: method, path: box + "/ports/80/a%2Fb//c?x=%zz&y", body: []byte("sent")})
		if want := method + " /a%2Fb//c?x=%zz&y\nsent"; method != "HEAD" && a.body != want {
			w.t.Fatalf("%q, want %q", a.body, want)
		}
	}
}

func useLinks(w *world, box string) {
	w.t.Helper()
	var l api.Link
	w.must(201, request{key: "sandbox", method: "POST", path: box + "/links", body: map[string]any{"port": 80}}).json(w.t, &l)
	if a := w.must(200, request{method: "GET", path: l.Path + "a/b?c"}); a.body != "GET /a/b?c\n" || l.URL != w.url+l.Path || l.Port != 80 {
		w.t.Fatalf("%+v: %q", l, a.body)
	}
	conn := w.dial("sandbox", box+"/tunnel/80")
	_ = conn.CloseNow()
}

func useHost(w *world) {
	t := w.t
	t.Helper()
	for _, path := range []string{"/v1/languages", "/v1/templates", "/v1/drivers", "/v1/manifest", "/v1/usage?from=2026-01-01&to=2026-12-31", "/v1/whoami"} {
		w.must(200, request{key: "read", method: "GET", path: path})
	}
	if a := w.must(200, request{key: "alpha", method: "GET", path: "/v1/whoami"}); !strings.Contains(a.body, `"tenant":"alpha"`) {
		t.Fatalf("%s", a.body)
	}
	var built sandbox.BuiltTemplate
	w.must(200, request{key: "admin", method: "POST", path: "/v1/templates?fresh=true", body: map[string]any{"name": "tools", "base": map[string]any{"template": "other"}, "files": []any{}}}).json(t, &built)
	if built.Name != "tools" || built.Cached {
		t.Fatalf("%+v", built)
	}
	var pool sandbox.PoolInfo
	w.must(200, request{key: "admin", method: "PUT", path: "/v1/pools/small", body: sandbox.PoolSpec{Min: 1, Max: 2}}).json(t, &pool)
	if pool.Name != "small" || pool.Min != 1 {
		t.Fatalf("%+v", pool)
	}
	w.must(200, request{key: "admin", method: "GET", path: "/v1/pools"})
	w.must(204, request{key: "admin", method: "DELETE", path: "/v1/pools/small"})
	w.must(200, request{key: "admin", method: "GET", path: "/metrics"})
	w.must(200, request{method: "GET", path: "/healthz"})
	w.must(200, request{method: "GET", path: "/readyz"})
	if a := w.must(302, request{method: "GET", path: "/"}); a.header.Get("Location") != "docs" || a.body != "" {
		t.Errorf("/ leads to %v", a.header)
	}
	if a := w.must(200, request{method: "GET", path: "/docs"}); strings.Contains(a.body, "<script") || strings.Contains(a.body, "http://") || !strings.Contains(a.body, "/v1/runs") {
		t.Error("the page is not what it should be")
	}
}
