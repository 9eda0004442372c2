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

// handOverImage starts the whole program for a run of this host's in a template that is an
// image, with which only that can do something. It returns nil for others. It comes too
// late when stdin has been read.
func (a *app) handOverImage(template string, read bool) error {
	switch {
	case template == "" || template == sandbox.TemplateHost || a.remote():
		return nil
	case read:
		return usageError("what comes by stdin asks for a template").WithHint("name it on the command line, too: --template " + sandbox.SafeText(template, 130))
	}
	return a.Whole()
}
