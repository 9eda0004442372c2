package cli

import (
	"testing"

	"github.com/spf13/pflag"

	"pinfold/sandbox"
)

// The command line speaks of flags, where an API speaks of fields.
func TestSpeech(t *testing.T) {
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runFlags).bind(set)
	if err := set.Parse([]string{"--warm", "numpy", "--artifact", "*.svg"}); err != nil {
		t.Fatal(err)
	}
	s := flagWords{set, "run"}
	for in, want := range map[string]string{
		`raise it: "limits": {"memory_bytes": 67108864}`: "raise it: --memory 64MiB",
		`"limits": {"wall_time_ms": 90000}, or less`:     "--timeout 1m30s, or less",
		`"limits": {"processes": 8}`:                     "--processes 8",
		`"limits": {"cpus": 0.5}`:                        "--cpus 0.5",
		`"limits": {"cpus": 1, "inodes": 5}`:             `"limits": {"cpus": 1, "inodes": 5}`,
		`"limits": {"nothing": 1}`:                       `"limits": {"nothing": 1}`,
		`"cold": true`:                                   "--cold",
		`write "warm": ["numpy","pandas"]`:               "write --warm numpy,pandas",
		`"language": "a b"`:                              "--language 'a b'",
		`"ttl_ms": 5`:                                    `"ttl_ms": 5`, // run has no such flag
		`takes limits.open_files from its start`:         "takes --open-files from its start",
		`limits.nothing`:                                 "limits.nothing",
		`"min": 3`:                                       `"min": 3`,
	} {
		if got := s.text(in); got != want {
			t.Errorf("%s is said as %q, not %q", in, got, want)
		}
	}
	for field, want := range map[string]string{
		"warm[0]": "--warm: m", "artifacts[3]": "--artifact: m", "limits.memory_bytes": "--memory: m", "limits.cpus": "--cpus: m",
		"language": "m", "code": "m", "": "m", "require[0]": "m",
	} {
		if got := s.translate(&sandbox.Error{Code: "x", Field: field, Message: "m"}); got.Message != want || got.Field != field {
			t.Errorf("%s: %+v, not %q", field, got, want)
		}
	}
	if err := set.Parse([]string{"--spec", "x.json"}); err != nil {
		t.Fatal(err)
	}
	e := &sandbox.Error{Field: "warm", Message: "m", Hint: `write "warm": ["numpy"]`}
	if got := s.translate(e); got.Message != "m" || got.Hint != e.Hint {
		t.Errorf("with --spec: %+v", got)
	}
	if got := (flagWords{}).translate(e); got.Hint != e.Hint {
		t.Errorf("without a command: %+v", got)
	}
}

// What a sandbox got when it was made, its commands have no flags for.
func TestSpeechOfLivingSandboxes(t *testing.T) {
	const hint = `make the sandbox with "limits": {"inodes": 32768}`
	for command, want := range map[string]string{"cp": "make the sandbox with pinfold create --inodes 32768", "exec": "make the sandbox with pinfold create --inodes 32768", "pool": hint} {
		if got := (flagWords{pflag.NewFlagSet(command, pflag.ContinueOnError), command}).text(hint); got != want {
			t.Errorf("%s: %s", command, got)
		}
	}
}

// A server says of whatever there is not that it has no such object; the hint once
// sent who asked for a run to the sandboxes.
func TestMissingIDs(t *testing.T) {
	missing := &sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such object", Hint: "list yours with GET /v1/runs or GET /v1/sandboxes"}
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
