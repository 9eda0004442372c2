package api

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/api"
	"pinfold/sandbox"
)

// strangers are ids of the right form that belong to nobody.
func strangers() objects {
	nobody := strings.Repeat("a", 26)
	return objects{"id": "sbx_" + nobody, "process": "prc_" + nobody, "run": "run_" + nobody, "port": "80", "path": "", "name": "small", "snapshot": "snp_" + nobody}
}

// validBody is a body that the operation would accept.
func validBody(o operation) any {
	bodies := map[string]any{
		"createRun": sandbox.Spec{Language: "sh", Code: "x"}, "createSandbox": map[string]any{}, "extendSandbox": map[string]any{"ttl_ms": 60_000},
		"startProcess": shell("true"), "signalProcess": map[string]any{"signal": "KILL"}, "resizeProcess": sandbox.Terminal{Cols: 8, Rows: 8},
		"createLink": map[string]any{"port": 80}, "makeDirectory": map[string]any{"path": "mine"}, "moveFile": map[string]any{"from": "x", "to": "y"}, "setPool": sandbox.PoolSpec{},
	}
	if b, ok := bodies[o.spec.OperationID]; ok {
		return b
	}
	return bodyFor(o)
}

// PT-08: every operation of the document, on every object of another tenant,
// answers as it does for an object that never was, to the last byte.
func TestNothingOfAnotherTenantIsVisible(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.script = holding })
	mine, nobodys := w.living("alpha"), strangers()
	mine["run"] = w.detach("alpha", held()).ID // one that could be cancelled
	for w.runState("alpha", mine["run"]) != sandbox.RunRunning {
		time.Sleep(time.Millisecond)
	}
	before := w.inventory("alpha", mine)
	n := 0
	for _, o := range w.operations() {
		for _, kind := range []string{"id", "process", "run", "snapshot"} {
			if !strings.Contains(o.path, "{"+kind+"}") {
				continue
			}
			n++
			foreign := maps.Clone(nobodys)
			foreign[kind] = mine[kind]
			if kind == "process" { // beta's own sandbox, alpha's process
				foreign["id"] = strings.TrimPrefix(w.create("beta"), "/v1/sandboxes/")
			}
			unknown := maps.Clone(foreign)
			unknown[kind] = nobodys[kind]
			header := map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
			if o.spec.OperationID != "attachTerminal" {
				header = nil
			}
			a := w.do(request{key: "beta", method: o.method, path: o.with(foreign), body: validBody(o), header: header})
			b := w.do(request{key: "beta", method: o.method, path: o.with(unknown), body: validBody(o), header: header})
			if a.status != 404 || a.status != b.status || a.body != b.body {
				t.Errorf("%s on alpha's %s: %d %s\nand on nobody's: %d %s", o.name(), kind, a.status, a.body, b.status, b.body)
			}
			for _, h := range []map[string][]string{a.header, b.header} {
				delete(h, "X-Request-Id")
				delete(h, "Date")
			}
			if !maps.EqualFunc(a.header, b.header, slices.Equal) {
				t.Errorf("%s: headers differ: %v, %v", o.name(), a.header, b.header)
			}
			if strings.Contains(a.body, mine[kind]) || strings.Contains(a.body, "secret") {
				t.Errorf("%s says something of it: %s", o.name(), a.body)
			}
		}
	}
	for _, id := range []string{mine["snapshot"], nobodys["snapshot"]} {
		if a := w.do(request{key: "beta", method: "POST", path: "/v1/sandboxes", body: map[string]any{"snapshot": id}}); a.status != 404 || strings.Contains(a.body, id) {
			t.Errorf("a sandbox of alpha's snapshot: %d %s", a.status, a.body)
		}
	}
	if n < 30 {
		t.Fatalf("%d operations were tried", n)
	}
	if after := w.inventory("alpha", mine); after != before {
		t.Errorf("alpha's objects changed:\n%s\nthen\n%s", before, after)
	}
}

func (w *world) runState(key, id string) sandbox.RunState {
	w.t.Helper()
	var run api.Run
	w.must(200, request{key: key, method: "GET", path: "/v1/runs/" + id}).json(w.t, &run)
	return run.State
}

// inventory is everything of an owner's objects that another tenant could have changed.
func (w *world) inventory(key string, ids objects) string {
	w.t.Helper()
	box := "/v1/sandboxes/" + ids["id"]
	var info sandbox.Info
	w.must(200, request{key: key, method: "GET", path: box}).json(w.t, &info)
	files := w.must(200, request{key: key, method: "GET", path: box + "/files/list?depth=5"}).body
	var p sandbox.Process
	w.must(200, request{key: key, method: "GET", path: box + "/processes/" + ids["process"]}).json(w.t, &p)
	snapshot := w.must(200, request{key: key, method: "GET", path: "/v1/snapshots/" + ids["snapshot"]}).body
	return strings.Join([]string{snapshot, string(w.runState(key, ids["run"])), string(info.State), info.ExpiresAt.String(), files, p.StartedAt.String(), string(p.Status)}, "\n")
}

