package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"pinfold/internal/driver/fake"
	"pinfold/sandbox"
)

// objects are what the placeholders of a path are replaced by.
type objects map[string]string

func (o operation) with(ids objects) string {
	path := o.path
	for name, id := range ids {
		path = strings.ReplaceAll(path, "{"+name+"}", id)
	}
	var query []string
	for _, p := range o.spec.Parameters {
		if p.In == "query" && p.Required {
			query = append(query, p.Name+"=x")
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	return path
}

// living makes one of everything, and returns the ids.
func (w *world) living(key string) objects {
	w.t.Helper()
	box := w.create(key)
	process := w.start(key, box, sandbox.Command{Args: []string{"sleep"}, Terminal: &sandbox.Terminal{Cols: 80, Rows: 24}})
	var result sandbox.Result
	w.must(200, request{key: key, method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "x"}}).json(w.t, &result)
	w.must(200, request{key: key, method: "PUT", path: box + "/files?path=x", body: []byte("secret")})
	var snapshot sandbox.Snapshot
	w.must(201, request{key: key, method: "POST", path: box + "/snapshots", body: map[string]any{}}).json(w.t, &snapshot)
	return objects{
		"snapshot": snapshot.ID,
		"id":       strings.TrimPrefix(box, "/v1/sandboxes/"), "process": process[strings.LastIndexByte(process, '/')+1:],
		"run": result.ID, "port": "80", "path": "", "name": "small",
	}
}

// takesJSON says whether an operation reads a JSON body.
func (o operation) takesJSON() bool {
	return o.spec.RequestBody != nil && strings.Contains(string(*o.spec.RequestBody), `"application/json"`)
}

// Every route that reads JSON refuses everything that is not exactly what it
// wants, and says so in our words.
func TestEveryRouteReadsStrictly(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.api.MaxRunBody, s.api.MaxBody = 64<<10, 32<<10 })
	ids := w.living("alpha")
	n := 0
	for _, o := range w.operations() {
		if !o.takesJSON() {
			continue
		}
		n++
		key := "alpha"
		if len(o.spec.Scopes) == 1 && o.spec.Scopes[0] == "admin" {
			key = "admin"
		}
		for name, c := range map[string]struct {
			body   string
			status int
			field  string
		}{
			"nothing":      {"", 400, ""},
			"not JSON":     {"hello", 400, ""},
			"cut off":      {`{"`, 400, ""},
			"a list":       {`[]`, 400, ""},
			"a number":     {`7`, 400, ""},
			"two values":   {`{} {}`, 400, ""},
			"deep":         {strings.Repeat(`{"a":`, 5000), 400, ""},
			"deep lists":   {strings.Repeat(`[`, 30000), 400, ""},
			"unknown":      {`{"nonsense_zz": 1}`, 400, "nonsense_zz"},
			"an escape":    {`{"\u001b[2J": 1}`, 400, `\x1b[2J`},
			"bytes":        {"{\"\xff\xfe\": 1}", 400, ""},
			"too large":    {`{"metadata": {"a": "` + strings.Repeat("x", 128<<10) + `"}}`, 413, ""},
			"a NUL behind": {"{}\x00", 400, ""},
		} {
			a := w.do(request{key: key, method: o.method, path: o.with(ids), body: c.body})
			if a.status != c.status {
				t.Errorf("%s, %s: %d, want %d: %.200s", o.name(), name, a.status, c.status, a.body)
				continue
			}
			if e := a.code(t); c.field != "" && e.Field != c.field {
				t.Errorf("%s, %s: field %q", o.name(), name, e.Field)
			}
		}
		for contentType, status := range map[string]int{"text/plain": 415, "": 415, "application/x-www-form-urlencoded": 415, "application/json;charset=utf-8": 400} {
			a := w.do(request{key: key, method: o.method, path: o.with(ids), body: "hello", header: map[string]string{"Content-Type": contentType}})
			if a.status != status {
				t.Errorf("%s with the type %q: %d", o.name(), contentType, a.status)
			}
			a.code(t)
		}
		if a := w.do(request{key: key, method: o.method, path: o.with(ids), body: "{}", header: map[string]string{"Content-Encoding": "gzip"}}); a.status != 415 {
			t.Errorf("%s compressed: %d", o.name(), a.status)
		}
		if a := w.do(request{key: key, method: o.method, path: o.with(ids), reader: slow(128 << 10), header: map[string]string{"Content-Type": "application/json"}}); a.status != 413 {
			t.Errorf("%s with a large body of unknown length: %d", o.name(), a.status)
		}
	}
	if n < 7 {
		t.Fatalf("%d routes read JSON", n)
	}
}

