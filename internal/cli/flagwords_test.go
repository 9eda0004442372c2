package cli

import (
	"testing"

	"github.com/spf13/pflag"

	"pinfold/sandbox"
)

// The command line speaks of flags, where an API speaks of fields.
func TestFlagWords(t *testing.T) {
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runFlags).bind(set)
	if err := set.Parse([]string{"--warm", "numpy", "--artifact", "*.svg"}); err != nil {
		t.Fatal(err)
	}
	s := flagWords{set, "run"}
	for want, fix := range map[string]sandbox.Fix{
		"--memory 64MiB":           sandbox.Set("limits.memory_bytes", 64<<20),
		"--timeout 1m30s":          sandbox.Set("limits.wall_time_ms", 90_000),
		"--processes 8":            sandbox.Set("limits.processes", 8),
		"--cpus 0.5":               sandbox.Set("limits.cpus", 0.5),
		`"limits": {"nothing": 1}`: sandbox.Set("limits.nothing", 1),
		"--cold":                   sandbox.Set("cold", true),
		"--warm numpy,pandas":      sandbox.Set("warm", []string{"numpy", "pandas"}),
		"--env PYTHONPATH=site":    sandbox.Set("env", map[string]string{"PYTHONPATH": "site"}),
		"--language 'a b'":         sandbox.Set("language", "a b"),
		`"ttl_ms": 5`:              sandbox.Set("ttl_ms", 5), // run has no such flag
		`"terminal": {"cols": 80}`: sandbox.Set("terminal", map[string]int{"cols": 80}),
		"leave --allow-import out": sandbox.Omit("allowed_imports"),
		"leave nothing out":        sandbox.Omit("nothing"),
		"--file 'a b'":             sandbox.Copy("a b"),
		"sudo -s":                  sandbox.HostCommand("sudo -s"),
		"capacity.runs in the server's configuration": sandbox.Config("capacity.runs"),
		"pinfold ls --all": sandbox.Call(sandbox.CallListSandboxes),
	} {
		if got := s.say("", sandbox.Advise("%s", fix)); got != want {
			t.Errorf("%+v is said as %q, not %q", fix, got, want)
		}
	}
	odd := sandbox.Advice{sandbox.Text("do "), {Kind: "of a newer server"}}
	if got := s.say("as it says", odd); got != "as it says" {
		t.Errorf("a fix of an unknown kind: %q", got)
	}
	for field, want := range map[string]string{
		"warm[0]": "--warm: m", "artifacts[3]": "--artifact: m", "limits.memory_bytes": "--memory: m", "limits.cpus": "--cpus: m",
		"language": "m", "code": "m", "": "m", "require[0]": "m",
	} {
		if got := s.translate(&sandbox.Error{Code: "x", Field: field, Message: "m"}); got.Message != want || got.Field != field {
			t.Errorf("%s: %+v, not %q", field, got, want)
		}
	}
	if err := set.Parse([]string{"--output-schema", "x.json"}); err != nil {
		t.Fatal(err)
	}
	if got := s.translate(&sandbox.Error{Field: "gate.schemas[0].schema", Message: "m"}); got.Message != "--output-schema: m" {
		t.Errorf("a schema of a flag: %+v", got)
	}
	if err := set.Parse([]string{"--spec", "x.json"}); err != nil {
		t.Fatal(err)
	}
	e := (&sandbox.Error{Field: "warm", Message: "m"}).WithAdvice(sandbox.Advise("write %s", sandbox.Set("warm", []string{"numpy"})))
	if got := s.translate(e); got.Message != "m" || got.Hint != `write "warm": ["numpy"]` {
		t.Errorf("with --spec: %+v", got)
	}
	if got := (flagWords{}).translate(e); got.Hint != e.Hint {
		t.Errorf("without a command: %+v", got)
	}
}

