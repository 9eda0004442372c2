package engine

import (
	"regexp"
	"slices"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/stdio"
	"pinfold/internal/wire"
	"pinfold/internal/zygote/warm"
	"pinfold/sandbox"
)

// Last words of programs that tell what they lacked. They are compiled when a
// program has failed: every start would wait for it.

// missing are those of programs whose language did not find a module.
var missing = []struct {
	words string
	way   func() sandbox.Advice
}{
	{
		`^ModuleNotFoundError: No module named '([A-Za-z0-9_]{1,60})`,
		func() sandbox.Advice {
			return sandbox.Advise("%s, then %s and %s", sandbox.HostCommand("/usr/bin/python3 -m pip install --target site PACKAGE"),
				sandbox.Copy("site"), sandbox.Set("env", map[string]string{"PYTHONPATH": "site"}))
		},
	},
	{
		`^Error(?: \[ERR_MODULE_NOT_FOUND\])?: Cannot find (?:module|package) '((?:@[a-z0-9_.-]{1,60}/)?[a-z0-9_][a-z0-9_.-]{0,60})'`,
		func() sandbox.Advice {
			return sandbox.Advise("%s, then %s", sandbox.HostCommand("npm install PACKAGE"), sandbox.Copy("node_modules"))
		},
	},
}

// speaks are the languages that have those words.
var speaks = map[string]int{"python": 0, "javascript": 1, "typescript": 1}

// unreachable is what programs say that wanted a network: the C library, Python,
// Node, curl, wget and Go of a name, and all of them of an address.
const unreachable = `[Nn]ame or service not known|Temporary failure (?:in name resolution|resolving)|No address associated with hostname|` +
	`getaddrinfo (?:ENOTFOUND|EAI_AGAIN)|[Cc]ould not resolve (?:host|proxy)|unable to resolve host|dial tcp: lookup |` +
	`[Nn]etwork is unreachable|\bENETUNREACH\b`

// lastWords is how much of what a program said at the end is looked at.
const lastWords = 4 << 10

// advise says how to bring what a program lacked, as far as its last words tell.
// They are the program's own: they earn it a hint, and decide nothing.
func (j *job) advise(r *execution.Outcome) {
	if !wantsAdvice(j.result.Status, j.result.Cause) {
		return
	}
	said := r.Output.Text(wire.Stderr)
	said = said[max(0, len(said)-lastWords):]
	j.result.Cause = j.result.Cause.WithAdvice(adviceFor(said, func(i int) bool {
		speaker, ok := speaks[j.result.Language]
		return ok && speaker == i
	}))
}

// advise is that of a process, which has no language.
func (p *Process) advise(status sandbox.Status, c sandbox.Cause) sandbox.Cause {
	if !wantsAdvice(status, c) {
		return c
	}
	stream := wire.Stderr
	if p.command.Terminal != nil {
		stream = wire.Stdout
	}
	return c.WithAdvice(adviceFor(stdio.Text(p.output.Last(stream, lastWords)), func(int) bool { return true }))
}

func wantsAdvice(s sandbox.Status, c sandbox.Cause) bool {
	return c.Kind == sandbox.CauseExited && c.Hint == "" && s == sandbox.StatusFailed
}

// adviceFor looks for a missing module in the words of the languages that may be
// meant, and else for a missing network.
func adviceFor(said string, meant func(i int) bool) sandbox.Advice {
	last := warm.ErrorLine(said)
	for i, m := range missing {
		if !meant(i) {
			continue
		}
		if found := regexp.MustCompile(m.words).FindStringSubmatch(last); found != nil {
			before := sandbox.Text(found[1] + " is not where this program ran, and there is no network inside; bring it along: ")
			return slices.Concat(sandbox.Advice{before}, m.way(), sandbox.Advice{sandbox.Text(" (docs/packages.md)")})
		}
	}
	if regexp.MustCompile(unreachable).MatchString(said) {
		return sandbox.Advise("there is no network inside: bring what the program needs with it, as files or packages (docs/packages.md)")
	}
	return nil
}