// slow is a body whose length is not announced.
func slow(n int) *strings.Reader { return strings.NewReader(`{"code": "` + strings.Repeat("x", n)) }

func TestBodiesSayWhichFieldIsWrong(t *testing.T) {
	w := newWorld(t, nil)
	ids := w.living("alpha")
	box := "/v1/sandboxes/" + ids["id"]
	process := box + "/processes/" + ids["process"]
	for _, c := range []struct {
		path, body          string
		status              int
		code, field, inHint string
	}{
		{"/v1/runs", `{"langauge": "python"}`, 400, sandbox.CodeSpecInvalid, "langauge", `"language"`},
		{"/v1/runs", `{"language": "sh", "language": "sh"}`, 400, sandbox.CodeSpecInvalid, "language", ""},
		{"/v1/runs", `{"code": "x", "limits": {"memory_bytes": 0}}`, 400, sandbox.CodeLimitInvalid, "limits.memory_bytes", "unlimited"},
		{"/v1/runs", `{"code": "x", "limits": {"wall_time_ms": -1}}`, 400, sandbox.CodeLimitInvalid, "limits.wall_time_ms", ""},
		{"/v1/runs", `{"code": "x", "files": [{"path": "../x"}]}`, 400, sandbox.CodePathInvalid, "files[0].path", ""},
		{"/v1/runs", `{"language": "sh", "code": "x", "files": [{"path": "main.sh"}]}`, 400, sandbox.CodeSpecInvalid, "files[0].path", `"entrypoint": "main.sh"`},
		{"/v1/runs", `{"language": "sh", "code": "x", "files": [{"path": "a/b"}, {"path": "a"}]}`, 400, sandbox.CodeSpecInvalid, "files[1].path", ""},
		{"/v1/runs", `{"cmd": ["python3"]}`, 400, sandbox.CodeSpecInvalid, "cmd", "the fields are allowed_imports, args, artifacts, code, "},
		{"/v1/runs", `{"code": "x", "limits": {"processes": 1e2}}`, 422, sandbox.CodeLanguageUnknown, "language", ""},
		{"/v1/runs", `{"code": "x", "limits": {"processes": 1.5}}`, 400, sandbox.CodeLimitInvalid, "limits.processes", `"limits": {"processes": 2}`},
		{"/v1/runs", `{"code": "x", "mounts": []}`, 400, sandbox.CodeSpecInvalid, "mounts", ""},
		{"/v1/runs", `{"language": "klingon", "code": "x"}`, 422, sandbox.CodeLanguageUnknown, "language", ""},
		{"/v1/runs", `{"language": "sh", "code": "x", "driver": "nope"}`, 422, sandbox.CodeDriverUnknown, "driver", ""},
		{"/v1/runs", `{"language": "sh", "code": "x", "require": ["landlock:99"]}`, 422, sandbox.CodeRequirementUnmet, "require[0]", ""},
		{"/v1/runs", `{"code": 7}`, 400, sandbox.CodeSpecInvalid, "code", `"code": "7"`},
		{"/v1/runs", `{"code": "x", "limits": {"memory_bytes": "64MiB"}}`, 400, sandbox.CodeLimitInvalid, "limits.memory_bytes", `"limits": {"memory_bytes": 67108864}`},
		{"/v1/runs", `{"code": "x", "limits": {"wall_time_ms": "5s"}}`, 400, sandbox.CodeLimitInvalid, "limits.wall_time_ms", `"limits": {"wall_time_ms": 5000}`},
		{"/v1/runs", `{"code": "x", "timeout": 5}`, 400, sandbox.CodeSpecInvalid, "timeout", `"limits": {"wall_time_ms": `},
		{"/v1/runs", `{"code": "x", "warm": "numpy"}`, 400, sandbox.CodeSpecInvalid, "warm", `"warm": ["numpy"]`},
		{"/v1/runs", `{"language": "sh", "code": "x", "warm": ["numpy"]}`, 400, sandbox.CodeSpecInvalid, "warm", "leave it out"},
		{"/v1/runs", `{"code": "x"}`, 422, sandbox.CodeLanguageUnknown, "language", `"language": "python"`},
		{"/v1/sandboxes", `{"ttl_ms": "10m"}`, 400, sandbox.CodeSpecInvalid, "ttl_ms", `"ttl_ms": 600000`},
		{"/v1/sandboxes", `{"ttl_ms": -5}`, 400, sandbox.CodeLimitInvalid, "ttl_ms", ""},
		{"/v1/sandboxes", `{"ttl": 5}`, 400, sandbox.CodeSpecInvalid, "ttl", `"ttl_ms"`},
		{"/v1/sandboxes", `{"network": {"endpoints": [{"host": "a.test", "port": 80}]}}`, 400, sandbox.CodeSpecInvalid, "network.endpoints[0].port", `"ports"`},
		{"/v1/sandboxes", `{"require": ["magic"]}`, 400, sandbox.CodeFeatureUnknown, "require[0]", ""},
		{"/v1/sandboxes", ``, 400, sandbox.CodeSpecInvalid, "", "send {}"},
		{box + "/extend", `{}`, 400, sandbox.CodeLimitInvalid, "ttl_ms", `"ttl_ms": 600000`},
		{box + "/extend", `{"ttl_ms": 1e30}`, 400, sandbox.CodeSpecInvalid, "ttl_ms", ""},
		{box + "/processes", `{"shell": "x", "timeout_ms": 5}`, 400, sandbox.CodeSpecInvalid, "timeout_ms", `"wall_time_ms"`},
		{box + "/processes", `{"args": "ls -l"}`, 400, sandbox.CodeSpecInvalid, "args", `"args": ["ls", "-l"]`},
		{box + "/processes", `{}`, 400, sandbox.CodeSpecInvalid, "args", ""},
		{box + "/processes", `{"args": ["x"], "shell": "y"}`, 400, sandbox.CodeSpecInvalid, "shell", ""},
		{box + "/processes", `{"args": ["x"], "terminal": {"cols": 0, "rows": 1}}`, 400, sandbox.CodeLimitInvalid, "terminal.cols", ""},
		{process + "/resize", `{"cols": 5000, "rows": 1}`, 400, sandbox.CodeLimitInvalid, "cols", `"cols": 80`},
		{process + "/resize", `{"cols": 80}`, 400, sandbox.CodeLimitInvalid, "rows", `"rows": 24`},
		{process + "/signal", `{"signal": 9}`, 400, sandbox.CodeSpecInvalid, "signal", `write "signal": "9"`},
		{process + "/signal", `{"signal": -1}`, 400, sandbox.CodeSpecInvalid, "signal", `write "signal": "SIGTERM"`},
		{process + "/signal", `{"signal": 99}`, 400, sandbox.CodeSpecInvalid, "signal", `write "signal": "SIGTERM"`},
		{box + "/links", `{"port": 8000.5}`, 400, sandbox.CodeSpecInvalid, "port", `write "port": 8000`},
		{box + "/files/mkdir", `{"path": "x", "mode": 99999}`, 400, sandbox.CodeSpecInvalid, "mode", ""},
		{box + "/files/mkdir", `{"path": "../../x"}`, 400, sandbox.CodePathInvalid, "", ""},
		{box + "/files/move", `{"from": "x", "to": "a\u0000b"}`, 400, sandbox.CodePathInvalid, "", ""},
	} {
		a := w.do(request{key: "alpha", method: "POST", path: c.path, body: c.body})
		e := a.code(t)
		if a.status != c.status || e.Code != c.code || (c.field != "" && e.Field != c.field) || !strings.Contains(e.Hint, c.inHint) {
			t.Errorf("%s %s: %d %+v", c.path, c.body, a.status, e)
		}
	}
}

