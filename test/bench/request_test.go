//go:build linux

package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pinfold/client"
	"pinfold/internal/config"
	"pinfold/internal/driver"
	"pinfold/internal/engine"
	"pinfold/internal/engine/records"
	"pinfold/internal/image"
	"pinfold/internal/serve"
	"pinfold/internal/wiring"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// clock adds up how long something took, and how often.
type clock struct{ nanos, count atomic.Int64 }

func (c *clock) since(start time.Time) {
	c.nanos.Add(int64(time.Since(start)))
	c.count.Add(1)
}

func (c *clock) reset() { c.nanos.Store(0); c.count.Store(0) }

// clocks are the parts of a request that no timing of a result tells.
type clocks struct {
	begin, finish, create, destroy, usage clock

	inside atomic.Int64 // nanoseconds of CPU in machines that are gone, as read last
}

// timedStore times the two writes of a run.
type timedStore struct {
	records.Store
	c *clocks
}

func (s timedStore) BeginRun(ctx context.Context, r records.Run) (*records.Run, error) {
	defer s.c.begin.since(time.Now())
	return s.Store.BeginRun(ctx, r)
}

func (s timedStore) FinishRun(ctx context.Context, tenant, id string, r *sandbox.Result) error {
	defer s.c.finish.since(time.Now())
	return s.Store.FinishRun(ctx, tenant, id, r)
}

// timedDriver times what its machines take.
type timedDriver struct {
	driver.Driver
	c *clocks
}

func (d timedDriver) Create(ctx context.Context, p driver.Plan) (driver.Machine, error) {
	defer d.c.create.since(time.Now())
	m, err := d.Driver.Create(ctx, p)
	if err != nil {
		return nil, err
	}
	return timedMachine{m, d.c}, nil
}

func (d timedDriver) Abilities() driver.Abilities {
	can := d.Driver.Abilities()
	can.Zygoter = d
	return can
}

func (d timedDriver) NewZygote(ctx context.Context, plan driver.Plan, spec zygote.Spec) (driver.Zygote, error) {
	p, err := d.Driver.Abilities().Zygoter.NewZygote(ctx, plan, spec)
	if err != nil {
		return nil, err
	}
	return timedZygote{p, d.c}, nil
}

type timedZygote struct {
	driver.Zygote
	c *clocks
}

func (p timedZygote) Fork(ctx context.Context, plan driver.Plan) (driver.Machine, *zygote.Child, error) {
	defer p.c.create.since(time.Now())
	m, f, err := p.Zygote.Fork(ctx, plan)
	if err != nil {
		return nil, nil, err
	}
	return timedMachine{m, p.c}, f, nil
}

type timedMachine struct {
	driver.Machine
	c *clocks
}

func (m timedMachine) Abilities() driver.MachineAbilities {
	can := m.Machine.Abilities()
	can.RunMeter = m
	return can
}

func (m timedMachine) Usage(ctx context.Context) (driver.Usage, error) {
	defer m.c.usage.since(time.Now())
	return m.Machine.Usage(ctx)
}

func (m timedMachine) BeginRun(ctx context.Context) (driver.Usage, error) {
	defer m.c.usage.since(time.Now())
	return m.Machine.Abilities().RunMeter.BeginRun(ctx)
}

func (m timedMachine) EndRun(ctx context.Context) (driver.Usage, error) {
	defer m.c.usage.since(time.Now())
	return m.Machine.Abilities().RunMeter.EndRun(ctx)
}

func (m timedMachine) Destroy(ctx context.Context) error {
	start := time.Now()
	err := m.Machine.Destroy(ctx)
	m.c.destroy.since(start)
	if err == nil {
		m.c.inside.Add(m.Death().Usage.CPUNanos)
	}
	return err
}

// measured is a server in this process, as `pinfold serve` makes it.
type measured struct {
	clocks
	url, key string
	cl       *client.Client
}