// The command line has words for every kind of fix, and for every call.
func TestFlagWordsOfEveryKind(t *testing.T) {
	for _, kind := range sandbox.FixKinds() {
		f := sandbox.Fix{Kind: kind, Name: "cold", Value: []byte("true"), Text: "text"}
		if kind == sandbox.FixCall {
			continue
		}
		if (flagWords{}).say("", sandbox.Advice{f}) == "" {
			t.Errorf("no words for %s", kind)
		}
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.String("state", "", "")
	if got := (flagWords{flags, "serve"}).say("", sandbox.Advise("set %s", sandbox.Config("state"))); got != "set --state" {
		t.Errorf("a key that is a flag: %q", got)
	}
	for _, call := range sandbox.Calls() {
		if callWords[call] == "" {
			t.Errorf("no command for %s", call)
		}
	}
}

// What a sandbox got when it was made, its commands have no flags for.
func TestFlagWordsOfLivingSandboxes(t *testing.T) {
	inodes := sandbox.Advise("make the sandbox with %s", sandbox.Set("limits.inodes", 32768))
	site := sandbox.Advise("%s", sandbox.Copy("site"))
	for command, want := range map[string][2]string{
		"cp": {"make the sandbox with pinfold create --inodes 32768", "pinfold cp site SANDBOX:"}, "exec": {"make the sandbox with pinfold create --inodes 32768", "pinfold cp site SANDBOX:"},
		"pool": {`make the sandbox with "limits": {"inodes": 32768}`, `site in "files"`},
	} {
		s := flagWords{pflag.NewFlagSet(command, pflag.ContinueOnError), command}
		if got := [2]string{s.say("", inodes), s.say("", site)}; got != want {
			t.Errorf("%s: %q", command, got)
		}
	}
}

// A hint about the one sandbox that was named has its id; where there are several, nobody
// knows which one is meant.
func TestHintsNameTheSandbox(t *testing.T) {
	const other = "sbx_bbbbbbbbbbbbbbbbbbbbbbbbbb"
	paused := sandbox.Advise("let it go on: %s", sandbox.Call(sandbox.CallResumeSandbox))
	for _, c := range []struct {
		command string
		args    []string
		id      string
	}{
		{"exec", []string{someBox, "echo", other}, someBox},
		{"exec", []string{"x", someBox}, "SANDBOX"},
		{"cp", []string{"site", someBox + ":work"}, someBox},
		{"kill", []string{someBox, other}, "SANDBOX"},
		{"kill", []string{someBox, "prc_aaaaaaaaaaaaaaaaaaaaaaaaaa"}, someBox},
		{"exec", nil, "SANDBOX"},
	} {
		set := pflag.NewFlagSet(c.command, pflag.ContinueOnError)
		if err := set.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		if got := (flagWords{set, c.command}).say("", paused); got != "let it go on: pinfold resume "+c.id {
			t.Errorf("%s %q: %q", c.command, c.args, got)
		}
	}
}

// A server says of whatever there is not that it has no such object; the hint once
// sent who asked for a run to the sandboxes.
func TestMissingIDs(t *testing.T) {
	missing := (&sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such object"}).
		WithAdvice(sandbox.Advise("list yours with %s or %s", sandbox.Call(sandbox.CallListRuns), sandbox.Call(sandbox.CallListSandboxes)))
	for command, want := range map[string]string{
		"result": "pinfold runs lists the runs that the server still has",
		"cancel": "pinfold runs lists the runs that the server still has",
		"exec":   "pinfold ls --all lists the sandboxes, pinfold ps SANDBOX the processes",
	} {
		if got := (flagWords{command: command}).translate(missing).Hint; got != want {
			t.Errorf("%s: hint %q", command, got)
		}
	}
}

// TestCauseWithAnotherLimit: of a limit that was met its line says all but the flag; where
// another one is to be raised, the hint says why.
func TestCauseWithAnotherLimit(t *testing.T) {
	words := flagWords{(&app{}).runCommand().Flags(), "run"}
	c := sandbox.Cause{Kind: sandbox.CauseWallTime, Limit: 3000}.
		WithAdvice(sandbox.Advise("forks were refused: %s, or else %s", sandbox.Set("limits.processes", 64), sandbox.Set("limits.wall_time_ms", 6000)))
	if got := words.cause(c).Hint; got != "forks were refused: --processes 64, or else --timeout 6s" {
		t.Error(got)
	}
	compile := sandbox.Cause{Kind: sandbox.CauseExited, Phase: sandbox.PhaseCompile}
	r := sandbox.Result{Status: sandbox.StatusFailed, ExitCode: new(int), Cause: compile.WithAdvice(sandbox.Advise("little room: %s", sandbox.Set("limits.inodes", 64)))}
	if got := ending(words.result(&r)); got != "compiling failed with exit status 0. Hint: little room: --inodes 64" {
		t.Error(got)
	}
}