func TestQueriesAreReadStrictly(t *testing.T) {
	w := newWorld(t, nil)
	ids := w.living("alpha")
	box := "/v1/sandboxes/" + ids["id"]
	for path, field := range map[string]string{
		"/v1/runs?cursor=garbage":                        "cursor",
		"/v1/runs?limt=1":                                "limt",
		"/v1/runs?limit=0":                               "limit",
		"/v1/runs?limit=1001":                            "limit",
		"/v1/runs?limit=1&limit=2":                       "limit",
		"/v1/runs?limit=x":                               "limit",
		"/v1/runs?status=dead":                           "status",
		"/v1/runs?metadata=x":                            "metadata",
		"/v1/runs?order=up":                              "order",
		"/v1/runs?%zz":                                   "",
		"/v1/runs?a;b":                                   "",
		"/v1/usage?from=yesterday":                       "from",
		"/v1/usage?from=2026-02-01&to=2026-01-01":        "from",
		"/v1/usage?from=0001-01-01":                      "from",
		box + "/files":                                   "path",
		box + "/files/list?depth=99999":                  "depth",
		box + "/files/watch?recursive=yes":               "recursive",
		box + "/files?path=" + strings.Repeat("x", 5000): "path",
	} {
		a := w.do(request{key: "alpha", method: "GET", path: path})
		if e := a.code(t); a.status != 400 || e.Field != field {
			t.Errorf("%.80s: %d %+v", path, a.status, e)
		}
	}
}

