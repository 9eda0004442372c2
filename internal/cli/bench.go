//go:build !lean

package cli

import (
	"cmp"
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pinfold/internal/bench"
)

const benchLong = `Measure Pinfold beside what else runs programs on this machine: bare python3,
bubblewrap, runc, crun, runsc and Docker where they are installed, and the
services that --go-judge and --e2b name. What is missing is named and left out.
As root more contenders can be measured.

A server is started for it and ended; with --server, the one that is named is
measured instead. Expect some minutes of load: nothing else should go on.

Numbers are never an error. Exit status: 0, or 1 when a sandbox failed or a
trace was left behind.`

const benchExamples = `  pinfold bench --quick                      does it all work? (a minute)
  pinfold bench                              tables on the terminal
  pinfold bench --only latency,burst --rounds 200
  pinfold bench --json out.json --markdown out.md --svg charts`

// benchFlags are the flags of "bench" as they were given.
type benchFlags struct {
	bench.Options
	reportFlags
}

func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use: benchName + " [flags]", Short: "Measure sandboxes beside what else runs programs here", Long: benchLong, Example: benchExamples, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.bench(cmd.Context(), &f) },
	}
	f.bind(cmd.Flags())
	f.complete(cmd)
	return cmd
}

// bind declares the flags.
func (f *benchFlags) bind(set *pflag.FlagSet) {
	names, _ := bench.Parts()
	set.BoolVar(&f.Quick, "quick", false, "few rounds: coarse numbers")
	set.BoolVar(&f.Long, "long", false, "a minute of throughput each, 10,000 sandboxes made and destroyed")
	set.StringSliceVar(&f.Only, "only", nil, "only these parts: "+strings.Join(names, ", "))
	set.IntVar(&f.Rounds, "rounds", 0, "how often each contender takes its turn (default 40)")
	set.IntVar(&f.Concurrency, "concurrency", 0, "requests at a time for throughput (default 4)")
	set.DurationVar(&f.Duration, "duration", 0, "how long throughput is measured, for each contender (default 10s)")
	group(set, "What", "quick", "long", "only PART,...", "rounds N", "concurrency N", "duration TIME")

	set.StringVar(&f.GoJudge, "go-judge", "", "measure the go-judge at this URL, too")
	set.StringVar(&f.E2B, "e2b", "", "measure the E2B-compatible service at this URL, too")
	set.StringVar(&f.E2BKey, "e2b-key", "", "its API key; others on this machine can see it (default $E2B_API_KEY)")
	set.StringSliceVar(&f.Without, "without", nil, "leave these contenders out: "+strings.Join(bench.Peers(), ", "))
	group(set, "Contenders", "without NAME,...", "go-judge URL", "e2b URL", "e2b-key KEY")

	f.reportFlags.bind(set, benchName)
}

func (f *benchFlags) complete(cmd *cobra.Command) {
	completeChoices(cmd, map[string]func() []string{
		"only":    func() []string { names, _ := bench.Parts(); return names },
		"without": bench.Peers,
	})
	f.reportFlags.complete(cmd)
}

func (a *app) bench(ctx context.Context, f *benchFlags) error {
	o, err := a.benchOptions(f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer cancelOnSignal(cancel)()
	defer catchBrokenPipe()() // who reads the tables may go away; what was started must be ended
	report, err := a.Whole.Bench(ctx, o)
	if err != nil {
		return err
	}
	return a.writeReport(&f.reportFlags, report)
}

// benchOptions completes the flags with what is known here.
func (a *app) benchOptions(f *benchFlags) (bench.Options, error) {
	o := f.Options
	o.Version = a.Version
	o.E2BKey = cmp.Or(o.E2BKey, os.Getenv("E2B_API_KEY"))
	for flag, n := range map[string]time.Duration{"rounds": time.Duration(o.Rounds), "concurrency": time.Duration(o.Concurrency), "duration": o.Duration} {
		if n < 0 {
			return o, usageError("--%s takes more than nothing", flag)
		}
	}
	if a.remote() {
		var err error
		o.Server = a.at.address()
		if o.Key, err = a.apiKey(o.Server); err != nil {
			return o, err
		}
	}
	o.Progress, o.Section = a.timed(), a.sections(&f.reportFlags)
	return o, o.Validate()
}
