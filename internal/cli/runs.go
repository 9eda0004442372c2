package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pinfold/client"
	"pinfold/internal/engine/runs"
	"pinfold/internal/hostfiles"
	"pinfold/sandbox"
)

const runsLong = `Without --watch it lists what a server keeps of runs, the newest first.

With --watch it follows one: what the program has printed and prints is passed
on, and the exit status is that of "pinfold run". Ctrl-C ends the watching only.`

const runsExamples = `  pinfold runs                          the newest
  pinfold runs --state queued,running   those that have not finished
  pinfold runs --since 1h --status killed
  pinfold runs --watch $run             follow one`

// runsFlags are the flags of "runs" as they were given.
type runsFlags struct {
	states, statuses, languages []string
	metadata                    map[string]string
	since                       time.Duration
	most                        int
	watch, quiet, json, raw     bool
}

func (a *app) runsCommand() *cobra.Command {
	f := &runsFlags{metadata: map[string]string{}}
	cmd := &cobra.Command{
		Use: "runs [flags] | runs --watch RUN", Short: "List runs of a server, or follow one", Long: runsLong, Example: runsExamples,
		Args: needArgs(0, 1, "a run, with --watch"), ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.watch != (len(args) == 1) {
				return usageError("--watch and a run belong together").WithHint("pinfold runs --watch RUN; pinfold result RUN prints what came of one")
			}
			if !f.watch {
				return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error { return a.listRuns(ctx, c, f, cmd.Flags()) })
			}
			if err := a.checkIDs("run", args[0]); err != nil {
				return err
			}
			defer catchBrokenPipe()()
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error { return a.watchRun(ctx, c, args[0], f) })
		},
	}
	set := cmd.Flags()
	set.BoolVarP(&f.watch, "watch", "w", false, "follow a run until it has finished")
	set.BoolVar(&f.raw, "raw", false, "do not escape control characters on a terminal")
	set.StringSliceVar(&f.states, "state", nil, "only in these states: pending_approval, queued, running, finished")
	set.StringSliceVar(&f.statuses, "status", nil, "only those that ended so: "+strings.Join(statuses, ", "))
	set.StringSliceVarP(&f.languages, "language", "l", nil, "only in these languages")
	set.Var(pairs{f.metadata, "metadata"}, "metadata", "only with this metadata; may be repeated")
	set.DurationVar(&f.since, "since", 0, "only those that were asked for within this time")
	set.IntVar(&f.most, "limit", 50, "how many at most")
	set.BoolVarP(&f.quiet, "quiet", "q", false, "print ids only")
	set.BoolVar(&f.json, "json", false, "print JSON")
	group(set, "Choice", "state STATES", "status STATUSES", "language NAMES", "metadata K=V", "since TIME", "limit N")
	group(set, "Watching", "watch", "raw")
	group(set, groupOutput, "quiet", "json")
	return cmd
}

// usualRuns are those that are listed where nobody chose how many.
const usualRuns = "newest 50"

// statuses are those with which a run can end.
var statuses = []string{string(sandbox.StatusSucceeded), string(sandbox.StatusFailed), string(sandbox.StatusKilled), string(sandbox.StatusError)}

func (f *runsFlags) filter() (client.Filter, error) {
	filter := client.Filter{Metadata: f.metadata, Languages: f.languages}
	for _, s := range f.states {
		if !slices.Contains(sandbox.RunStates(), sandbox.RunState(s)) {
			return filter, usageError("--state: no state \"%s\"", sandbox.SafeText(s, 40)).WithHint("the states are pending_approval, queued, running, finished; --status says how one ended")
		}
		filter.RunStates = append(filter.RunStates, sandbox.RunState(s))
	}
	for _, s := range f.statuses {
		if !slices.Contains(statuses, s) {
			return filter, usageError("--status: no status \"%s\"", sandbox.SafeText(s, 40)).WithHint("the statuses are " + strings.Join(statuses, ", ") + "; --state says which have not finished")
		}
		filter.Statuses = append(filter.Statuses, sandbox.Status(s))
	}
	if f.since > 0 {
		filter.Since = time.Now().Add(-f.since)
	}
	if err := checkMost(f.most, usualRuns); err != nil {
		return filter, err
	}
	filter.PageSize = min(f.most+1, 1000) // one more tells that there are more
	return filter, nil
}

func (a *app) listRuns(ctx context.Context, c *client.Client, f *runsFlags, flags *pflag.FlagSet) error {
	filter, err := f.filter()
	if err != nil {
		return err
	}
	all, more, err := collect(c.Runs(ctx, filter), f.most)
	if err != nil {
		return err
	}
	defer a.sayMore(flags, more, usualRuns)
	if f.json {
		return writeList(a, "runs", all)
	}
	t := newTable("RUN", "STATE", "LANGUAGE", "CREATED", "TOOK", "ENDED BY", "METADATA")
	for _, r := range all {
		t.row(r.ID, cmp.Or(string(r.Status), string(r.State)), r.Language, since(r.CreatedAt), took(r), string(r.Cause), notes(r.Metadata))
	}
	return a.writeTable(t, f.quiet)
}

