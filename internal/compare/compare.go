// Package compare measures, on this machine, what each way of making a sandbox holds and
// what it costs: attacks that are tried and watched by the host, starts, runs, memory and
// throughput; or tries the attacks alone. Numbers and answers are always those of the machine
// at hand.
package compare

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pinfold/internal/bench"
	"pinfold/internal/driver"
	"pinfold/internal/engine"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// Options say what is compared. NewEngine must be set.
type Options struct {
	// NewEngine returns an engine with all drivers that are to be compared. Run closes it.
	NewEngine func() (*engine.Engine, error)
	Version   string

	// Image is what "docker run" and the docker driver show; empty: no containers are
	// measured. Runsc is gVisor's program, for "runsc run"; empty: none.
	Image, Runsc string
	// LeftOut says of drivers which the engine does not have what it takes to compare them.
	LeftOut map[string]string

	Only   []string // drivers; none: all that work here
	Rounds int      // how often each driver takes its turn; 0: 20
	Quick  bool     // look whether it works; the numbers are coarse

	// Progress, when set, is told what is being done, and Section is handed each section as
	// it is done. Both are called from the goroutine of Run.
	Progress func(string)
	Section  func(*bench.Section)
}

func (o Options) withDefaults() Options {
	if o.Rounds == 0 {
		o.Rounds = 20
		if o.Quick {
			o.Rounds = 3
		}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Section == nil {
		o.Section = func(*bench.Section) {}
	}
	return o
}

// comparison is one under way.
type comparison struct {
	ctx    context.Context //nolint:containedctx // one comparison, one context
	o      Options
	engine *engine.Engine
	python string
	dir    string
	report *bench.Report
	peers  []*peer
	all    []driver.Report // those that work here, the strongest isolation last
}

// Run compares. A driver that fails at something does not end the others: what it could not
// do is in Report.Failures. The error is of ctx, or of a host on which nothing can be
// compared. When Run returns, nothing that it started is left.
func Run(ctx context.Context, o Options) (*bench.Report, error) {
	return run(ctx, o, "compare", func(c *comparison) {
		c.findPeers()
		for _, part := range []func() error{c.attacks, c.starts, c.throughput, c.memory} {
			if err := part(); err != nil && ctx.Err() == nil {
				c.fail(err)
			}
		}
		c.judge()
	})
}

// run asks the drivers what they can do, and has something done with them.
func run(ctx context.Context, o Options, command string, do func(*comparison)) (report *bench.Report, err error) {
	c := &comparison{ctx: ctx, o: o.withDefaults()}
	c.report = &bench.Report{
		Command: command, Made: time.Now().UTC().Truncate(time.Second), Version: o.Version, Options: c.flags(),
		Machine: bench.LookAtMachine(), Failures: []string{},
	}
	if c.python, err = bench.FindPython(); err != nil {
		return nil, err
	}
	if c.dir, err = os.MkdirTemp("", "pinfold-compare-"); err != nil {
		return nil, &sandbox.Error{Code: sandbox.CodeResourceUnavailable, Message: "no temporary directory: " + err.Error(), Err: err}
	}
	defer func() { // runsc leaves a mount in its directory
		if left := bench.RemoveTree(c.dir); left != nil && err == nil {
			report, err = nil, &sandbox.Error{Code: sandbox.CodeResourceUnavailable, Message: left.Error(), Err: left}
		}
	}()
	if err := os.Chmod(c.dir, 0o755); err != nil { //nolint:gosec // sandboxes must hold, not its mode
		return nil, &sandbox.Error{Code: sandbox.CodeResourceUnavailable, Message: err.Error(), Err: err}
	}
	if c.engine, err = o.NewEngine(); err != nil {
		return nil, err
	}
	defer func() {
		if closing := c.engine.Close(); closing != nil && err == nil {
			report, err = nil, closing
		}
	}()
	if err := c.engine.Open(ctx); err != nil {
		return nil, err
	}
	if err := c.ladder(); err != nil {
		return nil, err
	}
	do(c)
	if err := ctx.Err(); err != nil {
		return nil, &sandbox.Error{Code: sandbox.CodeInternal, Message: "stopped; what was started is gone", Err: err}
	}
	return c.report, nil
}

// flags is how thorough the comparison is.
func (c *comparison) flags() string {
	line := ""
	if c.o.Quick {
		line += " --quick"
	}
	if len(c.o.Only) > 0 {
		line += " --only " + strings.Join(c.o.Only, ",")
	}
	return line
}

func (c *comparison) fail(err error) {
	line := sandbox.SafeText(err.Error(), 2000)
	c.report.Failures = append(c.report.Failures, line)
	c.o.Progress("FAILED: " + line)
}

// done hands a section over.
func (c *comparison) done(s *bench.Section) {
	c.report.Sections = append(c.report.Sections, s)
	c.o.Section(s)
}

// limits of what is compared: the same for all.
var limits = sandbox.Limits{MemoryBytes: 256 << 20, DiskBytes: 64 << 20, Processes: 32, WallTimeMS: 60_000}

// spec is a Python program for a driver.
func spec(name, code string, args ...string) sandbox.Spec {
	return sandbox.Spec{Language: "python", Code: code, Args: args, Driver: name, Limits: limits}
}

// run runs a program and wants it to succeed.
func (c *comparison) run(s sandbox.Spec) (*sandbox.Result, time.Duration, error) {
	begun := time.Now()
	r, err := c.engine.Run(c.ctx, runs.Request{Spec: s, NoArtifacts: true, NoResults: true, Tenant: records.LocalTenant})
	took := time.Since(begun)
	if err != nil {
		return nil, took, fmt.Errorf("%s: %w", s.Driver, err)
	}
	return r, took, nil
}

// bare runs a program with nothing around it.
func (c *comparison) bare(ctx context.Context, code string, args ...string) (stdout string, err error) {
	cmd := exec.CommandContext(ctx, c.python, append([]string{"-c", code}, args...)...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "TMPDIR="+c.dir) // what it leaves when it is killed goes with that
	out, err := cmd.Output()
	return string(out), err
}

// median of durations, in milliseconds.
func median(all []time.Duration) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	return float64(all[len(all)/2]) / float64(time.Millisecond)
}

// file is the name of a file of the comparison's.
func (c *comparison) file(name string) string { return filepath.Join(c.dir, name) }
