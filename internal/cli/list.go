package cli

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pinfold/client"
	"pinfold/sandbox"
)

const lsExamples = `  pinfold ls                         the living sandboxes
  pinfold ls --all --metadata job=7  those that have ended, too
  pinfold ls $box                    files in its /home/user
  pinfold ls $box:/tmp               files in another directory`

// lsFlags are the flags of "ls" as they were given.
type lsFlags struct {
	all, quiet, json bool
	metadata         map[string]string
	states           []string
	depth            int
}

func (a *app) lsCommand() *cobra.Command {
	f := &lsFlags{metadata: map[string]string{}}
	cmd := &cobra.Command{
		Use:               "ls [flags] [SANDBOX[:PATH]]",
		Short:             "List sandboxes, or files in one",
		Example:           lsExamples,
		Args:              needArgs(0, 1, "at most one SANDBOX[:PATH]"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error { return a.listSandboxes(ctx, c, f) })
			}
			at, err := a.listedPath(args[0])
			if err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error { return a.listFiles(ctx, c, at, f) })
		},
	}
	set := cmd.Flags()
	set.BoolVarP(&f.all, "all", "a", false, "sandboxes that have ended, too")
	set.StringSliceVar(&f.states, "state", nil, "only in these states: creating, running, ending, ended")
	set.Var(pairs{f.metadata, "metadata"}, "metadata", "only with this metadata; may be repeated")
	set.IntVar(&f.depth, "depth", 1, "of files: how many levels down")
	set.BoolVarP(&f.quiet, "quiet", "q", false, "print ids, or paths, only")
	set.BoolVar(&f.json, "json", false, "print JSON")
	group(set, "Choice", "all", "state STATES", "metadata K=V", "depth N")
	group(set, groupOutput, "quiet", "json")
	return cmd
}

func (f *lsFlags) filter() (client.Filter, error) {
	filter := client.Filter{Metadata: f.metadata}
	for _, s := range f.states {
		state := sandbox.State(s)
		if !slices.Contains(sandbox.States(), state) {
			return filter, usageError("--state: no state \"%s\"", sandbox.SafeText(s, 40)).WithHint("the states are creating, running, paused, ending, ended")
		}
		filter.States = append(filter.States, state)
	}
	if len(f.states) == 0 && !f.all {
		filter.States = []sandbox.State{sandbox.StateCreating, sandbox.StateRunning, sandbox.StatePaused, sandbox.StateEnding}
	}
	return filter, nil
}

// maxListed bounds what one command prints of a list.
const maxListed = 100_000

// checkMost checks a --limit; usual is what comes without it.
func checkMost(n int, usual string) error {
	if n >= 1 && n <= maxListed {
		return nil
	}
	return usageError("--limit: %d is outside 1 to %d", n, maxListed).WithHint("leave it out for the " + usual)
}

func (a *app) listSandboxes(ctx context.Context, c *client.Client, f *lsFlags) error {
	filter, err := f.filter()
	if err != nil {
		return err
	}
	all, _, err := collect(c.Sandboxes(ctx, filter), maxListed)
	if err != nil {
		return err
	}
	if f.json {
		return writeList(a, "sandboxes", all)
	}
	t := newTable("SANDBOX", "STATE", "TEMPLATE", "CREATED", "ENDS", "PROCESSES", "MEMORY", "METADATA")
	for _, i := range all {
		ends := until(i.ExpiresAt)
		if i.State == sandbox.StateEnded && i.Cause != nil {
			ends = string(i.Cause.Kind)
		}
		t.row(i.ID, string(i.State), i.Template, since(i.CreatedAt), ends, fmt.Sprint(i.Processes), size(i.Usage.MemoryPeakBytes), notes(i.Metadata))
	}
	return a.writeTable(t, f.quiet)
}

// collect takes the first of a list, also when an error ends it before, and says whether
// there are more.
func collect[T any](list iter.Seq2[T, error], most int) (all []T, more bool, err error) {
	for x, err := range list {
		if err != nil || len(all) == most {
			return all, err == nil, err
		}
		all = append(all, x)
	}
	return all, false, nil
}

// sayMore says that a list has more than were printed, where nobody chose how many.
func (a *app) sayMore(flags *pflag.FlagSet, more bool, which string) {
	if more && !flags.Changed("limit") {
		a.say("these are the %s; --limit N prints more", which)
	}
}

func (a *app) psCommand() *cobra.Command {
	var asJSON, quiet bool
	cmd := &cobra.Command{
		Use:               "ps [flags] SANDBOX",
		Short:             "List the processes that were started in a sandbox",
		Example:           "  pinfold ps $box",
		Args:              needArgs(1, 1, "a sandbox"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("sbx", args[0]); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				all, err := c.Sandbox(args[0]).Processes(ctx)
				if err != nil {
					return outputGone(err)
				}
				if asJSON {
					return writeList(a, "processes", all)
				}
				t := newTable("PROCESS", "PID", "STATE", "STARTED", "OUTPUT", "COMMAND")
				for _, p := range all {
					t.row(p.ID, fmt.Sprint(p.PID), processState(p), since(p.StartedAt), size(p.StdoutBytes+p.StderrBytes), strings.Join(p.Args, " "))
				}
				return a.writeTable(t, quiet)
			})
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func processState(p sandbox.Process) string {
	switch {
	case p.Running:
		return "running"
	case p.Cause != nil && p.Cause.Kind != sandbox.CauseExited && p.Cause.Kind != sandbox.CauseSignaled:
		return string(p.Cause.Kind)
	case p.Signal != "":
		return p.Signal
	case p.ExitCode != nil:
		return fmt.Sprintf("exit %d", *p.ExitCode)
	}
	return string(p.Status)
}

// table is text in columns. Its cells may come from anywhere.
type table struct {
	head []string
	rows [][]string
}

func newTable(head ...string) *table { return &table{head: head} }

const maxCell = 120

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = sandbox.SafeText(c, maxCell)
	}
	t.rows = append(t.rows, cells)
}

// writeTable prints the table, or its first column without a head.
func (a *app) writeTable(t *table, quiet bool) error {
	var b bytes.Buffer
	if quiet {
		for _, r := range t.rows {
			b.WriteString(r[0] + "\n")
		}
		return a.write(b.Bytes())
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{t.head}, t.rows...) {
		_, _ = fmt.Fprintln(w, strings.Join(r, "\t")) // a buffer
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var out bytes.Buffer
	for line := range strings.Lines(b.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return a.write(out.Bytes())
}

// notes writes metadata in one cell.
func notes(m map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	return strings.Join(parts, ",")
}

func since(t time.Time) string { return span(time.Since(t)) + " ago" }

func until(t time.Time) string {
	d := time.Until(t)
	if d < time.Second {
		return "now"
	}
	return "in " + span(d)
}

// size is a number of bytes as people say it, with at most one decimal.
func size(n int64) string { return beside(n, n, sandbox.UnitBytes) }

// span is a duration as people say it.
func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(max(d, 0).Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
