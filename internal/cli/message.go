package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"

	"pinfold/internal/hostfiles"
	"pinfold/internal/nearest"
	"pinfold/sandbox"
)

const (
	maxMessage = 400  // runes of foreign text in one message
	maxHint    = 1000 // runes of a hint, which may list all that there is
)

// brokenPipeError says that nobody reads our output any more. It ends the
// command without a word.
type brokenPipeError struct{}

func (*brokenPipeError) Error() string { return "nobody reads the output" }

// stoppedError says that somebody has seen enough and told us to go. It ends the
// command without a word, too.
type stoppedError struct{}

func (*stoppedError) Error() string { return "told to go" }

// say writes one line of our own to stderr, on a line of its own.
func (a *app) say(format string, args ...any) {
	if a.midLine {
		_, _ = fmt.Fprintln(a.Stderr)
		a.midLine = false
	}
	_, _ = fmt.Fprintf(a.Stderr, "pinfold: "+format+"\n", args...)
}

// fail reports an error in the form that was asked for and returns the exit
// status that belongs to it.
func (a *app) fail(e *sandbox.Error) int {
	if wantsJSON(a.Args) {
		var broken *brokenPipeError
		wErr := a.writeJSON(sandbox.ErrorBody{Error: e})
		switch {
		case wErr == nil:
			return errorStatus(e)
		case errors.As(wErr, &broken):
			return exitBrokenPipe
		} // nothing can be said on stdout: it is said on stderr
	}
	message := e.Message
	if e.Field != "" && !strings.HasPrefix(message, "-") { // a flag has its own name
		message = e.Field + ": " + message
	}
	printed := ""
	if e.Code == sandbox.CodeBuildFailed || e.Code == sandbox.CodePackagesFailed || e.Code == sandbox.CodeStartFailed { // it ends with what a command printed, line by line
		message, printed, _ = strings.Cut(message, "\n")
	}
	a.say("%s", sandbox.SafeText(message, maxMessage))
	for line := range strings.Lines(printed) {
		_, _ = fmt.Fprintln(a.Stderr, "  "+sandbox.SafeText(strings.TrimRight(line, "\n"), maxMessage))
	}
	command, rest := hintLines(e)
	if command != "" {
		_, _ = fmt.Fprintf(a.Stderr, "hint: %s\n", sandbox.SafeText(command, maxHint))
	}
	if rest != "" {
		_, _ = fmt.Fprintf(a.Stderr, "      %s\n", sandbox.SafeText(rest, maxMessage))
	}
	return errorStatus(e)
}

// hintLines is an error's hint. A command for the host that it begins with has a line of
// its own, so that it can be pasted; what else there is to say is the rest.
func hintLines(e *sandbox.Error) (first, rest string) {
	if len(e.Advice) < 2 || e.Advice[0].Kind != sandbox.FixCommand {
		return e.Hint, ""
	}
	rest, ok := strings.CutPrefix(e.Hint, e.Advice[0].Text)
	if !ok {
		return e.Hint, ""
	}
	return e.Advice[0].Text, strings.TrimLeft(rest, ",; ")
}

// benchName is the command whose --json is not that of others.
const benchName = "bench"

// wantsJSON looks for --json where flags may stand. It is asked when parsing
// the flags may have failed.
func wantsJSON(args []string) bool {
	if len(args) > 0 && args[0] == benchName { // its --json names a file
		return false
	}
	for _, arg := range args {
		switch arg {
		case "--":
			return false
		case "--json", "--json=true":
			return true
		}
	}
	return false
}

// writeJSON writes v to stdout, for a person on a terminal with indentation,
// otherwise on one line. The only errors are those of writing.
func (a *app) writeJSON(v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if isTerminal(a.Stdout) {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	return a.write(printableJSON(buf.Bytes()))
}

// writeList prints a list as JSON, under its name.
func writeList[T any](a *app, name string, all []T) error {
	return a.writeJSON(map[string][]T{name: append([]T{}, all...)})
}

// writeLine prints a line, or with --json what it is about.
func (a *app) writeLine(asJSON bool, v any, line string) error {
	if asJSON {
		return a.writeJSON(v)
	}
	return a.write([]byte(line + "\n"))
}

// writeID prints an id that a server sent.
func (a *app) writeID(id string) error { return a.writeLine(false, nil, sandbox.SafeText(id, maxID)) }

// write writes to stdout, and tells apart that nobody reads it.
func (a *app) write(p []byte) error {
	defer catchBrokenPipe()()
	_, err := io.Copy(a.Stdout, bytes.NewReader(p))
	switch {
	case errors.Is(err, syscall.EPIPE):
		return &brokenPipeError{}
	case err != nil:
		return lostOutput("stdout", err)
	}
	return nil
}

// lostOutput says that what was printed is lost, and why.
func lostOutput(stream string, err error) *sandbox.Error {
	return &sandbox.Error{
		Code: sandbox.CodeResourceUnavailable, Message: "cannot write to " + stream + ": " + hostfiles.Reason(err), Err: err,
		Hint: "make room where " + stream + " goes, or send it elsewhere",
	}
}

// printableJSON escapes the characters that encoding/json leaves as they are
// but a terminal acts upon: C1 controls, DEL, bidirectional overrides. Outside
// ASCII, valid JSON has characters only in strings, where an escape means the
// same.
func printableJSON(b []byte) []byte {
	unsafe := func(r rune) bool { return r == 0x7f || (r >= 0x80 && !unicode.IsGraphic(r)) }
	if bytes.IndexFunc(b, unsafe) < 0 {
		return b
	}
	var out bytes.Buffer
	for _, r := range string(b) {
		if !unsafe(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.Bytes()
}

// unknownCommand is the argument check of commands that only have others below
// them.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	e := usageError("no such command: %s", sandbox.SafeText(strings.TrimPrefix(cmd.CommandPath()+" "+args[0], "pinfold "), 60))
	e.Hint = cmd.CommandPath() + " --help lists the commands"
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if near := nearest.Word(args[0], names); near != "" {
		e.Hint = "did you mean " + cmd.CommandPath() + " " + near + "?"
	} else if !cmd.HasParent() && looksLikeFile(args[0]) {
		e.Hint = "to run a file: pinfold run " + sandbox.SafeText(args[0], 60)
	}
	return e
}

// usageError is a wrong command line.
func usageError(format string, args ...any) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Message: fmt.Sprintf(format, args...)}
}

// plural writes a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
