package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
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
	completePaths(cmd, "artifacts-dir", "file", "spec", "stdin", "mount", schemaFlag, validatorFlag, "profiles", "policy")
}

// completePaths is for the flags that take a directory, and files.
func completePaths(cmd *cobra.Command, dir string, files ...string) {
	err := cmd.MarkFlagDirname(dir)
	for _, flag := range files {
		err = errors.Join(err, cmd.MarkFlagFilename(flag))
	}
	if err != nil {
		panic(err) // the caller has declared every one of them
	}
}

// completeIsolation is the same for the flags of bindIsolation.
func completeIsolation(cmd *cobra.Command) {
	completeChoices(cmd, map[string]func() []string{
		"driver":    func() []string { return []string{sandbox.DriverAuto, "native", "process"} },
		"isolation": sandbox.IsolationLevels,
		"template":  func() []string { return []string{sandbox.TemplateHost} },
		"network":   func() []string { return []string{sandbox.NetworkNone} },
		"require":   featureNames,
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
	if len(args) > 0 && cmd.Name() != "kill" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list := func(ctx context.Context, c *client.Client) iter.Seq2[sandbox.Info, error] {
		return c.Sandboxes(ctx, client.Filter{States: []sandbox.State{sandbox.StateRunning}, PageSize: completionMost})
	}
	return completeIDs(cmd, a, list, func(info sandbox.Info) string {
		return sandbox.SafeText(info.ID, maxID) + "\t" + sandbox.SafeText(notes(info.Metadata), 60)
	})
}

// completeRuns offers the newest runs of the server.
func (a *app) completeRuns(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	list := func(ctx context.Context, c *client.Client) iter.Seq2[client.RunRecord, error] {
		return c.Runs(ctx, client.Filter{PageSize: completionMost})
	}
	return completeIDs(cmd, a, list, func(r client.RunRecord) string {
		return fmt.Sprintf("%s\t%s %s", sandbox.SafeText(r.ID, maxID), r.Language, cmp.Or(string(r.Status), string(r.State)))
	})
}

// completeIDs offers what the server lists first, each with what is said of it.
func completeIDs[T any](cmd *cobra.Command, a *app, list func(context.Context, *client.Client) iter.Seq2[T, error], show func(T) string) ([]string, cobra.ShellCompDirective) {
	c, err := a.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close() //nolint:errcheck // idle connections only
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	all, _, _ := collect(list(ctx, c), completionMost) // what has come is offered
	var ids []string
	for _, x := range all {
		ids = append(ids, show(x))
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
