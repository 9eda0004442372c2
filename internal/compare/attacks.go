package compare

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"pinfold/internal/bench"
)

// attack is one thing that a program tries. The host watches whether it gets through; what
// the program says counts only where it must say what it cannot know.
type attack struct {
	what string
	// feature is what holds it; a driver whose report does not claim that may let it through.
	// Empty: every driver must hold it.
	feature string
	code    string
	// set makes what is attacked, and returns the program's arguments, and how to see
	// whether the attack got through: stdout is the program's.
	set func(c *comparison) (args []string, through func(stdout string) bool, end func(), err error)
}

// reached is what a program prints when it comes to its attack.
const reached = "now"

// attacks tries everything on every driver, and first with nothing around it: an attack that
// does not work there says nothing.
func (c *comparison) attacks() error {
	t := &bench.Table{ID: "attacks", First: "driver", Columns: []bench.Column{{Key: "tried", Head: "attacks", Unit: bench.UnitCount}, {Key: "held", Head: "held", Unit: bench.UnitCount}}, Last: "got through"}
	s := &bench.Section{
		Part: "attacks", Title: "What holds", Tables: []*bench.Table{t},
		Text: "Programs that try to leave the sandbox, or to take more than they may. The host watches. Each was seen to work with nothing around it.",
	}
	tried := make(map[string]int, len(c.all))
	through := make(map[string][]string, len(c.all))
	for o := range c.try() {
		switch {
		case o.err != nil && o.driver == "":
			s.Note("not tried: %s: %v", o.what, o.err)
		case o.err != nil:
			s.Note("not tried on %s: %s: %v", o.driver, o.what, o.err)
		case o.driver != "":
			tried[o.driver]++
			if o.through {
				through[o.driver] = append(through[o.driver], o.what)
			}
		}
	}
	for _, d := range c.all {
		t.Add(d.Driver, strings.Join(through[d.Driver], ", "), float64(tried[d.Driver]), float64(tried[d.Driver]-len(through[d.Driver])))
	}
	c.done(s)
	return nil
}

// attackList are all attacks.
func attackList() []attack { return slices.Concat(attacks, moreAttacks) }

// outcome is what came of an attack.
type outcome struct {
	attack

	driver  string // empty: with nothing around it
	through bool
	err     error // why it was not tried, or says nothing
}

// try tries every attack with nothing around it and then, if it works there, on every driver.
func (c *comparison) try() iter.Seq[outcome] {
	return func(yield func(outcome) bool) {
		for _, a := range attackList() {
			if c.ctx.Err() != nil {
				return
			}
			c.o.Progress("attack: " + a.what)
			got, err := c.attack(a, "")
			if err == nil && !got {
				err = errors.New("it does not even work with nothing around it")
			}
			if !yield(outcome{a, "", got, err}) {
				return
			}
			for _, d := range c.all {
				if err != nil {
					break
				}
				got, err := c.attack(a, d.Driver)
				if !yield(outcome{a, d.Driver, got, err}) {
					return
				}
			}
		}
	}
}

// attack tries one, on a driver or, where that has no name, with nothing around it.
func (c *comparison) attack(a attack, name string) (got bool, err error) {
	args, through, end, err := a.set(c)
	if err != nil {
		return false, err
	}
	defer end()
	code := "import os, sys\nprint(" + strconv.Quote(reached) + ", flush=True)\n" + a.code
	var stdout string
	if name == "" {
		ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
		defer cancel()
		stdout, err = c.bare(ctx, code, args...)
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return false, err
		}
	} else {
		r, _, err := c.run(spec(name, code, args...))
		if err != nil {
			return false, err
		}
		stdout = r.Stdout
		if !strings.HasPrefix(stdout, reached) {
			return false, fmt.Errorf("the program did not come to it: %s", r.Cause.Kind)
		}
	}
	return through(strings.TrimPrefix(stdout, reached)), nil
}

// word is a new word that nobody can guess.
func word() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // which never fails
	return hex.EncodeToString(b[:])
}

func nothing() {}

// says is an attack that got through when the program says "yes".
func says(*comparison) ([]string, func(string) bool, func(), error) {
	return nil, func(stdout string) bool { return strings.Contains(stdout, "yes") }, nothing, nil
}

// helper is a process of the host's, which ends with the attack.
func (c *comparison) helper(name string) (cmd *exec.Cmd, ended func() bool, end func(), err error) {
	cmd = exec.CommandContext(c.ctx, c.python, "-c", "import time; time.sleep(600)", name) //nolint:gosec // our own words
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, err
	}
	gone := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()
	ended = func() bool {
		select {
		case <-gone:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	}
	return cmd, ended, func() { _ = cmd.Process.Kill(); <-gone }, nil
}

// running lists the host's processes that have a word among their arguments.
func running(word string) (pids []int) {
	for pid := range processes() {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(line), word) {
			pids = append(pids, pid)
		}
	}
	return pids
}
