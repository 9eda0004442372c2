package api

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/execution"
	"pinfold/internal/gate"
	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// What the gate of a living sandbox keeps back is in no answer of the server's: not in those
// about its processes, their streams and events, nor in files and archives, lists and the log;
// ways out on which it could not be looked at are refused. A gate that flags is the control.
func TestGatedSandboxTellsNothing(t *testing.T) {
	const leaked = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	for action, out := range map[sandbox.GateAction]bool{sandbox.GateFlag: true, sandbox.GateRedact: false, sandbox.GateWithhold: false} {
		t.Run(string(action), func(t *testing.T) {
			w := newWorld(t, func(s *settings) {
				withAudit(t, s)
				s.engine.Gates = func(g sandbox.Gate, secrets []secret.Secret) (execution.Gate, error) { return gate.New(g, secrets) }
				s.script = func(driver.Plan) fake.Script {
					return fake.Script{Program: func(p *fake.Process) fake.Exit {
						p.Machine.Files.Put("/home/user/"+leaked+".txt", leaked)
						p.Machine.Files.Put("/home/user/plain.txt", "a "+leaked+" b")
						_, _ = io.WriteString(p.Stdout, leaked+"\n")
						_, _ = io.WriteString(p.Stderr, "sh: 1: "+leaked+": not found\n")
						return fake.Exit{Code: 127}
					}}
				}
			})
			var box sandbox.Info
			decode(t, w.must(201, request{key: "alpha", method: "POST", path: "/v1/sandboxes", body: sandbox.Create{Gate: &sandbox.Gate{Keys: action}}}).body, &box)
			at := "/v1/sandboxes/" + box.ID
			command := sandbox.Command{Args: []string{"x"}, OutputBase64: true}
			waited := w.must(200, request{key: "alpha", method: "POST", path: at + "/processes?wait=true", body: command})
			said := waited.body + w.must(200, request{key: "alpha", method: "POST", path: at + "/processes", body: command, header: map[string]string{"Accept": "text/event-stream"}}).body
			var p sandbox.Process
			decode(t, waited.body, &p)
			if p.Gate == nil || p.Gate.Outcome != action {
				t.Errorf("%+v", p.Gate)
			}
			for _, path := range []string{"", "/wait", "/stdout?offset=0", "/stderr", "/output"} {
				said += w.must(200, request{key: "alpha", method: "GET", path: at + "/processes/" + p.ID + path}).body
			}
			for _, path := range []string{"/processes", "/files/list", "/changes", "/archive"} {
				said += w.must(200, request{key: "alpha", method: "GET", path: at + path}).body
			}
			said += w.must(200, request{key: "alpha", method: "GET", path: "/v1/audit"}).body
			file := w.do(request{key: "alpha", method: "GET", path: at + "/files?path=plain.txt"})
			part := w.do(request{key: "alpha", method: "GET", path: at + "/files?path=plain.txt", header: map[string]string{"Range": "bytes=2-20"}})
			if found := strings.Contains(said+file.body, leaked); found != out || strings.Contains(part.body, "ghp_") != out {
				t.Errorf("%s %s %s", said, file.body, part.body)
			}
			if status := map[bool]int{true: 422, false: 200}[action == sandbox.GateWithhold]; file.status != status {
				t.Errorf("a file: %d %s", file.status, file.body)
			}
			var of sandbox.GateResult
			if file.status == 200 {
				decode(t, file.header.Get("X-Pinfold-Gate"), &of)
				if of.Outcome != action || len(of.Checks) != 1 || of.Checks[0].Count != 1 || of.Checks[0].Findings != nil {
					t.Errorf("%+v", of)
				}
			}
			for _, way := range []answered{
				w.do(request{key: "alpha", method: "GET", path: at + "/ports/8000/"}),
				w.do(request{key: "alpha", method: "POST", path: at + "/processes", body: sandbox.Command{Args: []string{"x"}, Terminal: &sandbox.Terminal{Cols: 80, Rows: 24}}}),
			} {
				if (way.status == 422 && strings.Contains(way.body, `"withheld"`)) == out {
					t.Errorf("%d %s", way.status, way.body)
				}
			}
			_, tunnel, err := w.dialAs(at+"/tunnel/8000", "", http.Header{"Authorization": {"Bearer " + w.keys["alpha"]}})
			if err == nil || (tunnel == 422) == out {
				t.Errorf("a tunnel: %d %v", tunnel, err)
			}
		})
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}
