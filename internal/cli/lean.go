//go:build lean

package cli

import (
	"slices"

	"pinfold/sandbox"
)

// Whole starts the whole program in the place of this one, which has no commands for
// servers and hosts (see package wholebin). It returns when that fails.
type Whole func() error

func (a *app) wholeCommands() []namedCommand { return nil }

// handOver starts the whole program for a line that begins with something else than a
// command of ours: another command, help, completion, a flag, a mistyped word.
func (a *app) handOver() (status int, over bool) {
	if len(a.Args) > 0 && slices.ContainsFunc(a.commands(), func(c namedCommand) bool { return c.name == a.Args[0] }) {
		return 0, false
	}
	return a.fail(sandbox.AsError(a.Whole())), true
}
