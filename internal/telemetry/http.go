package telemetry

import (
	"bufio"
	"cmp"
	"net"
	"net/http"
	"time"
)

// Middleware counts, times and traces requests. It must stand outside the
// router: the route is known only when the answer is done.
func (t *Telemetry) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		t.metrics.inFlight.with().add(1)
		defer t.metrics.inFlight.with().add(-1)
		watched := &answer{ResponseWriter: w}
		finish := t.tracer.request(r, start)
		defer func() { // also when a handler panics to break the connection off
			route, method := routeLabel(r.Pattern), methodLabel(r.Method)
			status := watched.result()
			t.metrics.requests.with(route, method, classLabel(status)).add(1)
			t.metrics.duration.with(route, method).observe(time.Since(start).Seconds())
			finish(route, method, status)
		}()
		next.ServeHTTP(watched, r)
	})
}

// answer remembers the status of a response. Everything else that the
// ResponseWriter below can do is reached through Unwrap, as http.ResponseController
// does.
type answer struct {
	http.ResponseWriter

	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.status = cmp.Or(a.status, http.StatusOK)
	return a.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (a *answer) Flush() {
	a.status = cmp.Or(a.status, http.StatusOK)
	_ = http.NewResponseController(a.ResponseWriter).Flush() // a writer that cannot flush keeps nothing back
}

// Hijack implements http.Hijacker. Who hijacks a connection writes the answer
// by itself, to change the protocol.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil && a.status == 0 {
		a.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// Unwrap returns the writer below, for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// result is the status that the client saw: a handler that writes nothing
// answers 200.
func (a *answer) result() int {
	if a.status == 0 {
		return http.StatusOK
	}
	return a.status
}
