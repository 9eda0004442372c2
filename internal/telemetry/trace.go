package telemetry

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"pinfold/sandbox"
)

// tracer makes spans. A nil tracer makes none.
type tracer struct {
	exporter *exporter
	bound    uint64 // traces whose last bits are below it are sampled
}

// newTracer returns nil when there is no endpoint.
func newTracer(o Options) (*tracer, error) {
	endpoint, err := tracesURL(o.Endpoint)
	if err != nil || endpoint == "" || o.Sample <= 0 || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, err
	}
	headers := parseHeaders(os.Getenv("OTEL_EXPORTER_OTLP_HEADERS") + "," + os.Getenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS"))
	resource := []attribute{{key: "service.name", text: o.ServiceName}, {key: "service.version", text: o.Version}}
	return &tracer{
		exporter: newExporter(endpoint, headers, resource, o.Log),
		bound:    uint64(min(1, o.Sample) * math.MaxInt64),
	}, nil
}

// tracesURL is where traces go: the configured endpoint, or what the
// environment says, with the path that OpenTelemetry appoints.
func tracesURL(endpoint string) (string, error) {
	if endpoint == "" {
		if whole := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); whole != "" {
			return checkURL(whole, false)
		}
		if endpoint = os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); endpoint == "" {
			return "", nil
		}
	}
	return checkURL(endpoint, true)
}

func checkURL(text string, base bool) (string, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", &sandbox.Error{
			Code: sandbox.CodeConfigInvalid, Field: "telemetry.otlp_endpoint", Err: err,
			Message: "\"" + sandbox.SafeText(text, 100) + "\" is not the URL of an OTLP/HTTP collector", Hint: "http://127.0.0.1:4318",
		}
	}
	if base && !strings.HasSuffix(u.Path, "/v1/traces") {
		u = u.JoinPath("v1/traces")
	}
	return u.String(), nil
}

// sampled decides by the trace's own number, so that every server of one trace
// decides alike. What the client says about sampling is not followed: it could
// make the server send everything.
func (t *tracer) sampled(id traceID) bool { return binary.BigEndian.Uint64(id[8:])>>1 < t.bound }

func random(b []byte) {
	_, _ = rand.Read(b) // never fails: the program ends where there is no randomness
}

func newSpan(name string, trace traceID, parent spanID) span {
	s := span{trace: trace, parent: parent, name: name}
	random(s.id[:])
	return s
}

// parseParent reads the header traceparent (W3C Trace Context, section 3.2).
func parseParent(header string) (trace traceID, parent spanID, ok bool) {
	parts := strings.Split(header, "-")
	if len(header) > 200 || len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || len(parts[1]) != 32 || len(parts[2]) != 16 ||
		strings.ToLower(header) != header || (parts[0] == "00" && len(parts) != 4) {
		return trace, parent, false
	}
	_, traceErr := hex.Decode(trace[:], []byte(parts[1]))
	_, parentErr := hex.Decode(parent[:], []byte(parts[2]))
	return trace, parent, traceErr == nil && parentErr == nil && trace != traceID{} && parent != spanID{}
}

// request begins the span of a request and returns what ends it.
func (t *tracer) request(r *http.Request, start time.Time) (finish func(route, method string, status int)) {
	nothing := func(string, string, int) {}
	if t == nil {
		return nothing
	}
	trace, parent, ok := parseParent(r.Header.Get("Traceparent"))
	if !ok {
		parent = spanID{}
		random(trace[:])
	}
	if !t.sampled(trace) {
		return nothing
	}
	s := newSpan("", trace, parent)
	return func(route, method string, status int) {
		// The names of the semantic conventions for HTTP. The path itself is
		// left out: it has names that guests choose.
		s.name, s.server, s.start, s.end = method+" "+route, true, start, time.Now()
		s.failed = status >= http.StatusInternalServerError
		s.attributes = []attribute{
			{key: "http.request.method", text: method},
			{key: "http.route", text: route},
			{key: "http.response.status_code", number: int64(status)},
		}
		t.exporter.put(s)
	}
}

// run makes the spans of a run that has ended, from its timings. The steps
// followed each other; the last ended at the given moment.
func (t *tracer) run(r *sandbox.Result, end time.Time) {
	var trace traceID
	random(trace[:])
	if !t.sampled(trace) {
		return
	}
	steps := phases(r.Timings)
	at := end
	for _, p := range steps {
		at = at.Add(-milliseconds(p.ms))
	}
	whole := newSpan("run", trace, spanID{})
	whole.start, whole.end, whole.failed = at, end, r.Status == sandbox.StatusError
	whole.attributes = []attribute{
		{key: "pinfold.run.id", text: r.ID},
		{key: "pinfold.run.language", text: r.Language}, // a name of our own table
		{key: "pinfold.run.status", text: statusLabel(r.Status)},
		{key: "pinfold.run.cause", text: causeLabel(r.Cause.Kind)},
		{key: "pinfold.driver", text: r.Isolation.Driver},
		{key: "pinfold.run.cpu_ms", number: r.Usage.CPUMS},
		{key: "pinfold.run.memory_peak_bytes", number: r.Usage.MemoryPeakBytes},
	}
	if u := r.Network; u != nil {
		var connections, denied int64
		for _, e := range u.Endpoints {
			connections += e.Connections
		}
		for _, d := range u.Denied {
			denied += d.Count
		}
		whole.attributes = append(whole.attributes,
			attribute{key: "pinfold.network.connections", number: connections}, attribute{key: "pinfold.network.denied", number: denied})
	}
	t.exporter.put(whole)
	for _, p := range steps {
		step := newSpan(p.name, trace, whole.id)
		step.start, step.end = at, at.Add(milliseconds(p.ms))
		at = step.end
		t.exporter.put(step)
	}
}

func milliseconds(ms float64) time.Duration {
	const most = float64(24 * 3600 * 1000)
	return time.Duration(min(max(0, ms), most) * float64(time.Millisecond))
}

func (t *tracer) shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.exporter.shutdown(ctx)
}
