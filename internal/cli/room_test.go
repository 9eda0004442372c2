package cli

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/spf13/pflag"

	"pinfold/client"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// TestRoomForCopies: what does not fit was once a bare "the disk is full", and the hint of
// a run with too many files led to a sandbox in which they did not fit either.
func TestRoomForCopies(t *testing.T) {
	full := (&sandbox.Error{Code: sandbox.CodeTooLarge, Message: "big.bin: the sandbox's disk is full"}).
		WithAdvice(sandbox.Advise("make the sandbox with %s", sandbox.Set("limits.disk_bytes", 512<<20)))
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runFlags).bind(set)
	run, cp := flagWords{set, "run"}, flagWords{command: "cp"}
	here := &app{}
	req := runs.Request{Inputs: []runs.Input{{Size: 200 << 20}, {Size: 100 << 20}, {Dir: true, Size: 4096}}}
	if got := run.translate(here.roomForInputs(t.Context(), full, req)).Hint; got != "--disk 1GiB" {
		t.Errorf("a run: %q", got)
	}
	if got := run.translate(here.roomForInputs(t.Context(), full.WithAdvice(sandbox.Advise("%s", sandbox.Set("limits.disk_bytes", 2<<30))), req)).Hint; got != "--disk 2GiB" {
		t.Errorf("what is not the inputs' fault: %q", got)
	}
	if got := run.translate(here.roomForInputs(t.Context(), filesTooLarge(300<<20), req)).Hint; got != "pinfold create --disk 512MiB, then pinfold cp DATA SANDBOX: and pinfold exec" {
		t.Errorf("files over a server: %q", got)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(sandbox.Info{ID: someBox, Limits: sandbox.Limits{DiskBytes: 256 << 20}})
	}))
	defer server.Close()
	c, err := client.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for size, want := range map[int64]string{
		300 << 20: "make room in it, or make another with pinfold create --disk 1GiB",
		-1:        "make room in it, or make another with pinfold create --disk 512MiB",
		1 << 62:   "make the sandbox with pinfold create --disk 512MiB", // as the server says
	} {
		if got := cp.translate(here.roomInSandbox(t.Context(), c.Sandbox(someBox), full, size)).Hint; got != want {
			t.Errorf("%d bytes: %q, want %q", size, got, want)
		}
	}
	inodes := (&sandbox.Error{Code: sandbox.CodeTooLarge, Field: "limits.inodes"}).WithAdvice(sandbox.Advise("make the sandbox with %s", sandbox.Set("limits.inodes", 32768)))
	if got := cp.translate(here.roomInSandbox(t.Context(), c.Sandbox(someBox), inodes, 1)).Hint; got != "make room in it, or make another with pinfold create --inodes 32768" {
		t.Errorf("no inodes: %q", got)
	}
	other := errors.New("something else")
	for _, err := range []error{here.roomForInputs(t.Context(), other, req), here.roomInSandbox(t.Context(), nil, other, 1)} {
		if !errors.Is(err, other) {
			t.Errorf("another error was changed: %v", err)
		}
	}
	if err := here.roomForInputs(t.Context(), nil, req); err != nil {
		t.Error(err)
	}
}

// What a server keeps and allows at most bounds what is advised about its runs: it refuses
// more.
func TestAdviceKeepsToTheServersMost(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(client.Identity{Most: sandbox.Limits{OutputBytes: 9 << 20, DiskBytes: 400 << 20}})
	}))
	defer server.Close()
	there, here := &app{at: serverFlags{server: server.URL}}, &app{}
	cut := &sandbox.Result{StdoutTruncated: true, StdoutBytes: 9_000_000}
	for all, want := range map[int64]string{
		3 << 20:   "--output-limit 4MiB keeps it",
		9_000_000: "--output-limit 9MiB keeps it",
		10 << 20:  "the server keeps at most 9MiB (limits.max.output_bytes in its configuration); write it to a file and take that out with --artifact",
	} {
		if got := keepAdvice(all, there.keeps(t.Context(), cut)); got != want {
			t.Errorf("%d bytes: %s", all, got)
		}
	}
	if got := keepAdvice(10<<20, here.keeps(t.Context(), cut)); got != "--output-limit 16MiB keeps it" {
		t.Errorf("without a server: %s", got)
	}
	if got := keepProcessAdvice(10<<20, there.most(t.Context(), sandbox.CauseOutput)); got != "the server keeps at most 9MiB (limits.max.output_bytes in its configuration); read them while they are written: pinfold logs --follow" {
		t.Error(got)
	}
	full := (&sandbox.Error{Code: sandbox.CodeTooLarge}).WithAdvice(sandbox.Advise("%s", sandbox.Set("limits.disk_bytes", 300<<20)))
	for size, want := range map[int64]int64{100 << 20: 400 << 20, 200 << 20: 300 << 20} { // what is more is said as the server has
		req := runs.Request{Inputs: []runs.Input{{Size: size}}}
		more, ok := noRoom(there.roomForInputs(t.Context(), full, req))
		if got := bytesOf(more); !ok || got != want {
			t.Errorf("%d bytes of files: a disk of %d", size, got)
		}
	}
	if got := sandbox.AsError(there.roomForInputs(t.Context(), filesTooLarge(600<<20), runs.Request{})).Hint; got != "a sandbox of this server has a disk of at most 400MiB" {
		t.Error(got)
	}
}
