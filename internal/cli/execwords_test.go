package cli

import (
	"slices"
	"testing"

	"pinfold/sandbox"
)

const someBox = "sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa"

// TestExecFlagsAfterTheSandbox: a flag of ours after the sandbox was once looked
// for inside, as a program.
func TestExecFlagsAfterTheSandbox(t *testing.T) {
	for _, c := range []struct {
		args, want []string
		hint       string
	}{
		{[]string{someBox, "echo", "-n"}, []string{"echo", "-n"}, ""},
		{[]string{someBox, "--", "-odd"}, []string{"-odd"}, ""},
		{[]string{someBox, "-"}, []string{"-"}, ""},
		{[]string{someBox, "--timeout", "3", "--", "ls", "a b"}, nil, "flags go before SANDBOX: pinfold exec --timeout 3 " + someBox + " -- ls 'a b'"},
		{[]string{someBox, "-it", "bash"}, nil, "flags go before SANDBOX: pinfold exec [flags] SANDBOX -- COMMAND"},
		{[]string{someBox, "--timeout", "3", "--"}, nil, "flags go before SANDBOX: pinfold exec [flags] SANDBOX -- COMMAND"},
		{[]string{someBox, "--"}, nil, "pinfold exec --help"},
	} {
		got, err := commandWords(c.args)
		hint := ""
		if err != nil {
			hint = sandbox.AsError(err).Hint
		}
		if !slices.Equal(got, c.want) || hint != c.hint {
			t.Errorf("%q: %q, hint %q", c.args, got, hint)
		}
	}
}

// TestExecOfOneLine: a whole line as one word is looked for as one program, and the
// hint is the line that works.
func TestExecOfOneLine(t *testing.T) {
	missing := &sandbox.Error{Code: sandbox.CodeCommandNotFound, Message: "ls -l: no such command in the sandbox"}
	for line, want := range map[string]string{
		"ls -l":            "a line of several words is for a shell: pinfold exec --shell " + someBox + " -- 'ls -l'",
		"echo it's\x1b[2J": "a line of several words is for a shell: pinfold exec --shell SANDBOX -- 'LINE'",
		"lss":              "",
	} {
		f := &execFlags{id: someBox, command: sandbox.Command{Args: []string{line}}}
		if got := sandbox.AsError(f.oneLine(missing)); got.Hint != want || got.Code != missing.Code {
			t.Errorf("%q: hint %q", line, got.Hint)
		}
	}
	f := &execFlags{id: someBox, command: sandbox.Command{Args: []string{"no thing", "x"}}}
	if sandbox.AsError(f.oneLine(missing)) != missing {
		t.Error("a command of several words got the hint")
	}
}

// TestExecNamesTheDirectory: the message about a working directory once left out
// which one.
func TestExecNamesTheDirectory(t *testing.T) {
	set := (&app{}).execCommand().Flags()
	if err := set.Parse([]string{"--dir", "/nope"}); err != nil {
		t.Fatal(err)
	}
	err := &sandbox.Error{Code: sandbox.CodeFileNotFound, Field: "dir", Message: "/nope: no such file or directory"}
	if got := (flagWords{set, "exec"}).translate(err); got.Message != "--dir: /nope: no such file or directory" || got.Code != err.Code {
		t.Errorf("%+v", got)
	}
}