// Paths that are refused before anything is opened.
func TestGuestPathsAreChecked(t *testing.T) {
	w := newWorld(t, nil)
	box := w.create("alpha")
	for _, p := range []string{"../x", "a/../../x", "a//../..", "%00", "a%0Ab", "%ff", "%E2%80%AE", strings.Repeat("a", 2000), "link%2F..%2F..%2F..", "link/", "link/.", "a//b", "%2F..%2Fetc", "%2Fhome%2F%2Fuser", "~%2F..%2Fx"} {
		for _, r := range []request{
			{method: "GET", path: box + "/files?path=" + p},
			{method: "PUT", path: box + "/files?path=" + p, body: []byte("x")},
			{method: "DELETE", path: box + "/files?path=" + p},
			{method: "GET", path: box + "/files/stat?path=" + p},
			{method: "GET", path: box + "/files/list?path=" + p},
			{method: "GET", path: box + "/files/watch?path=" + p},
		} {
			r.key = "alpha"
			if a := w.do(r); a.status != 400 || a.code(t).Code != sandbox.CodePathInvalid {
				t.Errorf("%s %.120s: %d %s", r.method, r.path, a.status, a.body)
			}
		}
	}
	w.driver.Machines()[0].Files.PutLink("link")
	if a := w.do(request{key: "alpha", method: "GET", path: box + "/files?path=link"}); a.status != 422 || a.code(t).Code != sandbox.CodeNotRegularFile {
		t.Errorf("a link was read: %+v", a)
	}
	if a := w.do(request{key: "alpha", method: "GET", path: box + "/files?path=."}); a.status != 422 || a.code(t).Code != sandbox.CodeNotRegularFile {
		t.Errorf("a directory was read: %+v", a)
	}
}

