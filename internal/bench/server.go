package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
)

// Our own server's pools.
const (
	burstSize  = 100 // requests at once
	poolSize   = 16  // sandboxes that wait
	warmPrefix = "bench-warm-"
)

// serverConfig gives nobody a reason to wait but the machine.
const serverConfig = `
pools:
  - {name: bench, min: 16}
%scapacity:
  sandboxes: 2048
  cpus: 100000
  queue: 2000
ttl:
  max: 2h
log:
  level: warn
`

// server is the Pinfold server that is measured.
type server struct {
	base  string // http://…
	head  map[string]string
	http  http.RoundTripper
	cl    *client.Client
	child *child // nil: somebody else's
	warm  bool   // it takes warm interpreters

	warmKind string // what they are, for the report

	slow atomic.Bool // its pools do not fill: nobody waits for them

	mu     sync.Mutex
	phases map[string][]sandbox.Timings // by contender and workload
	asked  int                          // runs for which a warm interpreter was wanted
	found  int                          // of them, those that got one
}

// openServer connects to the server that was named, or starts one with a pool.
// Without one the parts that need it say so.
func (s *session) openServer() {
	var err error
	if s.o.Server != "" {
		s.server, err = connect(s.o.Server, s.o.Key)
		if err == nil {
			err = s.server.cl.Ready(s.ctx)
		}
	} else {
		s.server, err = s.startServer()
	}
	if err != nil {
		s.server = nil
		s.fail(fmt.Errorf("the server: %w", err))
		return
	}
	s.server.warm = s.server.takesWarm(s.ctx)
	if !s.server.warm {
		s.leftOut = append(s.leftOut, "warm interpreters: not in this build of the server")
	}
	s.o.Progress("filling the server's pools")
	if err := s.server.fill(s.ctx); err != nil {
		s.leftOut = append(s.leftOut, err.Error())
	}
	s.server.warmKind = s.server.kindOfWarm(s.ctx)
}

// kindOfWarm says what the interpreters are that wait in the server's pools.
func (sv *server) kindOfWarm(ctx context.Context) string {
	pools, err := sv.cl.Pools(ctx)
	if err == nil && slices.ContainsFunc(pools, func(p sandbox.PoolInfo) bool { return p.Interpreters == "forked" }) {
		return "a fork of a warm interpreter"
	}
	return "an interpreter that waits"
}

// connect makes the clients of a server. Requests for runs are sent without the
// client's patience: a refusal is a refusal.
func connect(address, key string) (*server, error) {
	cl, err := client.New(address, client.WithKey(key), client.WithPatience(0))
	if err != nil {
		return nil, err
	}
	sv := &server{base: strings.TrimSuffix(address, "/"), head: map[string]string{}, cl: cl, phases: map[string][]sandbox.Timings{}}
	transport := &http.Transport{MaxIdleConns: 2 * burstSize, MaxIdleConnsPerHost: 2 * burstSize}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		sv.base = "http://pinfold"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
	}
	sv.http = transport
	if key != "" {
		sv.head["Authorization"] = "Bearer " + key
	}
	return sv, nil
}

const readyTimeout = 60 * time.Second

// startServer starts a server of our own on a loopback address: with warm pools,
// or, where its configuration does not know them, without.
func (s *session) startServer() (*server, error) {
	var pools strings.Builder
	fmt.Fprintf(&pools, "  - {name: %sprint, language: python, min: %d}\n", warmPrefix, poolSize)
	if s.data {
		fmt.Fprintf(&pools, "  - {name: %sdata, language: python, warm: [%s], min: %d}\n", warmPrefix, strings.Join(dataModules(), ", "), s.dataPool())
	}
	sv, err := s.launch("warm", fmt.Sprintf(serverConfig, pools.String()))
	if err != nil && strings.Contains(err.Error(), "language") && s.ctx.Err() == nil {
		return s.launch("plain", fmt.Sprintf(serverConfig, ""))
	}
	return sv, err
}

// dataPool is how many interpreters with modules wait. Each takes a second of a
// core to start, which is too much for a quick look.
func (s *session) dataPool() int {
	if s.o.Quick {
		return poolSize / 4
	}
	return poolSize
}

