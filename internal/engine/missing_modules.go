package engine

import (
	"fmt"
	"regexp"

	"pinfold/sandbox"
)

// missing are the last words of programs whose language did not find a module. They
// are compiled when a program has failed: every start would wait for it.
var missing = []struct {
	language string
	words    string
	way      string
}{
	{
		"python", `^ModuleNotFoundError: No module named '([A-Za-z0-9_]{1,60})`,
		"pip install --target site PACKAGE, then the directory site with the program, and PYTHONPATH=site",
	},
	{
		"javascript", `^Error(?: \[ERR_MODULE_NOT_FOUND\])?: Cannot find (?:module|package) '((?:@[a-z0-9_.-]{1,60}/)?[a-z0-9_][a-z0-9_.-]{0,60})'`,
		"npm install PACKAGE, then the directory node_modules with the program",
	},
}

// advise says how to bring what a program lacked, as far as its last words tell.
// They are the program's own: they earn it a hint, and decide nothing.
func (j *job) advise(r *execResult) {
	c := &j.result.Cause
	if c.Kind != sandbox.CauseExited || c.Hint != "" || j.result.Status != sandbox.StatusFailed {
		return
	}
	for _, m := range missing {
		if m.language != j.result.Language && (m.language != "javascript" || j.result.Language != "typescript") {
			continue
		}
		if found := regexp.MustCompile(m.words).FindStringSubmatch(complaint(r.stderr.text())); found != nil {
			c.Hint = fmt.Sprintf("%s is not where this program ran, and there is no network inside; bring it along: %s (docs/packages.md)", found[1], m.way)
		}
	}
}
