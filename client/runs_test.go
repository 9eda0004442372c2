package client_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"pinfold/client"
	"pinfold/sandbox"
)

// A watch that breaks goes on at the byte where it was; what the result alone
// has is passed on as well.
func TestAWatchComesBack(t *testing.T) {
	const all = "0123456789"
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var from int
		_, _ = fmt.Sscan(r.URL.Query().Get("stdout"), &from)
		asked = append(asked, r.URL.Path+"?"+r.URL.Query().Get("stdout"))
		if text := ev("state", `{"id":"run_1","state":"running"}`) + ev("stdout", fmt.Sprintf(`{"stream":"stdout","offset":%d,"text":"%s"}`, from, all[from:from+5])); from < 5 {
			events(w, text+"event: stdout\ndata: {") // and the connection breaks
			return
		}
		events(w, ev("stdout", fmt.Sprintf(`{"stream":"stdout","offset":%d,"text":"%s"}`, from, all[from:]))+
			ev("result", `{"id":"run_1","status":"killed","cause":{"kind":"cancelled"},"stdout":"0123456789","stderr":"warned"}`))
	})
	var out, warn bytes.Buffer
	var states []sandbox.RunState
	r, err := c.WatchRun(t.Context(), "run_1", client.WatchOptions{Stdout: &out, Stderr: &warn, State: func(r client.RunRecord) { states = append(states, r.State) }})
	if err != nil || r.Cause.Kind != sandbox.CauseCancelled || out.String() != all || warn.String() != "warned" || len(states) != 1 {
		t.Fatalf("%+v %v %q %q %v", r, err, out.String(), warn.String(), states)
	}
	if got := strings.Join(asked, " "); got != "/v1/runs/run_1/events?0 /v1/runs/run_1/events?5" {
		t.Errorf("asked %s", got)
	}
}
