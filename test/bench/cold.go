package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// contender is one way to run print(1) in Python from the shell.
type contender struct {
	name  string
	note  string
	args  []string
	close func()
	times sample
}

const python = "/usr/bin/python3"

// coldStart measures whole processes: started, output read, ended.
func coldStart(ctx context.Context, o options, r *report) error {
	dir, err := os.MkdirTemp("", "pinfold-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	program := filepath.Join(dir, "p.py")
	if err := os.WriteFile(program, []byte("print(1)\n"), 0o600); err != nil {
		return err
	}
	pinfold, err := filepath.Abs(o.pinfold)
	if err != nil {
		return err
	}
	r.section("Cold start: `print(1)` in Python, whole process, no daemon of ours")
	all := []*contender{
		{name: "bare python3", note: "no isolation", args: []string{python, "-c", "print(1)"}},
		{name: "pinfold run", note: "fresh, all limits", args: []string{pinfold, "run", program}},
	}
	for _, peer := range []func(context.Context, string) (*contender, error){bubblewrap, runc, crun, docker} {
		c, err := peer(ctx, dir)
		if err != nil {
			r.line("- left out: %v", err)
			continue
		}
		if c.close != nil {
			defer c.close()
		}
		if _, err := once(ctx, c.args); err != nil {
			r.line("- left out, it does not work here: %s: %v", c.name, err)
			continue
		}
		all = append(all, c)
	}
	if err := race(ctx, all, o.rounds); err != nil {
		return err
	}
	bare := all[0].times.median()
	rows := [][]string{{"what", "median", "p95", "min", "beside bare", "isolation"}}
	byName := map[string]time.Duration{}
	for _, c := range all {
		byName[c.name] = c.times.median()
		rows = append(rows, []string{c.name, ms(c.times.median()), ms(c.times.at(0.95)), ms(c.times.at(0)), ratio(c.times.median(), bare), c.note})
	}
	r.table(rows)
	ours := byName["pinfold run"]
	r.line("")
	r.target("at most bare python3 + 10 ms", ours-bare <= 10*time.Millisecond, "+"+ms(ours-bare))
	if t, ok := byName["runc run"]; ok {
		r.target("faster than runc run", ours < t, ratio(t, ours)+" as fast")
	}
	if t, ok := byName["docker run"]; ok {
		r.target("at least 10 × faster than docker run", t >= 10*ours, ratio(t, ours)+" as fast")
	}
	return nil
}

// race lets the contenders take turns.
func race(ctx context.Context, all []*contender, rounds int) error {
	for round := range rounds + 2 {
		for _, c := range all {
			d, err := once(ctx, c.args)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round >= 2 { // the first ones warm the page cache
				c.times = append(c.times, d)
			}
		}
	}
	return nil
}

// once runs a command and checks that it did its work.
func once(ctx context.Context, args []string) (time.Duration, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the table above
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err != nil || strings.TrimSpace(out.String()) != "1" {
		return 0, fmt.Errorf("%v: %w: printed %.200q %.300q", args, err, out.String(), errs.String())
	}
	return took, nil
}
