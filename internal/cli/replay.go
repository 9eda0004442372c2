package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/sandbox"
)

// exitDiffers is the exit status of a replay that came out in another way.
const exitDiffers = 1

const replayLong = `Runs what a run was asked for again, as a new run, and says what differs: first what
both ran on and in, then how they ended, what they printed, and the files that came
out. What they took (time, memory) is not compared.

The request comes out of the server's audit log, which has to keep texts
(audit.texts: true in its configuration). The values of secrets are not among
them: the new run uses those of today.

The exit status is 0 where the same came out, 1 where something differs, and 125
where the run cannot be repeated.`

func (a *app) replayCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "replay [flags] RUN", Short: "Run what a run was asked for again, and say what differs", Long: replayLong,
		Example: "  pinfold replay $run\n  pinfold replay --json $run | jq .replay", Args: needArgs(1, 1, "a run"), ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("run", args[0]); err != nil {
				return err
			}
			defer catchBrokenPipe()()
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				r, err := c.ReplayRun(ctx, args[0])
				if err != nil {
					return err
				}
				return a.showReplay(r, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the new run's result as JSON; replay in it is what differs")
	return cmd
}

func (a *app) showReplay(r *sandbox.Result, asJSON bool) error {
	if r.Replay == nil {
		return &sandbox.Error{Code: sandbox.CodeProtocol, Message: "the server did not say what differs", Hint: "is it older than this pinfold?"}
	}
	if !r.Replay.Same {
		a.exit = exitDiffers
	}
	if asJSON {
		return a.writeJSON(r)
	}
	return a.write([]byte(replayText(r)))
}

// replayText says what differs, in lines. A server is not believed to have cleaned it.
func replayText(r *sandbox.Result) string {
	var out strings.Builder
	verdict := "came out the same"
	if !r.Replay.Same {
		verdict = "differs"
	}
	fmt.Fprintf(&out, "%s, run again as %s: %s\n", sandbox.SafeText(r.Replay.Of, maxID), sandbox.SafeText(r.ID, maxID), verdict)
	if len(r.Replay.Environment) > 0 {
		out.WriteString("no longer the same, so that a difference means little:\n")
		for _, d := range r.Replay.Environment {
			differenceText(&out, d)
		}
	}
	if len(r.Replay.Secrets) > 0 {
		fmt.Fprintf(&out, "secrets had the values of today: %s\n", sandbox.SafeText(strings.Join(r.Replay.Secrets, ", "), maxMessage))
	}
	for _, d := range r.Replay.Differences {
		differenceText(&out, d)
	}
	return out.String()
}

func differenceText(out *strings.Builder, d sandbox.Difference) {
	what := d.What
	if d.Path != "" {
		what += " " + d.Path
	}
	fmt.Fprintf(out, "  %s: was %s, is %s", sandbox.SafeText(what, maxMessage), sandbox.SafeText(d.Was, maxMessage), sandbox.SafeText(d.Is, maxMessage))
	if d.Diff != "" {
		fmt.Fprintf(out, ", from byte %d on", d.At)
	}
	out.WriteString("\n")
	for line := range strings.Lines(d.Diff) {
		out.WriteString("    " + sandbox.SafeText(strings.TrimSuffix(line, "\n"), maxMessage) + "\n")
	}
}
