package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
)

// upload puts the client into a sandbox.
func (w *ways) upload(ctx context.Context, x *client.Sandbox) error {
	f, err := os.Open(w.program)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return x.WriteFile(ctx, "client", 0o755, info.Size(), f)
}

// hostMemory is what living sandboxes use of a host: the unshared memory of the server and of
// everything below it, and what the kernel keeps for them.
type hostMemory struct{ processes, kernel, host int64 }

func (s *session) hostMemory(pid int) hostMemory {
	m := meminfo()
	return hostMemory{
		processes: Unshared(pid) + treeMemory(pid),
		kernel:    m["SUnreclaim"] + m["KernelStack"] + m["PageTables"] + m["Percpu"] + m["Shmem"],
		host:      m["MemTotal"] - m["MemAvailable"],
	}
}

// Rows of the table of memory.
const (
	boxesWithout = "no endpoints"
	boxesPassed  = "three, passed through"
	boxesEnded   = "three, TLS ended at one"
	boxesRead    = "three, TLS ended at all"
)

// networkMemory measures what many living sandboxes cost with endpoints and without.
func (s *session) networkMemory(w *ways) error {
	count := 1000
	if s.o.Quick {
		count = 20
	}
	sec, done := s.section("network", fmt.Sprintf("Declared endpoints: %d living sandboxes", count),
		"Sandboxes that do nothing, with three endpoints each and without; what each costs. \"Processes\" is the unshared memory of the server and of everything below it; \"kernel\" is the host's SUnreclaim, KernelStack, PageTables, Percpu and Shmem (sockets, namespaces, stacks, files in memory), and \"host\" what it has less available: whatever else goes on is in these. \"More\" adds processes and kernel.")
	defer done()
	t := &Table{ID: "network-memory", First: "each sandbox with", Columns: []Column{
		{"processes_kb", "processes", UnitKB}, {"kernel_kb", "kernel", UnitKB}, {"host_kb", "host", UnitKB}, {"more_kb", "more than without", UnitKB}, {"create_ms", "made in: median", UnitMS},
	}}
	sec.Tables = append(sec.Tables, t)
	without := none
	// The first grow the server's heap for all, so they are made and ended once before.
	for i, k := range []struct {
		what string
		n    sandbox.Network
	}{{"", sandbox.Network{}}, {boxesWithout, sandbox.Network{}}, {boxesPassed, w.passing(hostPlain, hostTLS, hostEnded)}, {boxesEnded, w.declared()}, {boxesRead, w.reading()}} {
		s.o.Progress("network: many sandboxes: " + k.what)
		each, made, err := s.living(w, k.n, count)
		if err != nil {
			return fmt.Errorf("%s: %w", k.what, err)
		}
		if i == 0 {
			continue
		}
		sum := each[0] + each[1]
		if k.what == boxesWithout {
			without = sum
		}
		t.Add(k.what, "", each[0], each[1], each[2], sum-without, ms(made.median()))
	}
	return nil
}

// living makes sandboxes, measures what each costs in kB, and ends them.
func (s *session) living(w *ways, n sandbox.Network, count int) (each [3]float64, made sample, err error) {
	all := make([]*client.Sandbox, 0, count)
	defer func() {
		for _, x := range all {
			destroy(x)
		}
	}()
	look := func() hostMemory {
		w.server.poolsFull(s.ctx, fillTimeout)
		s.sleep(time.Second)
		return s.hostMemory(w.server.child.pid)
	}
	before := look()
	for range count {
		began := time.Now()
		x, err := w.server.cl.Create(s.ctx, sandbox.Create{TTLMS: time.Hour.Milliseconds(), Network: n})
		if err != nil {
			return each, nil, err
		}
		made = append(made, time.Since(began))
		all = append(all, x)
	}
	after := look()
	of := func(a, b int64) float64 { return float64(a-b) / float64(count) / 1024 }
	return [3]float64{of(after.processes, before.processes), of(after.kernel, before.kernel), of(after.host, before.host)}, made, s.ctx.Err()
}

// Rows of the table of runs.
const (
	runWarm     = "warm, no endpoints"
	runDeclared = "warm, three endpoints that it does not use"
	runEnded    = "warm, the same, TLS ended at one"
	runCold     = "cold, no endpoints"
)

// networkUnused measures runs that declare endpoints and do not use them.
func (s *session) networkUnused(w *ways) error {
	rounds := 5 * s.o.Rounds
	sec, done := s.section("network", "Declared endpoints: a run that does not use them", fmt.Sprintf("`POST /v1/runs` of `print(1)`, %d times in turns, with pools that are full before each. How many found a warm interpreter is said beside.", rounds))
	defer done()
	declared, ended := w.passing(hostPlain, hostTLS, hostEnded), w.declared()
	all := []struct {
		what string
		cold bool
		n    *sandbox.Network
		seen sample
		warm int
	}{{what: runWarm}, {what: runDeclared, n: &declared}, {what: runEnded, n: &ended}, {what: runCold, cold: true}}
	for round := range rounds + 2 {
		for i := range all {
			k := &all[(i+round)%len(all)]
			body := map[string]any{"language": "python", "code": "print(1)"}
			if k.cold {
				body["cold"] = true
			}
			if k.n != nil {
				body["network"] = k.n
			}
			var res sandbox.Result
			began := time.Now()
			err := ask(s.ctx, w.server.http, http.MethodPost, w.server.base+"/v1/runs", w.server.head, body, &res)
			took := time.Since(began)
			if err == nil && res.Stdout != "1\n" {
				err = errors.New(sandbox.SafeText(fmt.Sprintf("%s %+v %s", res.Status, res.Cause, res.Stderr), 300))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", k.what, err)
			}
			if w.server.settled(s.ctx); round < 2 {
				continue
			}
			if k.seen = append(k.seen, took); res.Warm {
				k.warm++
			}
		}
	}
	t := &Table{ID: "network-unused", First: "a run", Columns: append(spread(), Column{"more_ms", "median above warm", UnitMS}, Column{"warm", "found warm", UnitCount})}
	for _, k := range all {
		t.Add(k.what, "", append(k.seen.values(), added(k.seen, all[0].seen, 0.5), float64(k.warm))...)
	}
	sec.Tables = append(sec.Tables, t)
	return nil
}
