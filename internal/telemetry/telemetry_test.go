package telemetry

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"pinfold/internal/compilecache"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/sandbox"
)

func newTelemetry(t *testing.T, o Options) *Telemetry {
	t.Helper()
	o.Version, o.ServiceName = "v1.2.3", "test"
	tel, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

// scrape reads the metrics as Prometheus does.
func scrape(t *testing.T, tel *Telemetry) map[string]*dto.MetricFamily {
	t.Helper()
	rec := httptest.NewRecorder()
	tel.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// value finds one metric by its name and labels ("k=v,k=v"). Of a histogram it
// is the number of observations.
func value(t *testing.T, all map[string]*dto.MetricFamily, name, labels string) float64 {
	t.Helper()
	for _, m := range all[name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		if strings.Join(have, ",") != labels {
			continue
		}
		switch {
		case m.GetHistogram() != nil:
			return float64(m.GetHistogram().GetSampleCount())
		case m.GetCounter() != nil:
			return m.GetCounter().GetValue()
		}
		return m.GetGauge().GetValue()
	}
	t.Errorf("no metric %s{%s}", name, labels)
	return -1
}

func aResult() *sandbox.Result {
	return &sandbox.Result{
		ID: "run_x", Status: sandbox.StatusKilled, Cause: sandbox.Cause{Kind: sandbox.CauseMemory}, Language: "python",
		Timings:   sandbox.Timings{QueueMS: 1, CreateMS: 2, ExecMS: 30, CollectMS: 4, DestroyMS: 5},
		Usage:     sandbox.Usage{CPUMS: 1500},
		Isolation: sandbox.Isolation{Driver: "fake"},
		Network:   &sandbox.NetworkUse{Endpoints: []sandbox.EndpointUse{{Connections: 1}}},
	}
}

func TestMetrics(t *testing.T) {
	tel := newTelemetry(t, Options{})
	if n := len(scrape(t, tel)["pinfold_sandboxes"].GetMetric()); n != 0 {
		t.Errorf("%d counts of an engine that is not there", n)
	}
	tel.Watch(func() engine.Stats {
		return engine.Stats{
			Living: map[sandbox.State]int{sandbox.StateRunning: 3}, Processes: 4, Runs: 5, Waiting: 6, MemoryBytes: 7, CPUs: 1.5,
			Undestroyed: 1, Draining: true, Capacity: admission.Capacity{Sandboxes: 100},
			CompileCache: &compilecache.Stats{Hits: 21, Misses: 22, Evictions: 23, Damaged: 24, Entries: 25, Bytes: 26},
			Pools: []sandbox.PoolInfo{
				{PoolSpec: sandbox.PoolSpec{Name: "small", Min: 2}, Available: 1, InUse: 2, Total: 3, Hits: 10, Forked: 12, Misses: 11},
				{PoolSpec: sandbox.PoolSpec{Name: "small"}}, // the same name twice must not spoil the page
			},
		}
	})
	tel.RunStarted("anybody")
	tel.RunFinished(aResult())
	tel.RunFinished(nil)
	tel.RunFinished(&sandbox.Result{Status: "nonsense\n", Cause: sandbox.Cause{Kind: "x\"}"}, Timings: sandbox.Timings{CompileMS: 3}, Usage: sandbox.Usage{CPUMS: -5}})
	tel.SandboxCreated(true, 2)
	tel.SandboxCreated(false, 20)
	tel.SandboxEnded(sandbox.CauseTTL, &sandbox.NetworkUse{
		Endpoints: []sandbox.EndpointUse{{Connections: 31, Requests: 30, Secrets: 32, BytesUp: 33, BytesDown: 34, Errors: 35}},
		Denied:    []sandbox.Denial{{Reason: sandbox.DeniedUndeclared, Count: 36}, {Reason: "x\"}", Count: 37}},
	})
	tel.Queued(3 * time.Millisecond)
	tel.Refused(sandbox.CodeBusy)
	tel.Refused("Not A Code\x1b")

	all := scrape(t, tel)
	for _, c := range []struct {
		name, labels string
		want         float64
	}{
		{"pinfold_runs_started_total", "", 1},
		{"pinfold_compile_cache_hits_total", "", 21},
		{"pinfold_compile_cache_misses_total", "", 22},
		{"pinfold_compile_cache_evictions_total", "", 23},
		{"pinfold_compile_cache_damaged_total", "", 24},
		{"pinfold_compile_cache_entries", "", 25},
		{"pinfold_compile_cache_bytes", "", 26},
		{"pinfold_runs_finished_total", "status=killed", 1},
		{"pinfold_runs_finished_total", "status=other", 1},
		{"pinfold_run_causes_total", "cause=memory", 1},
		{"pinfold_run_causes_total", "cause=other", 1},
		{"pinfold_limits_hit_total", "limit=memory", 1},
		{"pinfold_limits_hit_total", "limit=ttl", 1},
		{"pinfold_run_phase_seconds", "phase=queue", 2},
		{"pinfold_run_phase_seconds", "phase=create", 2},
		{"pinfold_run_phase_seconds", "phase=compile", 1},
		{"pinfold_run_phase_seconds", "phase=exec", 2},
		{"pinfold_run_phase_seconds", "phase=destroy", 2},
		{"pinfold_run_cpu_seconds_total", "", 1.5},
		{"pinfold_sandboxes_created_total", "start=warm", 1},
		{"pinfold_sandbox_create_seconds", "start=cold", 1},
		{"pinfold_sandboxes_ended_total", "cause=ttl", 1},
		{"pinfold_network_connections_total", "", 31 + 1},
		{"pinfold_network_requests_total", "", 30},
		{"pinfold_secrets_used_total", "", 32},
		{"pinfold_network_bytes_total", "direction=up", 33},
		{"pinfold_network_bytes_total", "direction=down", 34},
		{"pinfold_network_errors_total", "", 35},
		{"pinfold_network_denied_total", "reason=not_declared", 36},
		{"pinfold_network_denied_total", "reason=other", 37},
		{"pinfold_queue_wait_seconds", "", 1},
		{"pinfold_refused_total", "code=busy", 1},
		{"pinfold_refused_total", "code=other", 1},
		{"pinfold_sandboxes", "state=running", 3},
		{"pinfold_sandboxes", "state=creating", 0},
		{"pinfold_processes_running", "", 4},
		{"pinfold_runs_running", "", 5},
		{"pinfold_queue_length", "", 6},
		{"pinfold_promised_memory_bytes", "", 7},
		{"pinfold_sandboxes_undestroyed", "", 1},
		{"pinfold_draining", "", 1},
		{"pinfold_capacity", "resource=sandboxes", 100},
		{"pinfold_pool_sandboxes", "pool=small,state=available", 1},
		{"pinfold_pool_sandboxes", "pool=small,state=in_use", 2},
		{"pinfold_pool_total", "pool=small", 3},
		{"pinfold_pool_hits_total", "pool=small", 10},
		{"pinfold_pool_misses_total", "pool=small", 11},
		{"pinfold_pool_forked_total", "pool=small", 12},
	} {
		if got := value(t, all, c.name, c.labels); got != c.want {
			t.Errorf("%s{%s} = %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	if v := all["pinfold_build_info"].GetMetric(); len(v) != 1 {
		t.Errorf("build info: %v", v)
	}
}

// A client chooses the path and the method, and must not choose labels.
func TestRequestsHaveBoundedLabels(t *testing.T) {
	tel := newTelemetry(t, Options{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/runs/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "none" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "x")
	})
	mux.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	server := httptest.NewServer(tel.Middleware(mux))
	defer server.Close()
	get := func(method, path string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	for i := range 50 {
		get("GET", fmt.Sprintf("/v1/runs/%d", i))
		get(fmt.Sprintf("M%d", i), fmt.Sprintf("/nowhere/%d", i))
	}
	get("GET", "/v1/runs/none")
	get("GET", "/panic")
	all := scrape(t, tel)
	if got := value(t, all, "pinfold_http_requests_total", "route=/v1/runs/{id},method=GET,code=2xx"); got != 50 {
		t.Errorf("%v answers with 2xx", got)
	}
	if got := value(t, all, "pinfold_http_requests_total", "route=/v1/runs/{id},method=GET,code=4xx"); got != 1 {
		t.Errorf("%v answers with 4xx", got)
	}
	if got := value(t, all, "pinfold_http_requests_total", "route=other,method=other,code=4xx"); got != 50 {
		t.Errorf("%v lost requests", got)
	}
	if n := len(all["pinfold_http_requests_total"].GetMetric()); n > 4 {
		t.Errorf("%d series", n)
	}
	if got := value(t, all, "pinfold_http_requests_in_flight", ""); got != 0 {
		t.Errorf("%v in flight", got)
	}
}

// The middleware takes nothing away from a ResponseWriter.
func TestStreamsAndUpgradesPassThrough(t *testing.T) {
	tel := newTelemetry(t, Options{})
	more := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/stream", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "one\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("Flush: %v", err)
		}
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("SetWriteDeadline: %v", err)
		}
		<-more
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\nhello")
		_ = conn.Close()
	})
	server := httptest.NewServer(tel.Middleware(mux))
	defer server.Close()
	resp, err := server.Client().Get(server.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "one\n" {
		t.Errorf("the stream is held back: %q, %v", line, err)
	}
	close(more)
	_ = resp.Body.Close()

	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET /upgrade HTTP/1.1\r\nHost: x\r\n\r\n")
	if got, _ := io.ReadAll(conn); !strings.HasSuffix(string(got), "hello") {
		t.Errorf("upgraded: %q", got)
	}
	_ = conn.Close()
	waitFor(t, func() bool {
		return value(t, scrape(t, tel), "pinfold_http_requests_in_flight", "") == 0
	})
	if got := value(t, scrape(t, tel), "pinfold_http_requests_total", "route=/upgrade,method=GET,code=1xx"); got != 1 {
		t.Errorf("%v upgrades", got)
	}
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatal("it does not come to pass")
		case <-time.After(5 * time.Millisecond):
		}
	}
}
