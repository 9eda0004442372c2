package engine

import (
	"fmt"
	"regexp"

	"pinfold/internal/engine/stdio"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Last words of programs that tell what they lacked. They are compiled when a
// program has failed: every start would wait for it.

// missing are those of programs whose language did not find a module.
var missing = []struct {
	words string
	way   string
}{
	{
		`^ModuleNotFoundError: No module named '([A-Za-z0-9_]{1,60})`,
		"/usr/bin/python3 -m pip install --target site PACKAGE, then --file site --env PYTHONPATH=site",
	},
	{
		`^Error(?: \[ERR_MODULE_NOT_FOUND\])?: Cannot find (?:module|package) '((?:@[a-z0-9_.-]{1,60}/)?[a-z0-9_][a-z0-9_.-]{0,60})'`,
		"npm install PACKAGE, then --file node_modules",
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
func (j *job) advise(r *execResult) {
	if !wantsAdvice(j.result.Status, j.result.Cause) {
		return
	}
	said := r.output.Text(wire.Stderr)
	said = said[max(0, len(said)-lastWords):]
	if i, ok := speaks[j.result.Language]; ok {
		j.result.Cause.Hint = moduleHint(i, said, "")
	}
	if j.result.Cause.Hint == "" {
		j.result.Cause.Hint = networkHint(said)
	}
}

// advise is that of a process, which has no language and finds in the sandbox what
// was copied there.
func (p *Process) advise(status sandbox.Status, c sandbox.Cause) sandbox.Cause {
	if !wantsAdvice(status, c) {
		return c
	}
	stream := wire.Stderr
	if p.command.Terminal != nil {
		stream = wire.Stdout
	}
	said := stdio.Text(p.output.Last(stream, lastWords))
	for i := range missing {
		if c.Hint = moduleHint(i, said, " of pinfold run, or pinfold cp and exec"); c.Hint != "" {
			return c
		}
	}
	c.Hint = networkHint(said)
	return c
}

func wantsAdvice(s sandbox.Status, c sandbox.Cause) bool {
	return c.Kind == sandbox.CauseExited && c.Hint == "" && s == sandbox.StatusFailed
}

func moduleHint(i int, said, where string) string {
	found := regexp.MustCompile(missing[i].words).FindStringSubmatch(complaint(said))
	if found == nil {
		return ""
	}
	return fmt.Sprintf("%s is not where this program ran, and there is no network inside; bring it along: %s%s (docs/packages.md)", found[1], missing[i].way, where)
}

func networkHint(said string) string {
	if !regexp.MustCompile(unreachable).MatchString(said) {
		return ""
	}
	return "there is no network inside: bring what the program needs with it, as files or packages (docs/packages.md)"
}
