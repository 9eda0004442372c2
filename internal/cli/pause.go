package cli

import (
	"context"

	"github.com/spf13/cobra"
	"pinfold/client"
	"pinfold/sandbox"
)

const pauseLong = `Nothing in a paused sandbox runs, and all that is in there stays: processes,
memory, files. Whatever else is asked of it is refused until pinfold resume.
Its time to live goes on; its idle time and the time limits of what runs in it
stand.`

func (a *app) pauseCommand() *cobra.Command {
	cmd := a.changeCommand("pause", (*client.Sandbox).Pause)
	cmd.Short, cmd.Long = "Have all that is in sandboxes stand still", pauseLong
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	cmd := a.changeCommand("resume", (*client.Sandbox).Resume)
	cmd.Short = "Have what is in paused sandboxes go on"
	return cmd
}

// changeCommand changes the state of each sandbox that it is given, also where one fails.
func (a *app) changeCommand(name string, how func(*client.Sandbox, context.Context) (sandbox.Info, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               name + " [flags] SANDBOX...",
		Example:           "  pinfold " + name + " $box",
		Args:              needArgs(1, -1, "at least one sandbox"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("sbx", args...); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				all, err := endAll(a, args, func(id string) (sandbox.Info, error) { return how(c.Sandbox(id), ctx) })
				if err != nil || !asJSON {
					return err
				}
				return writeList(a, "sandboxes", all)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