// Operations without an object show their caller's own things only.
func TestListsShowOnlyOnesOwn(t *testing.T) {
	w := newWorld(t, func(s *settings) { withAudit(t, s) })
	mine := w.living("alpha")
	theirs := w.living("beta")
	for _, o := range w.operations() {
		if strings.Contains(o.path, "{") || o.method != "GET" || !strings.HasPrefix(o.path, "/v1/") || slices.Contains(o.spec.Scopes, "admin") {
			continue
		}
		a := w.must(200, request{key: "beta", method: "GET", path: o.path})
		for kind, id := range mine {
			if len(id) > 20 && strings.Contains(a.body, id) {
				t.Errorf("%s shows beta alpha's %s", o.name(), kind)
			}
		}
		if strings.Contains(a.body, `"alpha"`) {
			t.Errorf("%s names alpha: %s", o.name(), a.body)
		}
		switch o.path {
		case "/v1/runs", "/v1/sandboxes", "/v1/audit":
			if !strings.Contains(a.body, theirs["run"]) && !strings.Contains(a.body, theirs["id"]) {
				t.Errorf("%s does not show one's own: %s", o.name(), a.body)
			}
		}
	}
	// A cursor of alpha's list is worth nothing to beta.
	w.create("alpha")
	var page struct{ Next string }
	w.must(200, request{key: "alpha", method: "GET", path: "/v1/sandboxes?limit=1"}).json(t, &page)
	if page.Next == "" {
		t.Fatal("no cursor")
	}
	if a := w.do(request{key: "beta", method: "GET", path: "/v1/sandboxes?cursor=" + page.Next}); strings.Contains(a.body, mine["id"]) {
		t.Errorf("a foreign cursor shows foreign objects: %s", a.body)
	}
	// The same idempotency key is another one for another tenant.
	run := request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "x"}, header: map[string]string{"Idempotency-Key": "k"}}
	var a, b sandbox.Result
	w.must(200, run).json(t, &a)
	run.key = "beta"
	w.must(200, run).json(t, &b)
	if a.ID == b.ID {
		t.Error("beta got alpha's result")
	}
}

// Every operation wants a key that has one of its scopes.
func TestScopes(t *testing.T) {
	w := newWorld(t, nil)
	ids := w.living("alpha")
	public := 0
	for _, o := range w.operations() {
		if len(o.spec.Scopes) == 0 {
			public++
			want := 200
			if o.path == "/v1/witness/checkpoints" { // a signature is its key, and this server is no witness
				want = 404
			}
			if a := w.do(request{method: o.method, path: o.path}); a.status != want {
				t.Errorf("%s without a key: %d", o.name(), a.status)
			}
			continue
		}
		for _, key := range []string{"", "garbage", "pfk_aaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", strings.Repeat("x", 5000)} {
			header := map[string]string{"X-API-Key": key}
			if key == "" {
				header = nil
			}
			a := w.do(request{method: o.method, path: o.with(ids), header: header, body: bodyFor(o)})
			if a.status != 401 || a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with the key %.20q: %d", o.name(), key, a.status)
			}
			if key != "" && strings.Contains(a.body, key) {
				t.Errorf("%s echoes the key", o.name())
			}
		}
		for _, scope := range []string{"run", "sandbox", "read"} {
			if slices.Contains(o.spec.Scopes, scope) || slices.Contains(o.spec.Scopes, "any") {
				continue
			}
			a := w.do(request{key: scope, method: o.method, path: o.with(ids), body: bodyFor(o)})
			if a.status != 403 || (o.method != "HEAD" && a.code(t).Code != sandbox.CodeForbidden) {
				t.Errorf("%s with only the scope %s: %d %s", o.name(), scope, a.status, a.body)
			}
		}
		reads := o.method == "GET" && (slices.Contains(o.spec.Scopes, "read") || slices.Contains(o.spec.Scopes, "any") || slices.Contains(o.spec.Scopes, "admin"))
		acts := o.spec.OperationID == "attachTerminal" || o.spec.OperationID == "openTunnel" || strings.HasSuffix(o.path, "{path}")
		if o.method == "GET" && !reads && !acts {
			t.Errorf("%s only reads, and a key to read is not enough", o.name())
		}
	}
	if public != 5 {
		t.Errorf("%d operations need no key", public)
	}
	if a := w.do(request{key: "admin", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "x"}}); a.status != 200 {
		t.Errorf("admin may do everything: %d %s", a.status, a.body)
	}
	if a := w.do(request{key: "alpha", method: "GET", path: "/v1/whoami", header: map[string]string{"X-API-Key": w.keys["beta"]}}); a.status != 401 {
		t.Errorf("two keys: %d", a.status)
	}
	if a := w.do(request{method: "GET", path: "/v1/whoami?key=" + w.keys["alpha"]}); a.status != 401 {
		t.Errorf("a key in the query: %d", a.status)
	}
	w.must(200, request{method: "GET", path: "/v1/whoami", header: map[string]string{"X-API-Key": w.keys["alpha"]}})
}
