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

// TestExecNamesTheDirectory: the message about a working directory once left out
// which one.
func TestExecNamesTheDirectory(t *testing.T) {
	f := &execFlags{command: sandbox.Command{Dir: "/nope\x1b"}}
	err := &sandbox.Error{Code: sandbox.CodeFileNotFound, Message: "working directory: no such file or directory"}
	if got := sandbox.AsError(f.asFlags(err)); got.Message != `--dir: /nope\x1b: no such file or directory` || got.Code != err.Code {
		t.Errorf("%+v", got)
	}
	other := &sandbox.Error{Code: sandbox.CodeFileNotFound, Message: "ls: not found"}
	if sandbox.AsError(f.asFlags(other)) != other || f.asFlags(nil) != nil {
		t.Error("another error was changed")
	}
}
