// Command bench measures Pinfold beside what a user could pick instead, in one
// run on one machine, and prints ratios. make bench runs it.
//
// Contenders take turns, round by round, so that noise meets all alike. Numbers
// never fail the program; a sandbox that fails or a trace that is left behind
// does. It is for people and for docs/benchmarks.md, not for tests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

// options are the command line's.
type options struct {
	rounds  int
	soak    int
	write   bool
	pinfold string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 40, "how often each contender runs")
	flag.IntVar(&o.soak, "soak", 10_000, "how many sandboxes are made and destroyed, 32 at a time; 0 for none")
	flag.BoolVar(&o.write, "write", false, "write the tables into docs/benchmarks.md")
	flag.StringVar(&o.pinfold, "pinfold", "bin/pinfold", "the program to measure")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	r := newReport()
	fmt.Print(r.head)
	var failed []error
	for _, part := range []func(context.Context, options, *report) error{coldStart, driverAlone, agentCost, soak, served} {
		began := time.Now()
		if err := part(ctx, o, r); err != nil {
			failed = append(failed, err)
			fmt.Println("FAILED:", err)
		}
		fmt.Fprintf(os.Stderr, "  (%v)\n", time.Since(began).Round(time.Second))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if o.write {
		return r.writeDocs("docs/benchmarks.md")
	}
	return nil
}
