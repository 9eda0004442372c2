package cli

import (
	"slices"
	"strings"

	"pinfold/sandbox"
)

// commandWords is the command among exec's arguments, the first of which is the
// sandbox. What looks like a flag there is taken for one of ours that stands in
// the wrong place, unless "--" is before it.
func commandWords(args []string) ([]string, error) {
	words := args[1:]
	switch {
	case len(words) > 0 && words[0] == "--":
		words = words[1:]
	case len(words) > 0 && len(words[0]) > 1 && words[0][0] == '-':
		return nil, usageError("%s stands after the sandbox", sandbox.SafeText(words[0], 60)).
			WithHint("flags go before SANDBOX: " + flagsFirst(args[0], words))
	}
	if len(words) == 0 {
		return nil, usageError("exec takes a sandbox and a command").WithHint("pinfold exec --help")
	}
	return words, nil
}

// flagsFirst is the command line as it was meant. Where the command begins is
// known only with "--".
func flagsFirst(id string, words []string) string {
	const general = "pinfold exec [flags] SANDBOX -- COMMAND"
	dash := slices.Index(words, "--")
	if dash < 0 || dash == len(words)-1 {
		return general
	}
	line := append([]string{"pinfold", "exec"}, words[:dash]...)
	return pasteable(general, append(append(line, id), words[dash:]...))
}

// oneLine says to whoever gave a whole line as one word how to run it.
func (f *execFlags) oneLine(err error) error {
	e := sandbox.AsError(err)
	if e == nil || e.Code != sandbox.CodeCommandNotFound || len(f.command.Args) != 1 || !strings.ContainsAny(f.command.Args[0], " \t\n") {
		return err
	}
	return e.WithHint("a line of several words is for a shell: " +
		pasteable("pinfold exec --shell SANDBOX -- 'LINE'", []string{"pinfold", "exec", "--shell", f.id, "--", f.command.Args[0]}))
}
