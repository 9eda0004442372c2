package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"pinfold/sandbox"
)

// Bounds on what waits to be sent. When the collector is slow, spans are
// dropped: the server does not wait for it.
const (
	maxQueue      = 2048
	exportTimeout = 5 * time.Second
	batchTimeout  = 2 * time.Second
	maxAttribute  = 128 // bytes of one attribute's value
)

// tracer sends spans to a collector. A nil tracer traces nothing.
type tracer struct {
	provider *sdk.TracerProvider
	spans    trace.Tracer
	incoming propagation.TraceContext
}

// newTracer returns nil when there is no endpoint.
func newTracer(ctx context.Context, o Options) (*tracer, error) {
	options := []otlptracehttp.Option{otlptracehttp.WithTimeout(exportTimeout)}
	switch {
	case o.Endpoint != "":
		endpoint, err := tracesURL(o.Endpoint)
		if err != nil {
			return nil, err
		}
		options = append(options, otlptracehttp.WithEndpointURL(endpoint))
	case os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "":
		return nil, nil
	}
	if o.Sample <= 0 || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, unusable(err)
	}
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttribute
	share := sdk.TraceIDRatioBased(o.Sample)
	provider := sdk.NewTracerProvider(
		// What the client says about sampling is not followed: it could make
		// the server trace everything.
		sdk.WithSampler(sdk.ParentBased(share, sdk.WithRemoteParentSampled(share), sdk.WithRemoteParentNotSampled(share))),
		sdk.WithRawSpanLimits(limits),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", o.ServiceName), attribute.String("service.version", o.Version))),
		sdk.WithBatcher(&quiet{SpanExporter: exporter, log: o.Log},
			sdk.WithMaxQueueSize(maxQueue), sdk.WithBatchTimeout(batchTimeout), sdk.WithExportTimeout(exportTimeout)),
	)
	return &tracer{provider: provider, spans: provider.Tracer("pinfold")}, nil
}

func unusable(err error) error {
	return &sandbox.Error{
		Code: sandbox.CodeConfigInvalid, Field: "telemetry.otlp_endpoint", Err: err,
		Message: "cannot be used: " + sandbox.SafeText(err.Error(), 200), Hint: "http://127.0.0.1:4318",
	}
}

// tracesURL completes an endpoint as OTEL_EXPORTER_OTLP_ENDPOINT is completed:
// the path of traces is added to it.
func tracesURL(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", unusable(err)
	}
	if !strings.HasSuffix(u.Path, "/v1/traces") {
		u = u.JoinPath("v1/traces")
	}
	return u.String(), nil
}

// request begins the span of a request and returns the request that carries
// it, and what ends it.
func (t *tracer) request(r *http.Request) (*http.Request, func(route, method string, status int)) {
	if t == nil {
		return r, func(string, string, int) {}
	}
	ctx := t.incoming.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := t.spans.Start(ctx, "HTTP", trace.WithSpanKind(trace.SpanKindServer))
	return r.WithContext(ctx), func(route, method string, status int) {
		// The names of the semantic conventions for HTTP. The path itself is
		// left out: it has names that guests choose.
		span.SetName(method + " " + route)
		span.SetAttributes(
			attribute.String("http.request.method", method), attribute.String("http.route", route),
			attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// run makes the spans of a run that has ended, from its timings. The steps
// followed each other; the last ended at the given moment.
func (t *tracer) run(r *sandbox.Result, end time.Time) {
	steps := phases(r.Timings)
	var all time.Duration
	for _, p := range steps {
		all += milliseconds(p.ms)
	}
	at := end.Add(-all)
	ctx, span := t.spans.Start(context.Background(), "run", trace.WithTimestamp(at), trace.WithAttributes(
		attribute.String("pinfold.run.id", r.ID),
		attribute.String("pinfold.run.language", r.Language), // a name of our own table
		attribute.String("pinfold.run.status", statusLabel(r.Status)),
		attribute.String("pinfold.run.cause", causeLabel(r.Cause.Kind)),
		attribute.String("pinfold.driver", r.Isolation.Driver),
		attribute.Int64("pinfold.run.cpu_ms", r.Usage.CPUMS),
		attribute.Int64("pinfold.run.memory_peak_bytes", r.Usage.MemoryPeakBytes),
	))
	for _, p := range steps {
		_, step := t.spans.Start(ctx, p.name, trace.WithTimestamp(at))
		at = at.Add(milliseconds(p.ms))
		step.End(trace.WithTimestamp(at))
	}
	if r.Status == sandbox.StatusError {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(end))
}

func milliseconds(ms float64) time.Duration {
	const most = float64(24 * 3600 * 1000)
	return time.Duration(min(max(0, ms), most) * float64(time.Millisecond))
}

// quiet tells the log that spans could not be sent, and nobody else: the SDK
// would print to stderr by itself.
type quiet struct {
	sdk.SpanExporter

	log    *slog.Logger
	failed bool // the last export; exports come one after another
}

// ExportSpans implements the SDK's exporter.
func (q *quiet) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, spans)
	if q.log != nil {
		switch {
		case err != nil && !q.failed:
			q.log.WarnContext(ctx, "traces cannot be sent", "error", sandbox.SafeText(err.Error(), 200))
		case err == nil && q.failed:
			q.log.InfoContext(ctx, "traces are sent again")
		}
	}
	q.failed = err != nil
	return nil
}
