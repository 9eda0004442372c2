package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/sandbox"
)

const logsExamples = `  pinfold logs $box              what its last command printed
  pinfold logs --follow $box prc_…`

func (a *app) logsCommand() *cobra.Command {
	var follow, raw, asJSON bool
	cmd := &cobra.Command{
		Use:               "logs [flags] SANDBOX [PROCESS]",
		Short:             "Print what a process in a sandbox has printed",
		Long:              "The server keeps the last 1 MiB of each stream, or what exec --output-limit says. What\nis missing before that is told on stderr, and by stdout_truncated in JSON. Without a\nprocess it is the one that was started last.",
		Example:           logsExamples,
		Args:              needArgs(1, 2, "a sandbox and maybe a process"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.checkIDs("sbx", args[0])
			if err == nil {
				err = a.checkIDs("prc", args[1:]...)
			}
			if err != nil {
				return err
			}
			defer catchBrokenPipe()()
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				p, err := chooseProcess(ctx, c.Sandbox(args[0]), args[1:])
				if err != nil {
					return outputGone(err)
				}
				show := a.logsText
				if asJSON {
					show = a.logsJSON
				}
				if err = show(ctx, p, follow, raw); err != nil && ctx.Err() != nil { // all of it goes on; nothing was lost
					return &stoppedError{}
				}
				return outputGone(err)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the process ends")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the process with its output as JSON")
	cmd.Flags().BoolVar(&raw, "raw", false, "do not escape control characters on a terminal")
	return cmd
}

// outputGone says what the end of a sandbox means to whoever asks for output.
func outputGone(err error) error {
	e := sandbox.AsError(err)
	if e == nil || e.Code != sandbox.CodeGone {
		return err
	}
	c := *e
	c.Message += "; what its processes printed is gone with it"
	return c.WithHint("pinfold ls --all says why it ended; read output while the sandbox lives: pinfold logs --follow")
}

// chooseProcess is the process that was named, or the one that began last.
func chooseProcess(ctx context.Context, box *client.Sandbox, named []string) (*client.Process, error) {
	if len(named) > 0 {
		return box.Process(named[0]), nil
	}
	all, err := box.Processes(ctx)
	if err != nil {
		return nil, err
	}
	var last *sandbox.Process
	for i, p := range all {
		if last == nil || p.StartedAt.After(last.StartedAt) {
			last = &all[i]
		}
	}
	if last == nil {
		return nil, &sandbox.Error{
			Code: sandbox.CodeNotFound, Message: "no process was started in this sandbox",
			Hint: "pinfold exec " + sandbox.SafeText(box.ID(), maxID) + " -- COMMAND",
		}
	}
	return box.Process(last.ID), nil
}

func (a *app) logsText(ctx context.Context, p *client.Process, follow, raw bool) error {
	out, warn := forReader(a.Stdout, raw), forReader(a.Stderr, raw)
	var counts [2]counter
	info, err := p.Output(ctx, client.OutputOptions{
		Stdout: io.MultiWriter(&counts[0], out), Stderr: io.MultiWriter(&counts[1], warn), StdoutOffset: -1, StderrOffset: -1, Now: !follow,
	})
	finishVisible(out, warn)
	if errors.Is(err, syscall.EPIPE) {
		return &brokenPipeError{}
	}
	if err != nil {
		return err
	}
	if info.StdoutTruncated {
		a.say("%s", notKept("stdout", info.StdoutBytes, int64(counts[0]), a.most(ctx, sandbox.CauseOutput)))
	}
	if info.StderrTruncated {
		a.say("%s", notKept("stderr", info.StderrBytes, int64(counts[1]), a.most(ctx, sandbox.CauseOutput)))
	}
	return nil
}

// counter counts what is written.
type counter int64

// Write implements io.Writer. It never fails.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// notKept says that a stream began before what was shown of it.
func notKept(stream string, all, shown, keeps int64) string {
	return fmt.Sprintf("the first %d of %d bytes of %s are no longer kept; %s", all-shown, all, stream, keepProcessAdvice(all, keeps))
}

// keepProcessAdvice is how that many bytes of a process's output are kept whole, of which so
// many can be.
func keepProcessAdvice(all, keeps int64) string {
	if all <= keeps {
		return "exec " + keepFlag(all, keeps) + " keeps as much"
	}
	return noMore(keeps) + "read them while they are written: pinfold logs --follow"
}

// maxLogs is how much of a stream logs --json prints at most, the last of it.
const maxLogs = 64 << 20

func (a *app) logsJSON(ctx context.Context, p *client.Process, follow, _ bool) error {
	out, warn := &tailBuffer{limit: maxLogs}, &tailBuffer{limit: maxLogs}
	info, err := p.Output(ctx, client.OutputOptions{Stdout: out, Stderr: warn, StdoutOffset: -1, StderrOffset: -1, Now: !follow})
	if err != nil {
		return err
	}
	goneOut, goneErr := info.StdoutTruncated, info.StderrTruncated
	info = withTails(info, out, warn)
	info.StdoutTruncated, info.StderrTruncated = info.StdoutTruncated || goneOut, info.StderrTruncated || goneErr
	return a.writeJSON(a.speech.process(info))
}
