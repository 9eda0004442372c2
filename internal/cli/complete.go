package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/sandbox"
)

// completeRunFlags tells shells what the flags of "run" take. Flags that are
// not named here take anything, or a file name.
func completeRunFlags(cmd *cobra.Command) {
	completeChoices(cmd, map[string]func() []string{"language": languageNames})
	completeIsolation(cmd)
	for _, flag := range []string{"file", "spec", "stdin", "mount"} {
		if err := cmd.MarkFlagFilename(flag); err != nil {
			panic(err)
		}
	}
	if err := cmd.MarkFlagDirname("artifacts-dir"); err != nil {
		panic(err)
	}
}

// completeIsolation is the same for the flags of bindIsolation.
func completeIsolation(cmd *cobra.Command) {
	completeChoices(cmd, map[string]func() []string{
		"driver":   func() []string { return []string{sandbox.DriverAuto, "native"} },
		"template": func() []string { return []string{sandbox.TemplateHost} },
		"network":  func() []string { return []string{sandbox.NetworkNone} },
		"require":  featureNames,
	})
}

func completeChoices(cmd *cobra.Command, choices map[string]func() []string) {
	for flag, values := range choices {
		complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return values(), cobra.ShellCompDirectiveNoFileComp
		}
		if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // the caller has declared every one of them
		}
	}
}

// Bounds on what completion asks a server.
const (
	completionTimeout = 2 * time.Second
	completionMost    = 50
)

// completeSandboxes offers the running sandboxes of the server. Without one, or
// without an answer, there is nothing to offer.
func (a *app) completeSandboxes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := a.connect()
	if err != nil || len(args) > 0 && cmd.Name() != "kill" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close() //nolint:errcheck // idle connections only
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	var ids []string
	for info, err := range c.Sandboxes(ctx, client.Filter{States: []sandbox.State{sandbox.StateRunning}, PageSize: completionMost}) {
		if err != nil || len(ids) == completionMost {
			break
		}
		ids = append(ids, sandbox.SafeText(info.ID, maxID)+"\t"+sandbox.SafeText(notes(info.Metadata), 60))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func featureNames() []string {
	var names []string
	for _, f := range sandbox.Features() {
		names = append(names, f.Name+"\t"+f.Meaning)
	}
	return names
}
