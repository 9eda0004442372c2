package api

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/sandbox"
)

// A server advises nothing that it then refuses: not at the end of a run or of a sandbox, and
// not about a request that it does not take. It says what the most is.
func TestNoHintIsRefused(t *testing.T) {
	most := sandbox.Limits{MemoryBytes: 96 << 20, WallTimeMS: 300}
	var full atomic.Bool
	w := newWorld(t, func(s *settings) {
		s.engine.Policy.Max = most
		s.script = func(driver.Plan) fake.Script {
			return fake.Script{
				Program: func(p *fake.Process) fake.Exit { <-p.Killed; return fake.Exit{Signal: 9} },
				Usage: func(time.Duration) driver.Usage {
					if full.Load() {
						return driver.Usage{OOMKills: 1, MemoryPeak: 300 << 20}
					}
					return driver.Usage{}
				},
			}
		}
	})
	held := func(what, hint string, want string) {
		t.Helper()
		if !strings.Contains(hint, want) {
			t.Errorf("%s: %s", what, hint)
		}
	}
	var r sandbox.Result
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "shell", Code: "x", Limits: sandbox.Limits{WallTimeMS: 200}}}).json(t, &r)
	held("a run", r.Cause.Hint, `"limits": {"wall_time_ms": 300}`)
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "shell", Code: "x"}}).json(t, &r)
	held("a run at the most", r.Cause.Hint, "300ms is the most that limits.max.wall_time_ms in the server's configuration allows")

	box := w.create("alpha")
	var p sandbox.Process
	w.must(200, request{key: "alpha", method: "POST", path: box + "/processes?wait=true", body: sandbox.Command{Args: []string{"x"}, WallTimeMS: 200}}).json(t, &p)
	held("a process", p.Cause.Hint, `"wall_time_ms": 300`)
	full.Store(true)
	var info sandbox.Info
	for deadline := time.Now().Add(time.Minute); info.Cause == nil && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		_ = w.do(request{key: "alpha", method: "POST", path: box + "/processes", body: sandbox.Command{Args: []string{"x"}}}) // counters are read while something runs
		w.must(200, request{key: "alpha", method: "GET", path: box}).json(t, &info)
	}
	if info.Cause == nil || info.Cause.Kind != sandbox.CauseMemory {
		t.Fatalf("%+v", info)
	}
	held("a sandbox", info.Cause.Hint, "96MiB is the most that limits.max.memory_bytes")

	e := w.do(request{key: "alpha", method: "POST", path: "/v1/runs", body: `{"language": "shell", "code": "x", "limits": {"memory_bytes": "1GiB"}}`}).code(t)
	held("a request", e.Hint, `"memory_bytes": 100663296`)
	var who struct{ Most sandbox.Limits }
	w.must(200, request{key: "alpha", method: "GET", path: "/v1/whoami"}).json(t, &who)
	if who.Most != most {
		t.Errorf("%+v", who)
	}
}
