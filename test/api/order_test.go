package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver/fake"
	"pinfold/sandbox"
)

// What is read later comes in the order that the result tells.
func TestOutputReadLaterKeepsItsOrder(t *testing.T) {
	inTurns := func(p *fake.Process) fake.Exit {
		for i := range 3 {
			_, _ = fmt.Fprintln(p.Stdout, "out", i)
			time.Sleep(5 * time.Millisecond) // so that there is usually something to tell
			_, _ = fmt.Fprintln(p.Stderr, "err", i)
			time.Sleep(5 * time.Millisecond)
		}
		return fake.Exit{}
	}
	w := newWorld(t, func(s *settings) { s.script = always(fake.Script{Program: inTurns}) })
	check := func(path, last string, order []sandbox.OutputPiece) {
		t.Helper()
		all := newEventReader(w.open(request{key: "alpha", method: "GET", path: path})).all(t)
		if bytesOf(t, all, "stdout") != "out 0\nout 1\nout 2\n" || bytesOf(t, all, "stderr") != "err 0\nerr 1\nerr 2\n" {
			t.Errorf("%s: %+v", path, all)
		}
		var want []string
		for _, piece := range order {
			want = append(want, piece.Stream)
		}
		if got := names(all); len(want) < 2 || got != strings.Join(append(want, last), " ") {
			t.Errorf("%s: %s, want the order %v", path, got, order)
		}
	}
	box := w.create("alpha")
	var p sandbox.Process
	w.must(200, request{key: "alpha", method: "POST", path: box + "/processes?wait=true", body: shell("x")}).json(t, &p)
	check(box+"/processes/"+p.ID+"/output", "exit", p.OutputOrder)
	var r sandbox.Result
	w.must(200, request{key: "alpha", method: "POST", path: "/v1/runs", body: sandbox.Spec{Language: "sh", Code: "x"}}).json(t, &r)
	check("/v1/runs/"+r.ID+"/events", "result", r.OutputOrder)
}
