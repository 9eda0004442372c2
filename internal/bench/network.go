package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"pinfold/client"
	"pinfold/internal/bench/load"
	"pinfold/sandbox"
)

// requestRate is how many requests a second are sent, whether or not answers come.
const requestRate = 500

// leg is one way to one of the servers.
type leg struct {
	what  string // "plain HTTP", a row's first half
	way   string
	floor *leg // what is direct; nil: this one
	host  string
	do    func(ctx context.Context, t load.Task) (string, error)
	seen  sample
	speed sample
}

// Names of the ways and of what is asked.
const (
	wayDirect   = "direct"
	wayEndpoint = "endpoint"

	askPlain = "HTTP"
	askTLS   = "TLS passed through"
	askEnded = "TLS ended"
)

// rowOf names a row of the tables of requests.
func rowOf(kind, what, way string) string { return fmt.Sprintf("%s, %s: %s", what, kind, way) }

// Kinds of connections.
const (
	kindKept = "kept connections"
	kindNew  = "a connection each"
)

// network measures what declared endpoints cost: a request, a stream, a sandbox, a run.
func (s *session) network() error {
	if s.o.Server != "" {
		s.o.Progress("network: left out, its servers are on loopback and the server that was named does not let sandboxes go there")
		return nil
	}
	w, err := s.openWays()
	if err != nil {
		return err
	}
	x, err := w.box(s.ctx)
	if err != nil {
		return err
	}
	err = s.networkRequests(w, x)
	if err == nil {
		err = s.networkStream(w, x)
	}
	destroy(x)
	if err == nil {
		err = s.networkMemory(w)
	}
	if err == nil {
		err = s.networkUnused(w)
	}
	return err
}

// box is a sandbox that may reach the names, with the client in it, which has all processors
// as the one outside has: what is measured is the way, not a limit.
func (w *ways) box(ctx context.Context) (*client.Sandbox, error) {
	n := w.declared()
	n.Limits = sandbox.NetworkLimits{Connections: 1024, Requests: 1_000_000_000, BytesUp: 1 << 40, BytesDown: 1 << 40}
	x, err := w.server.cl.Create(ctx, sandbox.Create{
		TTLMS: time.Hour.Milliseconds(), Network: n,
		Limits: sandbox.Limits{CPUs: float64(runtime.NumCPU()), MemoryBytes: 1 << 30, Processes: 256, OpenFiles: 4096, DiskBytes: 512 << 20, FileSizeBytes: 256 << 20},
	})
	if err != nil {
		return nil, err
	}
	if err := w.upload(ctx, x); err != nil {
		destroy(x)
		return nil, err
	}
	return x, nil
}

// inside has the client do a task in a sandbox.
func inside(x *client.Sandbox) func(context.Context, load.Task) (string, error) {
	return func(ctx context.Context, t load.Task) (string, error) {
		var out, errs bounded
		p, err := x.Exec(ctx, sandbox.Command{Args: []string{"./client", load.Command, text(t)}}, client.ExecOptions{Stdout: &out, Stderr: &errs})
		if err == nil && p.Status != sandbox.StatusSucceeded {
			err = fmt.Errorf("%s: %+v: %s", p.Status, p.Cause, sandbox.SafeText(errs.String(), 300))
		}
		return out.String(), err
	}
}

// text is a task as an argument.
func text(t load.Task) string {
	b, _ := json.Marshal(t) // plain data
	return string(b)
}

// legs are the ways to the servers: direct, through the proxy where it is there, and through
// declared endpoints.
func (w *ways) legs(x *client.Sandbox) []*leg {
	var all []*leg
	for _, k := range [][2]string{{askPlain, hostPlain}, {askTLS, hostTLS}, {askEnded, hostEnded}} {
		what, host := k[0], k[1]
		at := func(address string) func(context.Context, load.Task) (string, error) {
			return func(ctx context.Context, t load.Task) (string, error) {
				t.Dial = address
				return w.outside(ctx, t)
			}
		}
		floor := &leg{what: what, way: wayDirect, host: host, do: at(w.address(host))}
		if all = append(all, floor); w.proxy != nil {
			all = append(all, &leg{what: what, way: proxyProgram, floor: floor, host: host, do: at(w.proxy[host])})
		}
		in := inside(x)
		all = append(all, &leg{what: what, way: wayEndpoint, floor: floor, host: host, do: func(ctx context.Context, t load.Task) (string, error) {
			if host != hostEnded {
				t.CA = w.ca // elsewhere the sandbox trusts its own authority
			}
			return in(ctx, t)
		}})
	}
	return all
}