// took is how long a run has taken so far, its waiting included.
func took(r client.RunRecord) string {
	switch {
	case !r.FinishedAt.IsZero():
		return r.FinishedAt.Sub(r.CreatedAt).Round(time.Millisecond).String()
	case r.StartedAt.IsZero():
		return "-"
	}
	return span(time.Since(r.StartedAt))
}

func (a *app) watchRun(ctx context.Context, c *client.Client, id string, f *runsFlags) error {
	o := client.WatchOptions{}
	if !f.json {
		o.Stdout, o.Stderr = forReader(a.Stdout, f.raw), forReader(a.Stderr, f.raw)
	}
	r, err := c.WatchRun(ctx, id, o)
	if !f.json {
		finishVisible(o.Stdout, o.Stderr)
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return &brokenPipeError{}
	case err != nil && ctx.Err() != nil: // it goes on; nothing was lost
		return &stoppedError{}
	case err != nil:
		return err
	case f.json:
		a.exit = exitStatus(r)
		return a.writeJSON(r)
	}
	a.midLine = a.endsMidLine(r)
	return a.ended(ctx, r, "")
}

// ended says of a finished run what "run" would have said, and leaves with the
// same exit status.
func (a *app) ended(ctx context.Context, r *sandbox.Result, dir string) error {
	a.exit = exitStatus(r)
	asked := a.runCommand() // what would change its end are flags of that one
	r = flagWords{asked.Flags(), asked.Name()}.result(r)
	a.report(r, reportOptions{keeps: a.keeps(ctx, r), kept: int64(max(len(r.Stdout), len(r.Stderr))), dir: dir})
	return nil
}

const resultExamples = `  pinfold result $run           its output, and its exit status
  pinfold result --wait $run    once it has finished
  pinfold result --json $run    everything
  pinfold result -o out $run    the files that came out, too
  pinfold result --receipt job.receipt $run    and what proves it (docs/audit.md)`

func (a *app) resultCommand() *cobra.Command {
	var wait, asJSON, raw bool
	var dir, receipt string
	cmd := &cobra.Command{
		Use: "result [flags] RUN", Short: "Print what came of a run of a server",
		Long:    "Prints what the program printed, says why it ended, and has the exit status that\n\"pinfold run\" had.",
		Example: resultExamples, Args: needArgs(1, 1, "a run"), ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("run", args[0]); err != nil {
				return err
			}
			defer catchBrokenPipe()()
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				get := c.GetRun
				if wait {
					get = c.WaitRun
				}
				r, err := get(ctx, args[0])
				switch {
				case wait && toldToGo(ctx, err): // the run goes on; nothing was lost
					return &stoppedError{}
				case err != nil:
					return err
				case r.Result == nil:
					return &sandbox.Error{
						Code: sandbox.CodeConflict, Message: "the run has not finished: it is " + sandbox.SafeText(string(r.State), 20),
						Hint: "pinfold result --wait " + sandbox.SafeText(args[0], maxID),
					}
				}
				if err := keepReceipt(receipt, r.Result); err != nil {
					return err
				}
				return a.showResult(ctx, r.Result, dir, asJSON, raw)
			})
		},
	}
	set := cmd.Flags()
	set.BoolVar(&wait, "wait", false, "wait until it has finished")
	set.StringVarP(&dir, "artifacts-dir", "o", "", "write the files that came out here, replacing")
	set.BoolVar(&raw, "raw", false, "do not escape control characters on a terminal")
	set.BoolVar(&asJSON, "json", false, "print the whole result as JSON")
	set.StringVar(&receipt, "receipt", "", "of a server with an audit log: write the run's receipt to this file")
	group(set, groupFiles, "artifacts-dir DIR", "receipt FILE")
	return cmd
}

// showResult prints a result that was fetched.
func (a *app) showResult(ctx context.Context, r *sandbox.Result, dir string, asJSON, raw bool) error {
	if dir != "" {
		sink, err := openArtifacts(dir)
		if err != nil {
			return err
		}
		defer sink.Close()
		for i, artifact := range r.Artifacts {
			content := artifact.Content
			artifact.Content, r.Artifacts[i].Content = nil, nil
			if err := sink.Take(artifact, bytes.NewReader(content)); err != nil {
				return err
			}
		}
		defer func() {
			if !sink.Finish(r) {
				a.exit = exitPinfold
			}
		}()
	}
	if asJSON {
		a.exit = exitStatus(r)
		return a.writeJSON(r)
	}
	out, warn := forReader(a.Stdout, raw), forReader(a.Stderr, raw)
	err := writeOrdered(r, out, warn)
	finishVisible(out, warn)
	switch {
	case errors.Is(err, syscall.EPIPE):
		return &brokenPipeError{}
	case err != nil:
		return err
	}
	a.midLine = a.endsMidLine(r)
	if dir != "" && len(r.Artifacts) == 0 && len(r.ArtifactsSkipped) == 0 {
		a.say("no files came out: a run on a server keeps only those that its --artifact PATTERN matches")
	}
	return a.ended(ctx, r, dir)
}

