package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
	"pinfold/test/server"
)

// servedConfig has a pool that is never the bottleneck.
const servedConfig = `
pools:
  - name: default
    min: 16
capacity:
  sandboxes: 2048
ttl:
  max: 2h
`

// served starts a server and measures what its users wait for.
func served(ctx context.Context, o options, r *report) error {
	dir, err := os.MkdirTemp("", "pf")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	program, err := filepath.Abs(o.pinfold)
	if err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	s, err := server.Start(ctx, server.Options{Program: program, State: dir, Config: servedConfig, Args: []string{"--listen", address}})
	if err != nil {
		return err
	}
	defer s.Kill() //nolint:errcheck // when something failed before Stop
	key, err := os.ReadFile(filepath.Join(dir, "first-key"))
	if err != nil {
		return err
	}
	cl, err := client.New("http://"+address, client.WithKey(strings.TrimSpace(string(key))))
	if err != nil {
		return err
	}
	defer cl.Close() //nolint:errcheck // connections only
	b := &servedBench{ctx: ctx, o: o, r: r, s: s, cl: cl}
	for _, part := range []func() error{b.runs, b.processes, b.files, b.output, b.density} {
		if err := part(); err != nil {
			return err
		}
	}
	return s.Stop()
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close() //nolint:errcheck // only its address is wanted
	return l.Addr().String(), nil
}

type servedBench struct {
	ctx context.Context //nolint:containedctx // one benchmark, one context
	o   options
	r   *report
	s   *server.Server
	cl  *client.Client
}

// runOnce asks for one run over HTTP.
func (b *servedBench) runOnce() (*sandbox.Result, error) {
	res, err := b.cl.Run(b.ctx, sandbox.Spec{Language: "python", Code: "print(1)"}, client.RunOptions{})
	if err == nil && (res.Status != sandbox.StatusSucceeded || res.Stdout != "1\n") {
		err = fmt.Errorf("%s: %+v, stdout %q, stderr %q", res.Status, res.Cause, res.Stdout, res.Stderr)
	}
	return res, err
}

func (b *servedBench) runs() error {
	b.r.section("A server with a warm pool: `POST /v1/runs` of `print(1)`, a fresh sandbox each, over loopback")
	var bare, ours sample
	var parts sandbox.Timings
	for round := range b.o.rounds + 3 {
		d, err := once(b.ctx, []string{python, "-c", "print(1)"})
		if err != nil {
			return err
		}
		began := time.Now()
		res, err := b.runOnce()
		if err != nil {
			return err
		}
		if took := time.Since(began); round >= 3 {
			bare, ours = append(bare, d), append(ours, took)
			parts.QueueMS += res.Timings.QueueMS
			parts.CreateMS += res.Timings.CreateMS
			parts.ExecMS += res.Timings.ExecMS
			parts.CollectMS += res.Timings.CollectMS
		}
		time.Sleep(5 * time.Millisecond) // one at a time: the pool fills meanwhile
	}
	n := float64(len(ours))
	b.r.table([][]string{
		{"what", "median", "p95", "beside bare"},
		{"bare python3, no isolation", ms(bare.median()), ms(bare.at(0.95)), "1.00 ×"},
		{"POST /v1/runs", ms(ours.median()), ms(ours.at(0.95)), ratio(ours.median(), bare.median())},
	})
	b.r.line("\nOf it on average: queue %.2f ms, create %.2f ms (a warm sandbox, and the program's file), exec %.2f ms, collect %.2f ms; the sandbox is destroyed after the answer.\n",
		parts.QueueMS/n, parts.CreateMS/n, parts.ExecMS/n, parts.CollectMS/n)
	b.r.target("at most 1.1 × bare python3", float64(ours.median()) <= 1.1*float64(bare.median()), ratio(ours.median(), bare.median()))
	return b.throughput()
}

