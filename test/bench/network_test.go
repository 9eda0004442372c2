//go:build linux

package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"pinfold/test/ledger"
)

// TestBenchMeasuresEndpoints: requests, streams, memory and unused endpoints have numbers,
// direct and through declared endpoints, and nothing stays.
func TestBenchMeasuresEndpoints(t *testing.T) {
	ledger.Check(t)
	file := filepath.Join(t.TempDir(), "b.json")
	cmd, stdout, stderr, temp := program(t, "--rounds", "1", "--only", "network", "--json", file)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout, stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Failures) > 0 {
		t.Errorf("failures: %v", r.Failures)
	}
	for _, what := range []string{"HTTP", "TLS passed through", "TLS ended"} {
		for _, way := range []string{"direct", "endpoint"} {
			for _, kind := range []string{"kept connections", "a connection each"} {
				if v, ok := r.number("network-requests", what+", "+kind+": "+way, "p99_ms"); !ok || v <= 0 {
					t.Errorf("%s, %s, %s: %v, %v", what, kind, way, v, ok)
				}
			}
			if v, ok := r.number("network-stream", what+": "+way, "median_mb_s"); !ok || v <= 0 {
				t.Errorf("%s, %s: %v MB/s, %v", what, way, v, ok)
			}
		}
		if _, ok := r.number("network-requests", what+", kept connections: endpoint", "added_median_ms"); !ok {
			t.Errorf("%s: what an endpoint adds is not said", what)
		}
	}
	for _, what := range []string{"no endpoints", "three, passed through", "three, TLS ended at one"} {
		if _, ok := r.number("network-memory", what, "more_kb"); !ok {
			t.Errorf("%s: no memory", what)
		}
	}
	for _, what := range []string{"warm, no endpoints", "warm, three endpoints that it does not use", "cold, no endpoints"} {
		if v, ok := r.number("network-unused", what, "median_ms"); !ok || v <= 0 {
			t.Errorf("%s: %v, %v", what, v, ok)
		}
	}
	empty(t, temp)
}
