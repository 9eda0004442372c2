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

// prepareFor starts the whole program for a run of this host's with which only that can do
// something. It returns nil for others. It comes too late when stdin has been read.
func (a *app) prepareFor(w wish, read bool) error {
	flag := ""
	switch {
	case a.remote():
	case w.scan:
		flag = "--scan"
	case w.profile != "":
		flag = "--profile " + sandbox.SafeText(w.profile, 80)
	case w.policy != "":
		flag = "--policy " + shellQuote(w.policy)
	case w.template != "" && w.template != sandbox.TemplateHost:
		flag = "--template " + sandbox.SafeText(w.template, 130)
	case w.stronger() && w.driver != "":
		flag = "--driver " + sandbox.SafeText(w.driver, 60)
	case w.stronger():
		flag = "--isolation " + sandbox.SafeText(w.isolation, 60)
	case w.gate && read:
		return usageError("a request with a gate and a program or a request from stdin do not go together").WithHint("put what comes by stdin into a file; or say the gate on the command line, with --gate")
	case w.gate:
		return a.Whole()
	}
	switch {
	case flag == "":
		return nil
	case read:
		return usageError("what comes by stdin asks for what must be known before it is read").WithHint("name it on the command line, too: " + flag)
	}
	return a.Whole()
}