// throughput runs four at a time, for some seconds each.
func (b *servedBench) throughput() error {
	const together, span = 4, 10 * time.Second
	bare, err := rate(together, span, func() error { _, err := once(b.ctx, []string{python, "-c", "print(1)"}); return err })
	if err != nil {
		return err
	}
	ours, err := rate(together, span, func() error { _, err := b.runOnce(); return err })
	if err != nil {
		return err
	}
	b.r.line("")
	b.r.table([][]string{
		{fmt.Sprintf("%d at a time, %v", together, span), "per second", "beside bare"},
		{"bare python3", fmt.Sprintf("%.0f", bare), "1.00 ×"},
		{"POST /v1/runs", fmt.Sprintf("%.0f", ours), fmt.Sprintf("%.2f ×", ours/bare)},
	})
	b.r.line("")
	b.r.target("at least 0.9 × the throughput of bare python3", ours >= 0.9*bare, fmt.Sprintf("%.2f ×", ours/bare))
	return nil
}

// rate does something over and over, so many at a time, and says how often a
// second.
func rate(together int, span time.Duration, do func() error) (float64, error) {
	began := time.Now()
	var wg sync.WaitGroup
	counts, errs := make([]int, together), make([]error, together)
	for i := range together {
		wg.Go(func() {
			for time.Since(began) < span && errs[i] == nil {
				errs[i] = do()
				counts[i]++
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / took.Seconds(), errors.Join(errs...)
}

func (b *servedBench) processes() error {
	b.r.section("A process in a living sandbox: `/bin/true` over HTTP")
	x, err := b.cl.Create(b.ctx, sandbox.Create{})
	if err != nil {
		return err
	}
	var ours sample
	for round := range b.o.rounds + 3 {
		d, err := execTrue(b.ctx, x)
		if err != nil {
			return err
		}
		if round >= 3 {
			ours = append(ours, d)
		}
	}
	rows := [][]string{{"what", "median", "p95"}, {"pinfold", ms(ours.median()), ms(ours.at(0.95))}}
	if d, err := dockerExec(b.ctx, b.o.rounds/2); err != nil {
		b.r.line("- left out: docker exec: %v", err)
	} else {
		rows = append(rows, []string{"docker exec, the command line", ms(d.median()), ms(d.at(0.95))})
	}
	b.r.table(rows)
	b.r.line("")
	b.r.target("at most 3 ms", ours.median() <= 3*time.Millisecond, ms(ours.median()))
	_, err = x.Destroy(b.ctx)
	return err
}

func execTrue(ctx context.Context, x *client.Sandbox) (time.Duration, error) {
	began := time.Now()
	p, err := x.Exec(ctx, sandbox.Command{Args: []string{"/bin/true"}}, client.ExecOptions{})
	if err == nil && p.Status != sandbox.StatusSucceeded {
		err = fmt.Errorf("/bin/true: %+v", p)
	}
	return time.Since(began), err
}

// zeros is an endless file.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

const fileSize = 512 << 20

func (b *servedBench) files() error {
	b.r.section("Files over loopback, 512 MiB each, up and down five times")
	x, err := b.cl.Create(b.ctx, sandbox.Create{Limits: sandbox.Limits{DiskBytes: 2 << 30, MemoryBytes: 1 << 30}})
	if err != nil {
		return err
	}
	before := b.memory()
	highest := before
	var up, down sample
	for range 5 {
		began := time.Now()
		if err := x.WriteFile(b.ctx, "f", 0o644, fileSize, io.LimitReader(zeros{}, fileSize)); err != nil {
			return err
		}
		up = append(up, time.Since(began))
		began = time.Now()
		if n, err := x.ReadFile(b.ctx, "f", 0, -1, io.Discard); err != nil || n != fileSize {
			return fmt.Errorf("read %d bytes: %w", n, err)
		}
		down = append(down, time.Since(began))
		highest = max(highest, b.memory())
	}
	speed := func(d time.Duration) float64 { return fileSize / 1e6 / d.Seconds() }
	b.r.table([][]string{
		{"what", "median", "best"},
		{"up", fmt.Sprintf("%.0f MB/s", speed(up.median())), fmt.Sprintf("%.0f MB/s", speed(up.at(0)))},
		{"down", fmt.Sprintf("%.0f MB/s", speed(down.median())), fmt.Sprintf("%.0f MB/s", speed(down.at(0)))},
	})
	b.r.line("")
	b.r.target("at least 500 MB/s up and down", speed(up.median()) >= 500 && speed(down.median()) >= 500, fmt.Sprintf("%.0f and %.0f MB/s", speed(up.median()), speed(down.median())))
	b.r.line("- the server's memory while 5 GiB passed: %d MB before, at most %d MB", before>>20, highest>>20)
	_, err = x.Destroy(b.ctx)
	return err
}

func (b *servedBench) output() error {
	b.r.section("Output: 1 GB through a stream")
	x, err := b.cl.Create(b.ctx, sandbox.Create{})
	if err != nil {
		return err
	}
	before := b.memory()
	highest := before
	var n counter
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
				highest = max(highest, b.memory())
			}
		}
	}()
	began := time.Now()
	p, err := x.Exec(b.ctx, sandbox.Command{Shell: "head -c 1000000000 /dev/zero | tr '\\0' x"}, client.ExecOptions{Stdout: &n})
	took := time.Since(began)
	done <- struct{}{}
	if err != nil || n != 1_000_000_000 {
		return fmt.Errorf("%d bytes came: %w, %+v", n, err, p.Cause)
	}
	b.r.line("1 GB in %.1f s (%.0f MB/s); the server's memory: %d MB before, at most %d MB", took.Seconds(), 1000/took.Seconds(), before>>20, highest>>20)
	_, err = x.Destroy(b.ctx)
	return err
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// memory is the server's unshared memory in bytes.
func (b *servedBench) memory() int64 { return unshared(b.s.PID) }

func unshared(pid int) int64 {
	f, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	var sum int64
	for line := range strings.Lines(string(f)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && (fields[0] == "Private_Clean:" || fields[0] == "Private_Dirty:") {
			kb, _ := strconv.ParseInt(fields[1], 10, 64)
			sum += kb << 10
		}
	}
	return sum
}

const many = 1000

func (b *servedBench) density() error {
	b.r.section("1,000 idle sandboxes on one machine")
	if err := b.cl.RemovePool(b.ctx, "default"); err != nil {
		return err
	}
	before, used := b.memory(), memoryInUse()
	var creates, execs sample
	var all []*client.Sandbox
	for range many {
		began := time.Now()
		x, err := b.cl.Create(b.ctx, sandbox.Create{TTLMS: 3_600_000})
		if err != nil {
			return fmt.Errorf("sandbox %d: %w", len(all), err)
		}
		creates = append(creates, time.Since(began))
		d, err := execTrue(b.ctx, x)
		if err != nil {
			return err
		}
		execs = append(execs, d)
		all = append(all, x)
	}
	time.Sleep(2 * time.Second)
	agents := childMemory(b.s.PID)
	server := b.memory() - before
	b.r.table([][]string{
		{"what", "first 100", "last 100", "beside"},
		{"create, over HTTP, no pool", ms(creates[:100].median()), ms(creates[many-100:].median()), ratio(creates[many-100:].median(), creates[:100].median())},
		{"`/bin/true` in it", ms(execs[:100].median()), ms(execs[many-100:].median()), ratio(execs[many-100:].median(), execs[:100].median())},
	})
	each := (agents + server) / many
	b.r.line("\nUnshared memory of each: agent %d kB, server's share %d kB. The whole host (kernel included) uses %d kB more for each.\n",
		agents/many>>10, server/many>>10, (memoryInUse()-used)/many>>10)
	b.r.target("at most 2 MB unshared each", each <= 2_000_000, fmt.Sprintf("%d kB", each>>10))
	grown := max(float64(creates[many-100:].median())/float64(creates[:100].median()), float64(execs[many-100:].median())/float64(execs[:100].median()))
	b.r.target("no slower than 1.3 × the first ones", grown <= 1.3, fmt.Sprintf("%.2f ×", grown))
	for _, x := range all {
		if _, err := x.Destroy(b.ctx); err != nil {
			return err
		}
	}
	return nil
}

// memoryInUse is what the host has less available than it has.
func memoryInUse() int64 {
	f, _ := os.ReadFile("/proc/meminfo")
	values := map[string]int64{}
	for line := range strings.Lines(string(f)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			kb, _ := strconv.ParseInt(fields[1], 10, 64)
			values[strings.TrimSuffix(fields[0], ":")] = kb << 10
		}
	}
	return values["MemTotal"] - values["MemAvailable"]
}

// childMemory sums the unshared memory of a process's children: the agents.
func childMemory(pid int) (sum int64) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		list, _ := os.ReadFile(file)
		for child := range strings.FieldsSeq(string(list)) {
			n, _ := strconv.Atoi(child)
			sum += unshared(n)
		}
	}
	return sum
}
