package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"pinfold/sandbox"
)

// workload is a program that every contender runs.
type workload struct {
	id    string
	title string
	code  string   // in Python; "" for a command
	args  []string // as a command
	want  string   // what it prints
	// modules are loaded by warm interpreters ahead of time.
	modules []string
	heavy   bool // takes about a second: fewer rounds
}

const trueProgram = "/bin/true"

// dataModules are what an agent that analyses data imports.
func dataModules() []string { return []string{"numpy", "pandas", "matplotlib.pyplot"} }

func (s *session) printing() workload {
	return workload{
		id: "print", title: "`print(1)` in Python", code: "print(1)",
		args: []string{s.python, "-c", "print(1)"}, want: "1", modules: []string{},
	}
}

func (s *session) importing() workload {
	code := "import " + strings.Join(dataModules(), ", ") + "\nprint(1)"
	return workload{
		id: "data", title: "`import numpy, pandas, matplotlib.pyplot` in Python", code: code,
		args: []string{s.python, "-c", code}, want: "1", modules: dataModules(), heavy: true,
	}
}

func nothing() workload {
	return workload{id: "true", title: "`/bin/true`", args: []string{trueProgram}}
}

// contender is one way to run a workload in whatever it isolates with.
type contender struct {
	name string
	note string // what isolation it is
	// run runs the workload once, in a fresh one of its sandboxes, and checks
	// what it printed. It is safe for concurrent use.
	run func(ctx context.Context, w workload) error
	// ours says that the contender is Pinfold: its failures fail the benchmark,
	// another's leave it out.
	ours bool
	// settle, when set, waits after a turn until what goes on behind the answer
	// is over, so that it does not meet the next contender.
	settle func(context.Context)
	// only are the workloads that it can run; none: all.
	only []string
}

func (c *contender) can(w workload) bool {
	return len(c.only) == 0 || slices.Contains(c.only, w.id)
}

// commandTimeout bounds one command of a contender.
const commandTimeout = 2 * time.Minute

// command makes a contender that is a program on this machine. args returns
// its command line, which may depend on the number of the call.
func command(name, note string, args func(w workload) []string) *contender {
	return &contender{name: name, note: note, run: func(ctx context.Context, w workload) error {
		return once(ctx, args(w), w.want)
	}}
}

// once runs a command to its end and checks what it printed. That ctx ends does
// not cut it off: a runtime that is killed leaves its container behind.
func once(ctx context.Context, args []string, want string) error {
	out, errs, err := execute(ctx, args)
	if err == nil && strings.TrimSpace(out) != want {
		err = errors.New("it printed something else")
	}
	if err != nil {
		return fmt.Errorf("%w: printed \"%s\" and \"%s\"", err, sandbox.SafeText(out, 100), sandbox.SafeText(ending(errs, 300), 300))
	}
	return nil
}

// execute runs a command to its end, see once.
func execute(ctx context.Context, args []string) (stdout, stderr string, err error) {
	if err := ctx.Err(); err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	var out, errs bounded
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the contenders' tables
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &out, &errs, ownGroup()
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// leaveOut says that a contender failed and is not measured any further.
func (s *session) leaveOut(sec *Section, c *contender, w workload, err error) {
	if c.ours {
		s.fail(fmt.Errorf("%s: %s, %s: %w", sec.Part, c.name, w.id, err))
	}
	sec.Note("left out, it does not work here: %s: %v", c.name, err)
}

// ending is the last bytes of a message: where a traceback says what was wrong.
func ending(s string, n int) string {
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-n):]
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ bytes.Buffer }

const maxKept = 64 << 10

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxKept - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// race lets the contenders take turns, each round beginning with another one,
// and returns their times. The first rounds warm the page cache and do not
// count. A contender that fails is left out and named; one of ours that fails is
// a failure of the benchmark, too.
func (s *session) race(sec *Section, w workload, all []*contender, rounds int) (map[*contender]sample, error) {
	times := map[*contender]sample{}
	out := map[*contender]bool{}
	warmUp := 2
	if w.heavy {
		warmUp = 1
	}
	for round := range rounds + warmUp {
		for i := range all {
			c := all[(i+round)%len(all)]
			if out[c] || !c.can(w) {
				continue
			}
			began := time.Now()
			err := c.run(s.ctx, w)
			took := time.Since(began)
			switch {
			case s.ctx.Err() != nil:
				return nil, s.ctx.Err()
			case err != nil:
				out[c] = true
				delete(times, c)
				s.leaveOut(sec, c, w, err)
				continue
			}
			if round >= warmUp {
				times[c] = append(times[c], took)
			}
			if c.settle != nil {
				c.settle(s.ctx)
			}
		}
	}
	return times, nil
}