// Ids that are paths, or anything else, are not found, and never looked up.
func TestIDsThatAreNone(t *testing.T) {
	w := newWorld(t, nil)
	ids := w.living("alpha")
	for _, bad := range []string{
		"..%2f..", "%00", strings.Repeat("a", 300), ".%2e", "sbx_", "sbx_" + strings.Repeat("A", 26), "sbx_" + strings.Repeat("a", 25) + "%0a",
		"sbx_" + strings.Repeat("a", 26) + "%2f..", "run_" + strings.Repeat("a", 26), "sbх_" + strings.Repeat("a", 26), "*", "sbx_" + strings.Repeat("a", 26) + "'--",
	} {
		for _, o := range w.operations() {
			if !strings.Contains(o.path, "{id}") {
				continue
			}
			other := objects{"id": bad}
			for k, v := range ids {
				if k != "id" {
					other[k] = v
				}
			}
			a := w.do(request{key: "alpha", method: o.method, path: o.with(other), body: bodyFor(o)})
			if a.status != 404 || (o.method != "HEAD" && a.code(t).Code != sandbox.CodeNotFound) {
				t.Errorf("%s with the id %q: %d %.200s", o.name(), bad, a.status, a.body)
			}
		}
	}
	for path, status := range map[string]int{
		"/v1/sandboxes/../runs": 404, "/v1//runs": 404, "/v1/runs/": 404, "/v1/sandboxes/%2e%2e/%2e%2e/etc/passwd": 404, "/v2/runs": 404, "/v1/runs/..": 404,
	} {
		if a := w.do(request{key: "alpha", method: "GET", path: path}); a.status != status || a.code(t).Code != sandbox.CodeNotFound {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func bodyFor(o operation) any {
	switch {
	case o.spec.RequestBody == nil:
		return nil
	case o.takesJSON():
		return "{}"
	}
	return []byte("x")
}

// What HTTP itself refuses has the form of all errors, too.
func TestErrorsHaveOneForm(t *testing.T) {
	w := newWorld(t, nil)
	box := w.create("alpha")
	for _, c := range []struct {
		request
		status int
		code   string
	}{
		{request{method: "GET", path: "/nothing"}, 404, sandbox.CodeNotFound},
		{request{method: "DELETE", path: "/v1/runs"}, 405, sandbox.CodeMethodForbidden},
		{request{method: "BREW", path: "/v1/runs"}, 405, sandbox.CodeMethodForbidden},
		{request{method: "HEAD", path: "/v1/runs"}, 405, ""},
		{request{method: "GET", path: "/v1/runs", header: map[string]string{"Accept": "image/png"}}, 406, sandbox.CodeRequestInvalid},
		{request{method: "GET", path: "/v1/runs", header: map[string]string{"Accept": "application/json;q=0"}}, 406, sandbox.CodeRequestInvalid},
		{request{method: "GET", path: box + "/files?path=none"}, 404, sandbox.CodeFileNotFound},
		{request{method: "GET", path: box + "/processes/prc_" + strings.Repeat("a", 26)}, 404, sandbox.CodeNotFound},
		{request{method: "GET", path: box + "/ports/0/"}, 400, sandbox.CodeRequestInvalid},
		{request{method: "GET", path: box + "/ports/081/"}, 400, sandbox.CodeRequestInvalid},
		{request{method: "GET", path: box + "/ports/81/"}, 502, sandbox.CodePortClosed},
		{request{method: "POST", path: "/v1/runs", body: "{}", header: map[string]string{"Idempotency-Key": "a b"}}, 400, sandbox.CodeRequestInvalid},
	} {
		c.key = "alpha"
		a := w.do(c.request)
		if a.status != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.status, a.body)
		}
		if c.code != "" && a.code(t).Code != c.code {
			t.Errorf("%s %s: %s", c.method, c.path, a.body)
		}
		if c.status == 405 && a.header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", c.method, c.path)
		}
		if a.header.Get("X-Request-Id") == "" || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: %v", c.method, c.path, a.header)
		}
	}
}

// A handler that breaks says nothing of how: the stack is in the log.
func TestPanicsStayInside(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.api.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret of the house") })
	})
	a := w.do(request{key: "admin", method: "GET", path: "/metrics"})
	if e := a.code(t); a.status != 500 || e.Code != sandbox.CodeInternal || strings.Contains(a.body, "secret") || strings.Contains(a.body, "goroutine") {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if id := a.header.Get("X-Request-Id"); !strings.Contains(w.log.String(), "secret of the house") || !strings.Contains(w.log.String(), id) {
		t.Fatalf("the log lacks it: %s", w.log)
	}
}

// The text of a failure that nobody foresaw is for the log.
func TestUnforeseenFailuresAreNotShown(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.script = always(fake.Script{Create: func(context.Context) error {
			return fmt.Errorf("wrapped: %w", &sandbox.Error{Code: sandbox.CodeInternal, Message: "open /srv/secret: denied"})
		}})
	})
	a := w.do(request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "x"}})
	if a.status != 500 || strings.Contains(a.body, "/srv/secret") || !strings.Contains(w.log.String(), "/srv/secret") {
		t.Fatalf("%d %s", a.status, a.body)
	}
}
