package engine

import (
	"strings"
	"testing"

	"pinfold/internal/driver/fake"
	"pinfold/sandbox"
)

// A program that lacked a module earns a hint by its last words, and nothing else.
func TestMissingModules(t *testing.T) {
	for name, c := range map[string]struct {
		language, stderr string
		code             int
		hint             string // what it says; "": there is none
	}{
		"python":           {"python", "Traceback (most recent call last):\nModuleNotFoundError: No module named 'numpy.random'\n", 1, "numpy is not where this program ran"},
		"javascript":       {"javascript", "node:internal\n  throw err;\n\nError: Cannot find module '@scope/left-pad'\nRequire stack:\n- /home/user/main.js\n\nNode.js v20.1.0\n", 1, "npm install PACKAGE"},
		"an ES module":     {"typescript", "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'lodash' imported from /home/user/main.mjs\n", 1, "lodash is not"},
		"its own file":     {"javascript", "Error: Cannot find module './other'\n", 1, ""},
		"another language": {"sh", "ModuleNotFoundError: No module named 'numpy'\n", 1, ""},
		"that it survived": {"python", "ModuleNotFoundError: No module named 'numpy'\n", 0, ""},
		"another error":    {"python", "ModuleNotFoundError: No module named 'numpy'\nValueError: 2\n", 1, ""},
		"no name":          {"python", "ModuleNotFoundError: No module named '\x1b[2J'\n", 1, ""},
	} {
		j := &job{result: &sandbox.Result{Language: c.language}}
		r := &execResult{exit: &exit{code: c.code}, stdout: newCapture(100, nil), stderr: newCapture(1000, nil)}
		_, _ = r.stderr.Write([]byte(c.stderr))
		j.judge(r.evidence(sandbox.Limits{}.WithDefaults()))
		j.advise(r)
		if cause := j.result.Cause; cause.Kind != sandbox.CauseExited || c.hint == "" && cause.Hint != "" || !strings.Contains(cause.Hint, c.hint) {
			t.Errorf("%s: %+v", name, cause)
		}
	}
	e, _ := newEngine(t, always(fake.Script{Program: func(p *fake.Process) fake.Exit {
		says("", "ModuleNotFoundError: No module named 'x'\n")(p)
		return fake.Exit{Code: 1}
	}}))
	if r := run(t, e, shell(sandbox.Limits{})); r.Cause.Hint != "" {
		t.Errorf("a shell's: %+v", r.Cause)
	}
}