func startMeasured(b *testing.B) *measured {
	b.Helper()
	native, err := wiring.NewDriver()
	if err != nil {
		b.Skipf("build with -tags embedagent: %v", err)
	}
	m := &measured{}
	host := os.DirFS("/")
	template := sync.OnceValues(func() (image.Template, error) { return image.Host(host) })
	c := config.Default()
	c.Listen, c.State = []string{"127.0.0.1:0"}, filepath.Join(b.TempDir(), "state")
	c.Log.Level = "warn"
	c.Capacity.Sandboxes, c.Capacity.Queue = 2048, 2000
	c.Pools = []config.Pool{{Name: "machines", Min: machines, Max: 4 * machines}, {Name: "python", Language: "python", Min: machines, Max: 4 * machines}}
	if err := c.Validate(); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- serve.Serve(ctx, c, serve.Options{
			Version: "bench", Log: os.Stderr,
			NewEngine: func(o engine.Options) (*engine.Engine, error) {
				o.Host, o.Template = host, func(string) (image.Template, error) { return template() }
				o.Drivers, o.Store = []driver.Driver{timedDriver{native, &m.clocks}}, timedStore{o.Store, &m.clocks}
				return engine.New(o), nil
			},
			Say: func(line string) {
				if url, ok := strings.CutPrefix(line, "listening on "); ok {
					m.url = url
				}
				if line == "ready" {
					close(ready)
				}
			},
		})
	}()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		b.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(c.State, "first-key"))
	if err != nil {
		b.Fatal(err)
	}
	m.key = strings.TrimSpace(string(key))
	if m.cl, err = client.New(m.url, client.WithKey(m.key)); err != nil {
		b.Fatal(err)
	}
	return m
}

// full waits until the pools have what they keep.
func (m *measured) full(b *testing.B) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		pools, err := m.cl.Pools(b.Context())
		if err != nil || time.Now().After(deadline) {
			b.Fatalf("the pools do not fill: %v %+v", err, pools)
		}
		if !slices.ContainsFunc(pools, func(p sandbox.PoolInfo) bool { return p.Available < p.Min }) {
			return
		}
	}
}

// What is measured, and how many machines and interpreters wait for it.
const (
	printCold = `{"language": "python", "code": "print(1)", "cold": true}`
	printWarm = `{"language": "python", "code": "print(1)"}`
	machines  = 16
	warmUp    = 20
)

// BenchmarkRequest says where the time of POST /v1/runs goes in the server:
// wall and CPU of each part. The table in docs/benchmarks.md is its:
//
//	make build && go test -tags embedagent -v -run '^$' -bench Request -benchtime 500x ./test/bench
//
// PINFOLD_BENCH_PROFILE names a directory for the CPU profiles.
func BenchmarkRequest(b *testing.B) {
	var t phases
	for _, c := range []struct {
		name, body string
		width      int
	}{{"cold, 1 at a time", printCold, 1}, {"cold, 4 at a time", printCold, 4}, {"warm, 1 at a time", printWarm, 1}, {"warm, 4 at a time", printWarm, 4}} {
		var last *column
		if ok := b.Run(c.name, func(b *testing.B) { last = measure(b, c.body, c.width) }); ok && last != nil {
			last.name = c.name
			t = append(t, last)
		}
	}
	if len(t) > 0 {
		b.Log("\n" + t.String())
	}
}

// column is what was measured of one load, for each request: milliseconds.
type column struct {
	name string
	loaded
	wall, cpu map[string]float64
	readings  float64
}

func measure(b *testing.B, body string, width int) *column {
	b.Helper()
	m := startMeasured(b)
	m.full(b)
	m.load(b, body, warmUp, width)
	m.full(b)
	for _, c := range []*clock{&m.begin, &m.finish, &m.create, &m.destroy, &m.usage} {
		c.reset()
	}
	m.inside.Store(0)
	file := filepath.Join(b.TempDir(), "cpu")
	if keep := os.Getenv("PINFOLD_BENCH_PROFILE"); keep != "" {
		file = filepath.Join(keep, strings.NewReplacer("/", "-", ",", "").Replace(b.Name()))
	}
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		b.Fatal(err)
	}
	server := cpuTime(b)
	l := m.load(b, body, b.N, width)
	server = cpuTime(b) - server
	m.full(b) // until what was used up is there again: its cost is part of it
	pprof.StopCPUProfile()
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	n := float64(b.N)
	each := func(c *clock) float64 { return float64(c.nanos.Load()) / 1e6 / max(1, float64(c.count.Load())) }
	x := &column{loaded: l, cpu: map[string]float64{}, readings: float64(m.usage.count.Load()) / n}
	store := each(&m.begin) + each(&m.finish)
	x.wall = map[string]float64{
		partHTTP: l.HTTP, partQueue: l.Queue, partStore: store, partCreate: l.Create, partExec: l.Exec, partCollect: l.Collect,
		partStart: l.Request - l.HTTP - l.Queue - store - l.Create - l.Exec - l.Collect, partDestroy: each(&m.destroy), partPool: each(&m.create),
	}
	for part, share := range shares(b, file) {
		x.cpu[part] = share * server / n
	}
	server -= x.cpu[partNotOurs] * n
	x.cpu[partServer], x.cpu[partInside] = server/n, float64(m.inside.Load())/1e6/n
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(l.Request, "ms")
	b.ReportMetric(server/n, "server-cpu-ms")
	return x
}

