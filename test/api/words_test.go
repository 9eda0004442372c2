package api

import (
	"encoding/json"
	"strings"
	"testing"

	"pinfold/internal/driver/fake"
	"pinfold/sandbox"
)

// refusal is the error of an answer, which has the one form that errors have.
func (w *world) refusal(status int, r request) sandbox.Error {
	w.t.Helper()
	var body sandbox.ErrorBody
	a := w.must(status, r)
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Error == nil || body.Error.Code == "" || a.header.Get("Content-Type") != "application/json" {
		w.t.Fatalf("%s %s: %s %.500s", r.method, r.path, a.header.Get("Content-Type"), a.body)
	}
	return *body.Error
}

// What is told of methods is true: each of them works, and no other.
func TestWrongMethodsNameTheRightOnes(t *testing.T) {
	w := newWorld(t, nil)
	for path, want := range map[string]string{"/v1/runs": "GET, POST", "/v1/sandboxes": "GET, POST", "/v1/whoami": "GET", "/healthz": "GET, HEAD"} {
		for _, method := range []string{"PATCH", "HEAD"} {
			if strings.Contains(want, method) {
				continue
			}
			a := w.must(405, request{key: "alpha", method: method, path: path})
			if a.header.Get("Allow") != want || method != "HEAD" && !strings.Contains(a.body, `"use `+want+`"`) {
				t.Errorf("%s %s: %s, %s", method, path, a.header.Get("Allow"), a.body)
			}
		}
	}
}

// A handshake that the library refuses is answered as everything is.
func TestBadHandshakesAreErrors(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.script = always(fake.Script{Ports: talkers()}) })
	box := w.create("alpha")
	process := w.start("alpha", box, sandbox.Command{Args: []string{"sleep"}, Terminal: &sandbox.Terminal{Cols: 80, Rows: 24}})
	for _, path := range []string{box + "/tunnel/9000", process + "/terminal"} {
		for name, c := range map[string]struct{ version, key, says string }{
			"version": {"12", "AAAAAAAAAAAAAAAAAAAAAA==", "only 13 is supported"},
			"key":     {"13", "short", "Sec-WebSocket-Key"},
			"none":    {"13", "", "Sec-WebSocket-Key"},
		} {
			header := map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": c.version, "Sec-WebSocket-Key": c.key}
			e := w.refusal(400, request{key: "alpha", method: "GET", path: path, header: header})
			if e.Code != sandbox.CodeRequestInvalid || !strings.Contains(e.Message, c.says) || !strings.Contains(e.Hint, "WebSocket client") {
				t.Errorf("%s %s: %+v", path, name, e)
			}
		}
	}
}

// Zero is not the default of how long a link works: that is to leave it out.
func TestLinkForNoTimeIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	box := w.create("alpha")
	e := w.refusal(400, request{key: "alpha", method: "POST", path: box + "/links", body: `{"port": 8000, "ttl_ms": 0}`})
	if e.Field != "ttl_ms" || e.Hint != "leave ttl_ms out for the default" {
		t.Errorf("%+v", e)
	}
	w.must(201, request{key: "alpha", method: "POST", path: box + "/links", body: `{"port": 8000}`})
}

// Hints say what there is to do, once, and nothing besides.
func TestHintsHelp(t *testing.T) {
	w := newWorld(t, nil)
	box := w.create("alpha")
	for name, c := range map[string]struct {
		status int
		r      request
		hint   string
	}{
		"media types": {406, request{method: "POST", path: box + "/processes", body: `{"shell": "x"}`, header: map[string]string{"Accept": "image/png"}}, "this route answers with application/json or text/event-stream"},
		"too short":   {400, request{method: "POST", path: "/v1/sandboxes", body: `{"ttl_ms": 10}`}, `write "ttl_ms": 600000, which is ten minutes`},
		"no port":     {400, request{method: "POST", path: box + "/links", body: `{"port": 70000}`}, "give the one on which a server inside listens, such as 8000"},
		"no file":     {404, request{method: "GET", path: box + "/files?path=nothing"}, "list the directory to see what is there; relative paths begin at the home directory"},
		"twice":       {400, request{method: "POST", path: "/v1/sandboxes", body: `{"ttl_ms": 1000, "ttl_ms": 2000}`}, "leave one of the two out"},
	} {
		c.r.key = "alpha"
		if e := w.refusal(c.status, c.r); e.Hint != c.hint {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