// ask has a leg's client do a task, and reads what it saw.
func (l *leg) ask(ctx context.Context, t load.Task) (seen load.Seen, err error) {
	t.Wait = time.Minute
	out, err := l.do(ctx, t)
	if err == nil {
		err = json.Unmarshal([]byte(out), &seen)
	}
	if err == nil && len(seen.Latencies) == 0 {
		err = errors.New("nothing was measured")
	}
	if err != nil {
		return seen, fmt.Errorf("%s, %s: %w", l.what, l.way, err)
	}
	return seen, nil
}

// networkRequests measures requests at a constant rate.
func (s *session) networkRequests(w *ways, x *client.Sandbox) error {
	rounds, seconds := 5, 2*time.Second
	switch {
	case s.o.Quick:
		rounds, seconds = 1, 200*time.Millisecond
	case s.o.Long:
		rounds = 15
	}
	count := int(requestRate * seconds / time.Second)
	sec, done := s.section("network", fmt.Sprintf("Declared endpoints: %d requests a second", requestRate), fmt.Sprintf(
		"One client, inside a sandbox and outside of one, with all processors, sends requests to servers on loopback at a constant rate, %d times %d in turns. A latency is from when a request was to be sent to the end of its answer of 100 bytes, so that what is late counts for those behind it. \"Direct\" is the client outside, with nothing between; \"added\" compares with that. HTTP is read request by request, also where TLS is not ended; TLS is ended where methods or paths are declared, and by %s in the same way: its rule is that of the declaration.", rounds, count, proxyProgram))
	defer done()
	w.note(sec)
	for _, kind := range []string{kindKept, kindNew} {
		legs := w.legs(x)
		for round := range rounds {
			for i := range legs {
				l := legs[(i+round)%len(legs)]
				s.o.Progress("network: " + rowOf(kind, l.what, l.way))
				seen, err := l.ask(s.ctx, load.Task{URL: w.url(l.host, ""), Rate: requestRate, Count: count, New: kind == kindNew})
				if err != nil {
					return err
				}
				l.seen = append(l.seen, seen.Latencies...)
			}
		}
		t := &Table{ID: "network-requests", Title: strings.ToUpper(kind[:1]) + kind[1:] + ":", First: "what", Columns: append(spread(),
			Column{"added_median_ms", "added: median", UnitMS}, Column{"added_p99_ms", "added: p99", UnitMS})}
		for _, l := range legs {
			median, p99 := none, none
			if l.floor != nil {
				median, p99 = added(l.seen, l.floor.seen, 0.5), added(l.seen, l.floor.seen, 0.99)
			}
			t.Add(rowOf(kind, l.what, l.way), "", append(l.seen.values(), median, p99)...)
		}
		sec.Tables = append(sec.Tables, t)
	}
	return nil
}

// added is what a quantile is above that of another sample; below zero where noise was more.
func added(a, b sample, q float64) float64 { return ms(a.at(q)) - ms(b.at(q)) }

// note says what the proxy is, or that there is none.
func (w *ways) note(sec *Section) {
	if w.proxy == nil {
		sec.Note("left out: %s", w.proxyWhy)
		return
	}
	sec.Note("the proxy beside: %s", w.proxyIs)
}

// networkStream measures one connection with a long answer.
func (s *session) networkStream(w *ways, x *client.Sandbox) error {
	size, rounds := int64(2<<30), 5
	if s.o.Quick {
		size, rounds = 16<<20, 1
	}
	sec, done := s.section("network", "Declared endpoints: one connection", fmt.Sprintf("One answer of %d MiB over HTTP/1.1, %d times in turns; from the request to its last byte.", size>>20, rounds))
	defer done()
	w.note(sec)
	legs := w.legs(x)
	for round := range rounds {
		for i := range legs {
			l := legs[(i+round)%len(legs)]
			seen, err := l.ask(s.ctx, load.Task{URL: w.url(l.host, fmt.Sprintf("?n=%d", size))})
			if err == nil && seen.Bytes != size {
				err = fmt.Errorf("%s, %s: %d bytes came", l.what, l.way, seen.Bytes)
			}
			if err != nil {
				return err
			}
			l.speed = append(l.speed, seen.Latencies[0])
		}
	}
	t := &Table{ID: "network-stream", First: "what", Columns: []Column{
		{"median_mb_s", "median", UnitSpeed}, {"best_mb_s", "best", UnitSpeed}, {"beside_direct", "beside direct", UnitTimes},
	}}
	speed := func(d time.Duration) float64 { return float64(size) / 1e6 / d.Seconds() }
	for _, l := range legs {
		beside := 1.0
		if l.floor != nil {
			beside = over(speed(l.speed.median()), speed(l.floor.speed.median()))
		}
		t.Add(l.what+": "+l.way, "", speed(l.speed.median()), speed(l.speed.at(0)), beside)
	}
	sec.Tables = append(sec.Tables, t)
	return nil
}
