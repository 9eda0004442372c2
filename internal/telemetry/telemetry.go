// Package telemetry counts and times what the server does, for Prometheus, and
// traces it, for OpenTelemetry. It is told by the engine (engine.Observer), polls
// engine.Stats when it is asked, and stands before the HTTP handlers as
// middleware.
//
// Nothing that a guest or a client chooses becomes a label or the name of a
// span: every set of labels is closed, so a hostile client cannot grow the
// server's memory or somebody's bill.
//
// It speaks both formats itself, because the usual libraries would slow down
// every start of the program. Its tests read it with those libraries.
//
// Without an endpoint no trace is made, at the cost of one comparison for
// each request.
package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// Options say what is measured and where it goes.
type Options struct {
	Version string
	// Endpoint is the URL of an OTLP/HTTP collector. When it is empty,
	// OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT are
	// looked at; without them too, nothing is traced.
	Endpoint    string
	ServiceName string
	// Sample is the share of requests that are traced, 0 to 1, whatever the
	// client asks for.
	Sample float64
	Log    *slog.Logger
}

// Telemetry is an engine.Observer, a page of metrics and a middleware. It is
// safe for concurrent use.
type Telemetry struct {
	metrics *metrics
	tracer  *tracer // nil: nothing is traced
	stats   atomic.Pointer[func() engine.Stats]
}

// New makes a Telemetry. The caller ends it with Shutdown. An endpoint that
// cannot be used gives an error of code config_invalid; one that does not answer
// does not, because the server must not depend on it.
func New(o Options) (*Telemetry, error) {
	t := &Telemetry{}
	t.metrics = newMetrics(o.Version, t.readStats)
	var err error
	t.tracer, err = newTracer(o)
	return t, err
}

// Watch names the function that is asked for the engine's counts whenever the
// metrics are read.
func (t *Telemetry) Watch(stats func() engine.Stats) { t.stats.Store(&stats) }

func (t *Telemetry) readStats() (engine.Stats, bool) {
	f := t.stats.Load()
	if f == nil {
		return engine.Stats{}, false
	}
	return (*f)(), true
}

// Handler serves the metrics in the formats of Prometheus.
func (t *Telemetry) Handler() http.Handler { return t.metrics }

// Shutdown sends what is still to be sent, until ctx ends.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	return t.tracer.shutdown(ctx)
}

// RunStarted implements engine.Observer.
func (t *Telemetry) RunStarted(string) { t.metrics.runsStarted.with().add(1) }

// RunFinished implements engine.Observer.
func (t *Telemetry) RunFinished(r *sandbox.Result) {
	if r == nil {
		return
	}
	t.metrics.runFinished(r)
	if t.tracer != nil {
		t.tracer.run(r, time.Now())
	}
}

// SandboxCreated implements engine.Observer.
func (t *Telemetry) SandboxCreated(warm bool, createMS float64) {
	start := "cold"
	if warm {
		start = "warm"
	}
	t.metrics.sandboxesCreated.with(start).add(1)
	t.metrics.sandboxCreate.with(start).observe(createMS / 1000)
}

// SandboxEnded implements engine.Observer.
func (t *Telemetry) SandboxEnded(cause sandbox.CauseKind, network *sandbox.NetworkUse) {
	t.metrics.sandboxesEnded.with(causeLabel(cause)).add(1)
	t.metrics.limitHit(cause)
	t.metrics.network(network)
}

// Queued implements engine.Observer.
func (t *Telemetry) Queued(d time.Duration) { t.metrics.queued.with().observe(d.Seconds()) }

// Refused implements engine.Observer.
func (t *Telemetry) Refused(code string) {
	t.metrics.refused.with(codeLabel(code)).add(1)
}

var _ engine.Observer = (*Telemetry)(nil)