// launch starts a server with a configuration and what is added to its environment.
func (s *session) launch(name, config string, env ...string) (*server, error) {
	state := filepath.Join(s.dir, "server-"+name)
	if err := os.Mkdir(state, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(state, "pinfold.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	address, err := freeAddress(s.ctx)
	if err != nil {
		return nil, err
	}
	c, err := startChild([]string{s.o.Program, "serve", "--config", file, "--state", state, "--listen", address}, env...)
	if err != nil {
		return nil, err
	}
	var sv *server
	for deadline := time.Now().Add(readyTimeout); ; s.sleep(10 * time.Millisecond) {
		if sv == nil {
			if key, err := os.ReadFile(filepath.Join(state, "first-key")); err == nil && len(key) > 0 { //nolint:gosec // below our own directory
				if sv, err = connect("http://"+address, strings.TrimSpace(string(key))); err != nil {
					return nil, errors.Join(err, c.stop())
				}
			}
		} else if sv.cl.Ready(s.ctx) == nil {
			break
		}
		switch {
		case s.ctx.Err() != nil:
			return nil, errors.Join(s.ctx.Err(), c.stop())
		case c.ended():
			return nil, fmt.Errorf("it ended: %s", sandbox.SafeText(c.said(), 600))
		case time.Now().After(deadline):
			return nil, errors.Join(fmt.Errorf("it is not ready: %s", c.lastLine()), c.stop())
		}
	}
	sv.child = c
	s.closers = append(s.closers, sv.close)
	return sv, nil
}

func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close() //nolint:errcheck // only its address is wanted
	return l.Addr().String(), nil
}

func (sv *server) close() error {
	_ = sv.cl.Close() // idle connections only
	if sv.child == nil {
		return nil
	}
	return sv.child.stop()
}

// takesWarm asks for a run that would be cold anyway. A server that has no warm
// interpreters does not know the word.
func (sv *server) takesWarm(ctx context.Context) bool {
	var res sandbox.Result
	err := ask(ctx, sv.http, http.MethodPost, sv.base+"/v1/runs", sv.head,
		map[string]any{"language": "python", "code": "print(1)", "cold": true}, &res)
	return err == nil && res.Status == sandbox.StatusSucceeded
}

// request is the body of POST /v1/runs for a workload.
func (sv *server) request(w workload, warm bool) map[string]any {
	body := map[string]any{"language": "python", "code": w.code}
	if w.code == "" {
		body = map[string]any{"language": "sh", "code": "exec " + strings.Join(w.args, " ")}
	}
	switch {
	case warm && len(w.modules) > 0:
		body["warm"] = w.modules
	case !warm && sv.warm:
		body["cold"] = true
	}
	return body
}

// run asks for one run and checks its result.
func (sv *server) run(ctx context.Context, w workload, warm bool) (*sandbox.Result, error) {
	var res sandbox.Result
	if err := ask(ctx, sv.http, http.MethodPost, sv.base+"/v1/runs", sv.head, sv.request(w, warm), &res); err != nil {
		return nil, err
	}
	if res.Status != sandbox.StatusSucceeded || strings.TrimSpace(res.Stdout) != w.want {
		return nil, fmt.Errorf("the run %s: %s, %+v, stdout \"%s\", stderr \"%s\"", res.ID, res.Status, res.Cause,
			sandbox.SafeText(res.Stdout, 100), sandbox.SafeText(res.Stderr, 300))
	}
	if warm {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		sv.asked++
		if res.Warm {
			sv.found++
		}
	}
	return &res, nil
}

// warmShare says how many of the runs since the last call found an interpreter
// waiting; the others started one, and are part of the numbers.
func (sv *server) warmShare() string {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	asked, found := sv.asked, sv.found
	sv.asked, sv.found = 0, 0
	if asked == found {
		return ""
	}
	return fmt.Sprintf("%d of %d runs that wanted a warm interpreter found one waiting; the others started their own", found, asked)
}

// Names of the contenders that targets are about.
const (
	serverRun     = "POST /v1/runs, cold"
	serverRunWarm = "POST /v1/runs, warm"
)

// contenders are the ways to have a run from the server.
func (sv *server) contenders() []*contender {
	limits := ourLimits()
	note := limits + "; a pool of " + fmt.Sprint(poolSize)
	if sv.child == nil {
		limits = "fresh"
		note = "fresh; the server that was named"
	}
	make1 := func(name, note string, warm bool, only ...string) *contender {
		return &contender{name: name, note: note, ours: true, settle: sv.settled, only: only, run: func(ctx context.Context, w workload) error {
			res, err := sv.run(ctx, w, warm)
			if err == nil {
				sv.mu.Lock()
				defer sv.mu.Unlock()
				sv.phases[name+" "+w.id] = append(sv.phases[name+" "+w.id], res.Timings)
			}
			return err
		}}
	}
	all := []*contender{make1(serverRun, note, false)}
	if sv.warm {
		all = append(all, make1(serverRunWarm, limits+"; "+sv.warmKind, true, "print", "data"))
	}
	return all
}

// settled waits between two turns of one at a time: the pools fill, and what was
// used is destroyed. Pools that do not keep up are not waited for long.
func (sv *server) settled(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
		sv.poolsFull(ctx, 2*time.Second)
	}
}

// poolsFull waits until every pool has what it keeps, where we may know, and
// says whether it came to that.
func (sv *server) poolsFull(ctx context.Context, patience time.Duration) bool {
	if sv.slow.Load() {
		return false
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		pools, err := sv.cl.Pools(ctx)
		if err != nil || !slices.ContainsFunc(pools, func(p sandbox.PoolInfo) bool { return p.Available < p.Min }) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
	return false
}

// fillTimeout is how long pools may take to fill at the beginning: every
// interpreter with modules takes a second of a core.
const fillTimeout = 3 * time.Minute

// fill waits for the pools. Where they do not fill nothing waits for them again.
func (sv *server) fill(ctx context.Context) error {
	if full := sv.poolsFull(ctx, fillTimeout); full {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	sv.slow.Store(true)
	why := ""
	if pools, err := sv.cl.Pools(ctx); err == nil {
		for _, p := range pools {
			if p.Available < p.Min {
				why += fmt.Sprintf("; %s has %d of %d", p.Name, p.Available, p.Min)
			}
			if p.Error != nil {
				why += ": " + p.Error.Message
			}
		}
	}
	return fmt.Errorf("the pools are not full after %v%s", fillTimeout, why)
}
