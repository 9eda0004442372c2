package telemetry

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// metrics are what is counted as it happens. What has a present value is in
// statsCollector.
type metrics struct {
	registry *prometheus.Registry

	runsStarted      prometheus.Counter
	runsFinished     *prometheus.CounterVec // status
	runCauses        *prometheus.CounterVec // cause
	limitsHit        *prometheus.CounterVec // limit
	runPhase         *prometheus.HistogramVec
	runCPU           prometheus.Counter
	sandboxesCreated *prometheus.CounterVec // start
	sandboxCreate    *prometheus.HistogramVec
	sandboxesEnded   *prometheus.CounterVec // cause
	queued           prometheus.Histogram
	refused          *prometheus.CounterVec // code

	requests *prometheus.CounterVec // route, method, code
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

// seconds are the buckets of every duration: from a warm start to the longest
// that a request waits.
var seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// registrar makes metrics and registers each.
type registrar struct{ *prometheus.Registry }

func (r registrar) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.MustRegister(c) // names are constants: a clash is seen by the first test
	return c
}

func (r registrar) histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, labels)
	r.MustRegister(h)
	return h
}

func (r registrar) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	r.MustRegister(g)
	return g
}

func newMetrics(version string, stats func() (engine.Stats, bool)) *metrics {
	r := registrar{prometheus.NewRegistry()}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), statsCollector{stats})
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pinfold_build_info", Help: "Always 1; the labels say what runs."}, []string{"version", "go"})
	r.MustRegister(build)
	build.WithLabelValues(sandbox.SafeText(version, 60), runtime.Version()).Set(1)
	return &metrics{
		registry:         r.Registry,
		runsStarted:      r.counter("pinfold_runs_started_total", "Runs that were begun.").WithLabelValues(),
		runsFinished:     r.counter("pinfold_runs_finished_total", "Runs that have a result, by its status.", "status"),
		runCauses:        r.counter("pinfold_run_causes_total", "Why programs of runs ended.", "cause"),
		limitsHit:        r.counter("pinfold_limits_hit_total", "Limits that ended a run or a living sandbox.", "limit"),
		runPhase:         r.histogram("pinfold_run_phase_seconds", "How long each step of a run took.", "phase"),
		runCPU:           r.counter("pinfold_run_cpu_seconds_total", "CPU time that programs of runs used.").WithLabelValues(),
		sandboxesCreated: r.counter("pinfold_sandboxes_created_total", "Sandboxes made: cold, or warm from a pool.", "start"),
		sandboxCreate:    r.histogram("pinfold_sandbox_create_seconds", "How long a request waited for its sandbox to be made.", "start"),
		sandboxesEnded:   r.counter("pinfold_sandboxes_ended_total", "Why living sandboxes ended.", "cause"),
		queued: func() prometheus.Histogram {
			h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "pinfold_queue_wait_seconds", Help: "How long requests waited to be admitted.", Buckets: seconds})
			r.MustRegister(h)
			return h
		}(),
		refused:  r.counter("pinfold_refused_total", "Requests for a sandbox that were refused, by the error's code.", "code"),
		requests: r.counter("pinfold_http_requests_total", "HTTP requests, by route, method and class of the answer.", "route", "method", "code"),
		duration: r.histogram("pinfold_http_request_seconds", "How long HTTP requests took, streams included.", "route", "method"),
		inFlight: r.gauge("pinfold_http_requests_in_flight", "HTTP requests being answered."),
	}
}

// maxScrapes bounds how many may read the metrics at once.
const maxScrapes = 4

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

func (m *metrics) runFinished(r *sandbox.Result) {
	m.runsFinished.WithLabelValues(statusLabel(r.Status)).Inc()
	m.runCauses.WithLabelValues(causeLabel(r.Cause.Kind)).Inc()
	m.limitHit(r.Cause.Kind)
	m.runCPU.Add(max(0, float64(r.Usage.CPUMS)/1000))
	for _, p := range phases(r.Timings) {
		m.runPhase.WithLabelValues(p.name).Observe(p.ms / 1000)
	}
}

func (m *metrics) limitHit(cause sandbox.CauseKind) {
	if namesLimit(cause) {
		m.limitsHit.WithLabelValues(string(cause)).Inc()
	}
}

// phase is one step of a run.
type phase struct {
	name string
	ms   float64
}

// phases returns the steps of a run in their order. A run that compiled
// nothing has no compile step.
func phases(t sandbox.Timings) []phase {
	all := []phase{{"queue", t.QueueMS}, {"create", t.CreateMS}}
	if t.CompileMS > 0 {
		all = append(all, phase{"compile", t.CompileMS})
	}
	return append(all, phase{"exec", t.ExecMS}, phase{"collect", t.CollectMS}, phase{"destroy", t.DestroyMS})
}