// cpuTime is what this process has used so far, without its children, in
// milliseconds.
func cpuTime(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}

// Parts of a request, in the words of the table.
const (
	partHTTP    = "HTTP: reading, key, limits, answer"
	partQueue   = "queue"
	partStore   = "store: two records"
	partCreate  = "create: a machine is taken, the program put into it"
	partStart   = "start: asked for, until it runs; and the rest"
	partExec    = "exec"
	partCollect = "collect"
	partEngine  = "deciding: plan, languages, verdict"
	partGuest   = "frames to and from the agents"
	partUsage   = "the counters"
	partRuntime = "Go's scheduler"
	partGC      = "Go's garbage collector"
	partDestroy = "behind the answer: destroy"
	partPool    = "a machine for the pool, or forked for the request"
	partServer  = "the server together"
	partNotOurs = "" // what a server does once, at its start: it is no request's
	partInside  = "in the sandboxes"
)

// shares says how much of a profile each part has.
func shares(b *testing.B, file string) map[string]float64 {
	b.Helper()
	out, err := exec.Command("go", "tool", "pprof", "-traces", file).Output()
	if err != nil {
		b.Fatal(err)
	}
	sums, total := map[string]float64{}, 0.0
	// A sample is its time and its innermost function, its callers, and a line.
	for block := range bytes.SplitSeq(out, []byte("-----------+-------------------------------------------------------\n")) {
		fields := strings.Fields(string(block))
		if len(fields) < 2 {
			continue
		}
		took, err := time.ParseDuration(fields[0])
		if err != nil {
			continue
		}
		sums[partOf(fields[1:])] += float64(took)
		total += float64(took)
	}
	for part := range sums {
		sums[part] /= total
	}
	return sums
}

// partOf says which part a stack belongs to: the first that has a function in it.
func partOf(stack []string) string {
	for _, p := range []struct {
		part      string
		functions []string
	}{
		{partNotOurs, []string{"image.Template.Fingerprint"}},
		{partGC, []string{"runtime.gcBgMarkWorker", "runtime.gcStart", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcAssistAlloc"}},
		{partStore, []string{"pinfold/internal/store", "modernc.org/"}},
		{partUsage, []string{"native.(*meter)", "execution.(*watch)", "execution.(*Session).Watch"}},
		{partDestroy, []string{"Machine.Destroy", "native.(*machine).watch"}},
		{partPool, []string{"timedDriver.", "timedZygote.", "execution.Open", "pinfold/internal/engine/pool", "supervisor.(*Supervisor)"}},
		{partGuest, []string{"pinfold/internal/guest", "pinfold/internal/wire"}},
		{partEngine, []string{"pinfold/internal/engine", "pinfold/internal/zygote", "pinfold/internal/interpreter", "pinfold/internal/driver", "pinfold/internal/linux"}},
		{partHTTP, []string{"net/http.", "pinfold/internal/"}},
	} {
		for _, f := range stack {
			if slices.ContainsFunc(p.functions, func(w string) bool { return strings.Contains(f, w) }) {
				return p.part
			}
		}
	}
	return partRuntime
}

// phases is the table.
type phases []*column

func (t phases) String() string {
	var s strings.Builder
	s.WriteString("| milliseconds of one request |")
	for _, c := range t {
		fmt.Fprintf(&s, " %s: wall | CPU |", c.name)
	}
	s.WriteString("\n|---|" + strings.Repeat("--:|--:|", len(t)) + "\n")
	parts := []string{partHTTP, partQueue, partStore, partCreate, partStart, partExec, partCollect, partEngine, partGuest, partUsage, partRuntime, partGC, partDestroy, partPool, partServer, partInside}
	for _, p := range parts {
		fmt.Fprintf(&s, "| %s |", p)
		for _, c := range t {
			fmt.Fprintf(&s, " %s | %s |", cell(c.wall, p), cell(c.cpu, p))
		}
		s.WriteString("\n")
	}
	for _, c := range t {
		fmt.Fprintf(&s, "\n- %s: %.1f ms from the request to the answer, %.0f a second; %d found an interpreter; %.1f readings of the counters each", c.name, c.Request, c.PerSecond, c.Warm, c.readings)
	}
	return s.String()
}

func cell(values map[string]float64, part string) string {
	v, ok := values[part]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.1f", v)
}
