package telemetry

import (
	"net/http"
	"runtime"
	"time"

	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// metrics are what is counted as it happens. What has a present value is
// written by writeStats and writeProcess.
type metrics struct {
	version string
	started time.Time
	stats   func() (engine.Stats, bool)
	scrapes chan struct{} // places for readers

	runsStarted, runsFinished, runCauses, limitsHit, runPhase, runCPU *family
	sandboxesCreated, sandboxCreate, sandboxesEnded                   *family
	connections, networkRequests, networkBytes                        *family
	networkErrors, denied, secretsUsed                                *family
	queued, refused                                                   *family
	requests, duration, inFlight                                      *family
}

// seconds are the buckets of every duration: from a warm start to the longest
// that a request waits.
var seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// maxScrapes bounds how many may read the metrics at once.
const maxScrapes = 4

func newMetrics(version string, stats func() (engine.Stats, bool)) *metrics {
	return &metrics{
		version: sandbox.SafeText(version, 60), started: time.Now(), stats: stats, scrapes: make(chan struct{}, maxScrapes),

		runsStarted:      newFamily(kindCounter, "pinfold_runs_started_total", "Runs that were begun."),
		runsFinished:     newFamily(kindCounter, "pinfold_runs_finished_total", "Runs that have a result, by its status.", "status"),
		runCauses:        newFamily(kindCounter, "pinfold_run_causes_total", "Why programs of runs ended.", "cause"),
		limitsHit:        newFamily(kindCounter, "pinfold_limits_hit_total", "Limits that ended a run or a living sandbox.", "limit"),
		runPhase:         newFamily(kindHistogram, "pinfold_run_phase_seconds", "How long each step of a run took.", "phase"),
		runCPU:           newFamily(kindCounter, "pinfold_run_cpu_seconds_total", "CPU time that programs of runs used."),
		sandboxesCreated: newFamily(kindCounter, "pinfold_sandboxes_created_total", "Sandboxes made: cold, or warm from a pool.", "start"),
		sandboxCreate:    newFamily(kindHistogram, "pinfold_sandbox_create_seconds", "How long a request waited for its sandbox to be made.", "start"),
		sandboxesEnded:   newFamily(kindCounter, "pinfold_sandboxes_ended_total", "Why living sandboxes ended.", "cause"),
		connections:      newFamily(kindCounter, "pinfold_network_connections_total", "Connections to declared endpoints, of runs and living sandboxes that have ended."),
		networkRequests:  newFamily(kindCounter, "pinfold_network_requests_total", "Requests that passed at endpoints where the host reads them."),
		networkBytes:     newFamily(kindCounter, "pinfold_network_bytes_total", "Bytes to and from declared endpoints: up is out of the sandbox.", "direction"),
		networkErrors:    newFamily(kindCounter, "pinfold_network_errors_total", "Connections to declared endpoints that came to nothing on the host's side."),
		denied:           newFamily(kindCounter, "pinfold_network_denied_total", "What programs tried to reach and were denied, of those that a result lists.", "reason"),
		secretsUsed:      newFamily(kindCounter, "pinfold_secrets_used_total", "Requests that got a secret."),
		queued:           newFamily(kindHistogram, "pinfold_queue_wait_seconds", "How long requests waited to be admitted."),
		refused:          newFamily(kindCounter, "pinfold_refused_total", "Requests for a sandbox that were refused, by the error's code.", "code"),
		requests:         newFamily(kindCounter, "pinfold_http_requests_total", "HTTP requests, by route, method and class of the answer.", "route", "method", "code"),
		duration:         newFamily(kindHistogram, "pinfold_http_request_seconds", "How long HTTP requests took, streams included.", "route", "method"),
		inFlight:         newFamily(kindGauge, "pinfold_http_requests_in_flight", "HTTP requests being answered."),
	}
}

func (m *metrics) families() []*family {
	return []*family{
		m.runsStarted, m.runsFinished, m.runCauses, m.limitsHit, m.runPhase, m.runCPU, m.sandboxesCreated, m.sandboxCreate,
		m.sandboxesEnded, m.connections, m.networkRequests, m.networkBytes, m.networkErrors, m.denied, m.secretsUsed, m.queued, m.refused, m.requests, m.duration, m.inFlight,
	}
}

// ServeHTTP writes all metrics.
func (m *metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	select {
	case m.scrapes <- struct{}{}:
		defer func() { <-m.scrapes }()
	default:
		http.Error(w, "too many read the metrics", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	p := newPage(w)
	p.head(kindGauge, "pinfold_build_info", "Always 1; the labels say what runs.")
	p.line("pinfold_build_info", labelText([]string{"version", "go"}, []string{m.version, runtime.Version()}), 1)
	for _, f := range m.families() {
		p.family(f)
	}
	if s, ok := m.stats(); ok {
		writeStats(p, s)
	}
	writeProcess(p, m.started)
	_ = p.Flush() // the reader went away
}

func (m *metrics) runFinished(r *sandbox.Result) {
	m.runsFinished.with(statusLabel(r.Status)).add(1)
	m.runCauses.with(causeLabel(r.Cause.Kind)).add(1)
	m.limitHit(r.Cause.Kind)
	m.network(r.Network)
	m.runCPU.with().add(max(0, float64(r.Usage.CPUMS)/1000))
	for _, p := range phases(r.Timings) {
		m.runPhase.with(p.name).observe(p.ms / 1000)
	}
}

// network counts what an ended sandbox did with its endpoints; nil where it had none.
func (m *metrics) network(u *sandbox.NetworkUse) {
	if u == nil {
		return
	}
	for _, e := range u.Endpoints {
		m.connections.with().add(float64(e.Connections))
		m.networkRequests.with().add(float64(e.Requests))
		m.networkBytes.with("up").add(float64(e.BytesUp))
		m.networkBytes.with("down").add(float64(e.BytesDown))
		m.networkErrors.with().add(float64(e.Errors))
		m.secretsUsed.with().add(float64(e.Secrets))
	}
	for _, d := range u.Denied {
		m.denied.with(denialLabel(d.Reason)).add(float64(d.Count))
	}
}

func (m *metrics) limitHit(cause sandbox.CauseKind) {
	if namesLimit(cause) {
		m.limitsHit.with(string(cause)).add(1)
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
