package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"pinfold/internal/bench"
	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// peer is another way to run the same program on this machine, by itself: what a driver is
// to be compared with.
type peer struct {
	name, beside string // beside is the driver
	run          func(ctx context.Context) error
	times        []time.Duration
	err          error // it does not work here
}

// peerTimeout bounds one run of a peer's.
const peerTimeout = time.Minute

// findPeers looks for "docker run" and "runsc run", where their drivers are compared.
func (c *comparison) findPeers() {
	for _, d := range c.all {
		switch d.Driver {
		case "docker":
			c.peers = append(c.peers, &peer{name: "docker run", beside: d.Driver, run: c.dockerRun})
		case "gvisor":
			p := &peer{name: "runsc run", beside: d.Driver}
			p.run, p.err = c.runscRun()
			c.peers = append(c.peers, p)
		}
	}
}

// dockerRun runs a container of the engine's, with limits like ours.
func (c *comparison) dockerRun(ctx context.Context) error {
	return says1(ctx, "docker", "run", "--rm", "--network", "none", "--memory", fmt.Sprint(limits.MemoryBytes), "--pids-limit", fmt.Sprint(limits.Processes),
		c.o.Image, c.python, "-c", printing)
}

// runscRun prepares a bundle once, and returns what runs it.
func (c *comparison) runscRun() (func(context.Context) error, error) {
	runsc, err := exec.LookPath(c.o.Runsc)
	if err != nil {
		return nil, err
	}
	bundle, n := c.file("bundle"), 0
	if err := bench.Bundle(c.ctx, runsc, bundle, []string{c.python, "-c", printing}); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		n++
		base, id := []string{"--network=none", "--root=" + c.file("runsc")}, fmt.Sprintf("pinfold-compare-%d-%d", os.Getpid(), n)
		err := says1(ctx, runsc, append(base, "run", "--bundle", bundle, id)...)
		if err != nil { // it may have left a container
			_ = exec.CommandContext(context.WithoutCancel(ctx), runsc, append(base, "delete", "--force", id)...).Run() //nolint:gosec // our own words
		}
		return err
	}, nil
}

// says1 runs a command that prints 1. That ctx ends does not cut it off: a runtime that is
// killed leaves its container behind.
func says1(ctx context.Context, program string, args ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), peerTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/"
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, sandbox.SafeText(string(exit.Stderr), 300))
	case err == nil && string(out) != "1\n":
		return fmt.Errorf("%s: print(1) printed %q", filepath.Base(program), sandbox.SafeText(string(out), 80))
	}
	return err
}

// turn measures one run of each peer that works here.
func (c *comparison) turn(count bool) {
	for _, p := range c.peers {
		if p.err != nil {
			continue
		}
		begun := time.Now()
		p.err = p.run(c.ctx)
		if count && p.err == nil {
			p.times = append(p.times, time.Since(begun))
		}
	}
}

// aims are what is wanted of a driver in one run beside its peers, in medians.
var aims = []struct {
	driver, text string
	unit         bench.Unit
	value, most  func(c *comparison) float64 // NaN: not measured
}{
	{"docker", "docker: a cold run takes at most `docker run` + 30 ms", bench.UnitMS, cold("docker"), plus(cold("docker run"), 30)},
	{"docker", "docker: a run from a pool takes at most 3 × a cold run of native", bench.UnitMS, warm("docker"), times(cold("native"), 3)},
	{"gvisor", "gvisor: a cold run takes at most `runsc run` + 20 ms", bench.UnitMS, cold("gvisor"), plus(cold("runsc run"), 20)},
	{"gvisor", "gvisor: a run from a pool takes at most 40 ms", bench.UnitMS, warm("gvisor"), exactly(40)},
	{"qemu", "qemu: a run from a pool takes at most 100 ms", bench.UnitMS, warm("qemu"), exactly(100)},
	{"qemu", "qemu: a run from a pool takes at most as long as `docker run`", bench.UnitMS, warm("qemu"), cold("docker run")},
	{"qemu", "qemu: a machine that waits has at most 80 MB of its own", bench.UnitKB, number("memory", "qemu", "memory_kb"), exactly(80e6 / 1024)},
}

type figure = func(c *comparison) float64

func number(table, row, key string) figure {
	return func(c *comparison) float64 { return c.report.Find(table, row, key) }
}

func cold(row string) figure { return number("starts", row, "cold_ms") }

func warm(row string) figure { return number("starts", row, "warm_ms") }

func exactly(v float64) figure { return func(*comparison) float64 { return v } }

func plus(f figure, v float64) figure { return func(c *comparison) float64 { return f(c) + v } }

func times(f figure, v float64) figure { return func(c *comparison) float64 { return f(c) * v } }

// judge says which aims were reached, of those of drivers that were compared.
func (c *comparison) judge() {
	t := &bench.Table{ID: "aims", First: "aim", Last: "how it stands"}
	for _, a := range aims {
		if !c.compared(a.driver) {
			continue
		}
		state := bench.NotMeasured
		if value, most := a.value(c), a.most(c); value == value && most == most { // else one of them was not measured
			state = bench.NotReached
			if value <= most {
				state = bench.Reached
			}
			state += bench.State(": " + a.unit.Format(value) + " of " + a.unit.Format(most))
		}
		t.Add(a.text, string(state))
	}
	if len(t.Rows) > 0 {
		c.done(&bench.Section{Part: "aims", Title: "What we want of it", Text: "They are aims, not promises: how they stand is what this run measured.", Tables: []*bench.Table{t}})
	}
}

func (c *comparison) compared(name string) bool {
	return slices.ContainsFunc(c.all, func(d driver.Report) bool { return d.Driver == name })
}

// note is what a table says of a peer.
func (p *peer) note() string {
	if p.err != nil {
		return "does not work here: " + sandbox.SafeText(p.err.Error(), 200)
	}
	return peerNotes[p.beside]
}

var peerNotes = map[string]string{
	"docker": "the engine's own command, with the same image",
	"gvisor": "gVisor's own command",
}
