package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"pinfold/sandbox"
)

// collect is a collector that speaks OTLP/HTTP.
type collect struct {
	mu       sync.Mutex
	path     string
	services []string
	spans    []*tracepb.Span
}

func (c *collect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	data, err := io.ReadAll(body)
	var req collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(data, &req) != nil {
		http.Error(w, "not a request", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.path = r.URL.Path
	for _, rs := range req.GetResourceSpans() {
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				c.services = append(c.services, a.GetValue().GetStringValue())
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			c.spans = append(c.spans, ss.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *collect) named(name string) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*tracepb.Span
	for _, s := range c.spans {
		if s.GetName() == name {
			found = append(found, s)
		}
	}
	return found
}

func attributeOf(s *tracepb.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// traced makes requests and a run, and returns what the collector received.
func traced(t *testing.T, o func(url string) Options) *collect {
	t.Helper()
	c := &collect{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	tel := newTelemetry(t, o(server.URL))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/runs/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	req := httptest.NewRequest(http.MethodGet, "/v1/runs/secret-name", nil)
	req.Header.Set("Traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-00")
	tel.Middleware(mux).ServeHTTP(httptest.NewRecorder(), req)
	tel.RunFinished(aResult())
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTraces(t *testing.T) {
	c := traced(t, func(url string) Options { return Options{Endpoint: url, Sample: 1} })
	if c.path != "/v1/traces" || len(c.services) == 0 || c.services[0] != "test" {
		t.Errorf("sent to %q as %q", c.path, c.services)
	}
	requests, runs := c.named("GET /v1/runs/{id}"), c.named("run")
	if len(requests) != 1 || len(runs) != 1 {
		t.Fatalf("%d requests, %d runs", len(requests), len(runs))
	}
	if got := attributeOf(requests[0], "http.route"); got != "/v1/runs/{id}" || requests[0].GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("request: %v", requests[0])
	}
	// The caller's trace goes on, although it was not sampled there.
	if got := requests[0].GetTraceId(); !bytes.Equal(got, []byte("\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef")) {
		t.Errorf("trace %x", got)
	}
	run := runs[0]
	if attributeOf(run, "pinfold.run.id") != "run_x" || attributeOf(run, "pinfold.run.cause") != "memory" {
		t.Errorf("run: %v", run)
	}
	at := run.GetStartTimeUnixNano()
	for _, p := range phases(aResult().Timings) {
		steps := c.named(p.name)
		if len(steps) != 1 || !bytes.Equal(steps[0].GetParentSpanId(), run.GetSpanId()) {
			t.Fatalf("%s: %v", p.name, steps)
		}
		if steps[0].GetStartTimeUnixNano() != at {
			t.Errorf("%s does not begin where the step before ended", p.name)
		}
		at = steps[0].GetEndTimeUnixNano()
		if got := at - steps[0].GetStartTimeUnixNano(); got != uint64(milliseconds(p.ms)) {
			t.Errorf("%s took %d ns", p.name, got)
		}
	}
	if at != run.GetEndTimeUnixNano() {
		t.Error("the run does not end with its last step")
	}
	for _, s := range c.spans {
		if strings.Contains(s.String(), "secret-name") {
			t.Errorf("a name from a request is in a span: %v", s)
		}
	}
}

func TestEndpointFromTheEnvironment(t *testing.T) {
	c := traced(t, func(url string) Options {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
		return Options{Sample: 1}
	})
	if len(c.named("run")) != 1 || c.path != "/v1/traces" {
		t.Errorf("%d runs at %q", len(c.named("run")), c.path)
	}
}

func TestNothingIsTraced(t *testing.T) {
	for name, o := range map[string]func(url string) Options{
		"no endpoint": func(string) Options { return Options{Sample: 1} },
		"no share":    func(url string) Options { return Options{Endpoint: url} },
		"disabled": func(url string) Options {
			t.Setenv("OTEL_SDK_DISABLED", "true")
			return Options{Endpoint: url, Sample: 1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c := traced(t, o); len(c.spans) != 0 {
				t.Errorf("%d spans", len(c.spans))
			}
		})
	}
}

func TestBadEndpoint(t *testing.T) {
	var e *sandbox.Error
	if _, err := New(Options{Endpoint: "http://[", Sample: 1}); !errors.As(err, &e) || e.Field != "telemetry.otlp_endpoint" {
		t.Errorf("%v", err)
	}
}

// A collector that fails or hangs costs a line in the log and nothing else.
func TestCollectorThatFails(t *testing.T) {
	hang := make(chan struct{})
	for name, answer := range map[string]http.HandlerFunc{
		"refuses": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
		"hangs":   func(http.ResponseWriter, *http.Request) { <-hang },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			if name == "hangs" {
				defer close(hang)
			}
			var log bytes.Buffer
			tel := newTelemetry(t, Options{Endpoint: server.URL, Sample: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
			for range 3 * maxQueue { // more than fits: the rest is dropped, and nobody waits
				tel.RunFinished(aResult())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_ = tel.Shutdown(ctx) // says that time was up, or nothing
			if name == "refuses" && strings.Count(log.String(), "traces cannot be sent") != 1 {
				t.Errorf("the log says %q", log.String())
			}
		})
	}
}
