//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"

	"pinfold/sandbox"
)

// badCases are what is wrong with requests, from "bad input" of the contract.
func badCases() []Case {
	return []Case{
		{
			ID: "BI-01", Title: "limits that are negative, overflowing or absurd; unknown languages, drivers, templates, features; names with NUL", Level: Spec, Severity: HostDoS, Source: "contract",
			Expect: "an error with a code and a field, before anything is made", Do: badSpecs,
			Control: Control{Without: "the bad part", Run: func(a *arena) error { return a.run(Payload{Language: "shell", Code: "true"}).succeeded() }},
		},
		{
			ID: "BI-02", Title: "binary garbage, a directory and a missing interpreter as program", Level: Spec, Severity: Integrity, Source: "contract",
			Expect: "a clear failure of the program, not of Pinfold", Do: func(t *trial) error {
				garbage := Payload{Language: "shell", Code: "\x7fELF\x02\x01\x01" + strings.Repeat("\x00\xff\x1b", 1000)}
				dir := Payload{Language: "shell", Code: "./d", Files: []sandbox.File{{Path: "d/x"}}}
				missing := Payload{Language: "shell", Code: "./x", Files: []sandbox.File{{Path: "x", Content: "#!/no/such\n", Executable: true}}}
				var errs []error
				for _, p := range []Payload{garbage, dir, missing} {
					errs = append(errs, t.run(p).ended(sandbox.StatusFailed, sandbox.CauseExited))
				}
				return errors.Join(errs...)
			},
			Control: Control{Without: "the bad part", Run: func(a *arena) error { return a.run(Payload{Language: "shell", Code: "true"}).succeeded() }},
		},
		{
			ID: "BI-03", Title: "arguments and variables that look like options or change how programs start", Level: Spec, Severity: Integrity, Source: "dify-sandbox CVE-2025-3466",
			Expect: "they reach the program as they are and nothing else", Attack: Payload{
				Code: `say("args", sys.argv[1:] == ["-c", "print(1)", "--help", "\x1b[2J", ""] or sys.argv); say("path", os.environ["LD_PRELOAD"])`,
				Args: []string{"-c", "print(1)", "--help", "\x1b[2J", ""}, Env: map[string]string{"LD_PRELOAD": "/home/user/none.so", "LD_LIBRARY_PATH": "/tmp"},
			},
			Doors: []Door{{"args", "True", ""}, {"path", "/home/user/none.so", ""}},
			Control: Control{Without: "a vector of arguments (through a shell)", Run: func(a *arena) error {
				out, err := exec.CommandContext(a.Context(), "/bin/sh", "-c", "python3 -c print(1)").CombinedOutput()
				if err == nil {
					return fmt.Errorf("%q", out)
				}
				return nil
			}},
		},
		{
			ID: "BI-04", Title: "a file that goes in with the name of a link, of a directory, of another file's parent", Level: Input, Severity: Integrity, Source: "zip slip",
			Expect: "an error that names the file", Do: func(t *trial) error {
				for _, files := range [][]sandbox.File{{{Path: "a"}, {Path: "a/b"}}, {{Path: "x"}, {Path: "x"}}, {{Path: "a/b"}, {Path: "a"}}} {
					r := t.run(Payload{Language: "shell", Code: "true", Files: files})
					if r.err == nil || sandbox.AsError(r.err).Field == "" {
						return fmt.Errorf("%+v: %w", files, r.err)
					}
				}
				return nil
			},
			Control: Control{Without: "the bad part", Run: func(a *arena) error {
				return a.run(Payload{Language: "shell", Code: "cat a/b", Files: []sandbox.File{{Path: "a/b"}}}).succeeded()
			}},
		},
	}
}

func badSpecs(t *trial) error {
	good := sandbox.Spec{Language: "shell", Code: "true"}
	var errs []error
	try := func(what string, change func(*sandbox.Spec)) {
		s := good
		change(&s)
		r, err := t.engine.Run(t.Context(), requestOf(s))
		if err == nil || sandbox.AsError(err).Field == "" || sandbox.AsError(err).Code == sandbox.CodeInternal {
			errs = append(errs, fmt.Errorf("%s: %w %+v", what, err, r))
		}
	}
	for _, info := range sandbox.LimitTable() {
		for _, v := range []int64{-1, math.MinInt64, math.MaxInt64, info.Max + 1} {
			var l sandbox.Limits
			if err := l.UnmarshalJSON([]byte(fmt.Sprintf("{%q: %d}", info.Field, v))); err == nil {
				errs = append(errs, fmt.Errorf("%s = %d is accepted", info.Field, v))
			}
		}
		var l sandbox.Limits
		if err := l.UnmarshalJSON([]byte(fmt.Sprintf("{%q: 0}", info.Field))); err == nil {
			errs = append(errs, fmt.Errorf("%s = 0 is accepted", info.Field))
		}
	}
	try("language", func(s *sandbox.Spec) { s.Language = "\x1b[2Jcobol" })
	try("driver", func(s *sandbox.Spec) { s.Driver = "../native" })
	try("template", func(s *sandbox.Spec) { s.Template = "../host" })
	try("feature", func(s *sandbox.Spec) { s.Require = []string{"magic"} })
	try("network", func(s *sandbox.Spec) { s.Network.Mode = "host" })
	try("argument", func(s *sandbox.Spec) { s.Args = []string{"a\x00b"} })
	try("variable", func(s *sandbox.Spec) { s.Env = map[string]string{"A=B": "c"} })
	try("cpus", func(s *sandbox.Spec) { s.Limits.CPUs = math.NaN() })
	try("code", func(s *sandbox.Spec) { s.Code = strings.Repeat("#", sandbox.MaxCodeBytes+1) })
	try("pattern", func(s *sandbox.Spec) { s.Artifacts = []string{"[a"} })
	return errors.Join(errs...)
}