func (a *app) cancelCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "cancel [flags] RUN...", Short: "End runs of a server",
		Long:    "Returns when they have ended. What they had printed is in their results. A run that\nhas finished stays as it is; a line on stderr says so.",
		Example: "  pinfold cancel $run\n  pinfold cancel $(pinfold runs -q --state queued,running)",
		Args:    needArgs(1, -1, "at least one run"), ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("run", args...); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error { return a.cancelRuns(ctx, c, args, asJSON) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// endAll ends all that have the ids, also when one of them fails, and returns those
// that it ended, and the first failure; it says the others.
func endAll[T any](a *app, ids []string, end func(id string) (T, error)) (ended []T, first error) {
	ended = []T{}
	for _, id := range ids {
		x, err := end(id)
		if err == nil {
			ended = append(ended, x)
			continue
		}
		e := *sandbox.AsError(err)
		e.Message = sandbox.SafeText(id, maxID) + ": " + e.Message
		if first == nil {
			first = &e
		} else {
			a.say("%s", sandbox.SafeText(e.Message, maxMessage))
		}
	}
	return ended, first
}

func (a *app) cancelRuns(ctx context.Context, c *client.Client, ids []string, asJSON bool) error {
	ended, err := endAll(a, ids, func(id string) (client.RunRecord, error) {
		r, err := c.CancelRun(ctx, id)
		if err == nil && r.Cause != sandbox.CauseCancelled {
			a.say("%s had finished before: %s", sandbox.SafeText(id, maxID), sandbox.SafeText(cmp.Or(string(r.Status), string(r.State)), 20))
		}
		return r, err
	})
	if err != nil || !asJSON {
		return err
	}
	return writeList(a, "runs", ended)
}

// detach starts a run on a server that goes on by itself, and prints its id.
func (a *app) detach(ctx context.Context, f *runFlags, req runs.Request) error {
	if !a.remote() {
		return usageError("--detach: without a server the run would end with this command").WithHint(`start one with "pinfold serve", and name it with --server URL`)
	}
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		spec := req.Spec
		err := prepareRemote(&spec, req)
		stdin := req.Streams.Stdin
		if err == nil && stdin != nil && f.stdin == "" {
			if stdin = begun(stdin); stdin == nil {
				a.say("nothing came from stdin within %s, so the program has none; --stdin - waits for it", stdinBegins)
			}
		}
		if err == nil && stdin != nil {
			err = wholeStdin(&spec, stdin)
		}
		if err != nil {
			return err
		}
		r, err := c.StartRun(ctx, spec, client.StartOptions{})
		if err != nil {
			return err
		}
		id := sandbox.SafeText(r.ID, maxID)
		if r.State == sandbox.RunPending && !f.json {
			a.say("it waits for a person; who may approve it sees it with: pinfold approvals %s", id)
		}
		return a.writeLine(f.json, r, id)
	})
}

// stdinBegins is how long we wait for the first byte of a stdin that nobody said is the
// program's: under cron, ssh and CI it may be a pipe that stays open and says nothing.
const stdinBegins = time.Second

// begun is stdin once something of it has come, or its end; nil when nothing does.
func begun(stdin io.Reader) io.Reader {
	r, came := bufio.NewReader(stdin), make(chan struct{})
	go func() {
		_, _ = r.Peek(1) // an error comes again
		close(came)
	}()
	select {
	case <-came:
		return r
	case <-time.After(stdinBegins):
		return nil
	}
}

// wholeStdin puts all of stdin into the request: nobody is there later to pass it on.
func wholeStdin(spec *sandbox.Spec, stdin io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(stdin, sandbox.MaxStdinBytes+1))
	switch {
	case err != nil:
		return prefixed("--stdin", hostfiles.OpenError("stdin", err))
	case len(data) > sandbox.MaxStdinBytes:
		return prefixed("--stdin", tooLong(fromStdin, sandbox.MaxStdinBytes))
	case !utf8.Valid(data):
		return usageError("--stdin: bytes that are not UTF-8 cannot go to a server as stdin").WithHint("copy them in with --file and open that file")
	}
	spec.Stdin = string(data)
	return nil
}
