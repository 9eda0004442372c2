package execution

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"pinfold/internal/engine/stdio"
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

// python is the place of Python's words among them.
const python = 0

// speaks are the languages that have those words.
var speaks = map[string]int{"python": python, "javascript": 1, "typescript": 1}

// unreachable is what programs say that wanted a network: the C library, Python,
// Node, curl, wget and Go of a name, and all of them of an address.
const unreachable = `[Nn]ame or service not known|Temporary failure (?:in name resolution|resolving)|No address associated with hostname|` +
	`getaddrinfo (?:ENOTFOUND|EAI_AGAIN)|[Cc]ould not resolve (?:host|proxy)|unable to resolve host|dial tcp: lookup |` +
	`[Nn]etwork is unreachable|\bENETUNREACH\b`

// refused is what programs say to which nobody answered at a port.
const refused = `[Cc]onnection refused|\bECONNREFUSED\b|Couldn't connect to server`

// LastWords is how much of what a program said at the end is looked at, in bytes.
const LastWords = 4 << 10

// Advise says how to bring what a program lacked, as far as the end of what it said
// tells (LastWords of it). They are the program's own: they earn it a hint, and
// decide nothing. language is the program's; "" where it may be any.
func Advise(s sandbox.Status, c sandbox.Cause, language string, network *sandbox.NetworkUse, said []byte) sandbox.Cause {
	if c.Kind != sandbox.CauseExited || c.Hint != "" || s != sandbox.StatusFailed {
		return c
	}
	text := stdio.Text(said)
	if a := denied(network, text, language != ""); a != nil {
		return c.WithAdvice(a)
	}
	if a := unreached(network, text, language != ""); a != nil {
		return c.WithAdvice(a)
	}
	if a := wrongPort(network, text, language != ""); a != nil {
		return c.WithAdvice(a)
	}
	speaker, ok := speaks[language]
	return c.WithAdvice(adviceFor(text, network != nil, func(i int) bool { return language == "" || ok && speaker == i }))
}

// denied names what was denied that the program may have failed on: that of which it
// speaks, or else, where nothing but it ran, the first.
func denied(network *sandbox.NetworkUse, said string, alone bool) sandbox.Advice {
	if network == nil || len(network.Denied) == 0 {
		return nil
	}
	i := slices.IndexFunc(network.Denied, func(d sandbox.Denial) bool { return strings.Contains(said, d.Host) })
	if i < 0 && !alone {
		return nil
	}
	d := network.Denied[max(i, 0)]
	what := d.Host
	if d.Port != 0 {
		what = fmt.Sprintf("%s:%d", d.Host, d.Port)
	}
	what += " was denied (" + string(d.Reason)
	if d.Evidence != "" {
		what += ": " + d.Evidence
	}
	how := d.Advice
	if how == nil {
		how = sandbox.Advice{sandbox.Text(d.Hint)}
	}
	return slices.Concat(sandbox.Advice{sandbox.Text(what + "); ")}, how)
}

// unreached names a declared endpoint with which it came to nothing on the host's side, chosen
// as in denied.
func unreached(network *sandbox.NetworkUse, said string, alone bool) sandbox.Advice {
	if network == nil {
		return nil
	}
	var failed []sandbox.EndpointUse
	for _, e := range network.Endpoints {
		if e.Errors > 0 && e.LastError != "" {
			failed = append(failed, e)
		}
	}
	i := slices.IndexFunc(failed, func(e sandbox.EndpointUse) bool { return strings.Contains(said, e.Host) })
	if len(failed) == 0 || i < 0 && !alone {
		return nil
	}
	e := failed[max(i, 0)]
	often := fmt.Sprintf("%d of %d times", e.Errors, max(e.Errors, e.Connections, e.Requests))
	return sandbox.Advise("%s is declared and was not reached (%s): %s", sandbox.Text(e.Host), sandbox.Text(often), sandbox.Text(e.LastError))
}

// wrongPort names a declared endpoint that the program may have looked for at another port: the
// kernel inside refuses that, and nobody hears of it. It is the one of which the program speaks,
// or else, where nothing but it ran, the first to which nothing connected.
func wrongPort(network *sandbox.NetworkUse, said string, alone bool) sandbox.Advice {
	if network == nil || !regexp.MustCompile(refused).MatchString(said) {
		return nil
	}
	i := slices.IndexFunc(network.Endpoints, func(e sandbox.EndpointUse) bool { return strings.Contains(said, e.Host) })
	if i < 0 && alone {
		i = slices.IndexFunc(network.Endpoints, func(e sandbox.EndpointUse) bool { return e.Connections == 0 })
	}
	if i < 0 {
		return nil
	}
	return sandbox.Advise("%s answers at the ports that are declared for it only (443 where none is): declare the one that the program wants", sandbox.Text(network.Endpoints[i].Host))
}

// adviceFor looks for a missing module in the words of the languages that may be
// meant, and else for a missing network.
func adviceFor(said string, declared bool, meant func(i int) bool) sandbox.Advice {
	last := warm.ErrorLine(said)
	for i, m := range missing {
		if !meant(i) {
			continue
		}
		if found := regexp.MustCompile(m.words).FindStringSubmatch(last); found != nil {
			if i == python && isStandard(found[1]) {
				return sandbox.Advise("%s is of Python's standard library, and this Python has it not: it is of another version, or has that in a package of its own (Debian's python3-full has all)", sandbox.Text(found[1]))
			}
			before := sandbox.Text(found[1] + " is not where this program ran, and there is no network inside; bring it along: ")
			return slices.Concat(sandbox.Advice{before}, m.way(), sandbox.Advice{sandbox.Text(" (docs/packages.md)")})
		}
	}
	switch {
	case !regexp.MustCompile(unreachable).MatchString(said):
		return nil
	case declared:
		return sandbox.Advise("only declared names can be reached, and no addresses (docs/network.md)")
	}
	return sandbox.Advise("there is no network inside: bring what the program needs with it, as files or packages (docs/packages.md), or declare the names that it may reach (docs/network.md)")
}
