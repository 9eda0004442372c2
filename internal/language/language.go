// Package language is the table of programming languages that Pinfold knows,
// as data: what their files are called, how a program is compiled and run, how
// a version is read, and which environment makes the tools behave in a
// sandbox.
//
// It decides and describes; it runs nothing, touches no file and never reads a
// program beyond its first line. What is in a template is asked through a
// Lookup that the caller gives.
package language

import (
	"fmt"
	"slices"
	"strings"

	"pinfold/internal/nearest"
	"pinfold/sandbox"
)

// Language is one entry of the table. It is plain data.
//
// Strings of Compile, Run, Version and Env may hold these words in braces:
//
//	{file}      the program's file, relative to the working directory
//	{args}      the program's arguments; only as a whole argument
//	{out}       where a compiled program goes
//	{tmp}       where temporary files go
//	{support}   the directory of support files
//	{cpus}      limits.cpus, rounded up
//	{heap_mib}  three quarters of the step's memory limit
//	{python3}   the path of a program: the first candidate's name of each
type Language struct {
	Name         string   // in requests and results: "python"
	Title        string   // for people: "Python"
	Aliases      []string // other names that people use
	Extensions   []string // of file names, with the dot, in lower case
	Interpreters []string // names in a #! line, without a version number
	File         string   // the name of a program that comes without one

	Programs       []Program // what must be in the template, the main one first
	Compile        []string  // the compile step's arguments; nil for interpreted languages
	Run            []string  // the run's arguments
	Wait           []string  // starts an interpreter that waits for its program: see zygote.Handover. nil: there is none
	Zygote         []string  // starts a zygote: see package zygote. nil: there is none
	WaitWith       []string  // support files that only Wait needs
	ZygoteWith     []string  // those that only Zygote needs
	Copied         []string  // starts an interpreter that waits in a machine of which copies are made. nil: there is none
	CopiedWith     []string  // those that only Copied needs
	StartVariables []string  // prefixes of the variables that the interpreter reads at its start only
	Env            []string  // K=V, in addition to BaseEnv, for both steps
	Support        []string  // files of Pinfold's that the steps need: keys of the support files
	Harness        Harness
	Version        Version

	// CompileLimits are the compile step's own; fields that are zero are as in
	// the run's limits.
	CompileLimits sandbox.Limits

	results bool    // a harness in place writes some
	places  *Places // nil: the usual ones
}

// Harness is what stands between the interpreter and the program where values
// or limits on imports are wanted. The zero value means that there is none.
type Harness struct {
	// Run is in place of the language's. {options} is, as a whole argument, what
	// the harness is told.
	Run     []string
	Files   []string // its files, of package interpreter
	Limiter []string // further ones, for limits on imports
}

// Program is a program that a language needs: the first of the candidates that
// the template has. Package is the Debian package that provides it.
type Program struct {
	Candidates []string
	Package    string
}

// Lookup finds the first of the candidates that a template has and returns its
// absolute path in the sandbox.
type Lookup func(candidates []string) (path string, ok bool)

// Table returns a copy of the table, in the order in which it is shown.
func Table() []Language { return slices.Clone(table) }

// Find returns the language of that name or alias, in any case. The error is a
// *sandbox.Error of code language_unknown whose hint names the nearest.
func Find(name string) (Language, error) {
	lower := strings.ToLower(name)
	for _, l := range table {
		if l.Name == lower || slices.Contains(l.Aliases, lower) {
			return l, nil
		}
	}
	return Language{}, &sandbox.Error{
		Code: sandbox.CodeLanguageUnknown, Field: "language",
		Message: fmt.Sprintf("no language \"%s\"", sandbox.SafeText(name, 40)),
		Hint:    suggestion(lower),
	}
}

// CheckWaiting says whether interpreters of a language can be kept waiting with
// these modules loaded, and returns the language's own name. Without a name and
// modules it returns "": no interpreter is kept then. The error's field is language or warm.
func CheckWaiting(name string, modules []string) (string, error) {
	if name == "" && len(modules) > 0 {
		return "", (&sandbox.Error{
			Code: sandbox.CodeSpecInvalid, Field: "language", Message: "warm modules need the language whose interpreter loads them",
		}).WithAdvice(sandbox.Advise("name it, such as %s", sandbox.Set("language", "python")))
	}
	if name != "" {
		l, err := Find(name)
		if err != nil {
			return "", err
		}
		if l.Wait == nil {
			return "", &sandbox.Error{
				Code: sandbox.CodeSpecInvalid, Field: "language",
				Message: l.Title + " cannot be kept waiting", Hint: waitingLanguages + " can",
			}
		}
		name = l.Name
	}
	return name, sandbox.CheckModules("warm", modules)
}

// CheckWarm says whether a program of the language may ask for an interpreter
// that has loaded these modules. It may always ask for none.
func (l Language) CheckWarm(modules []string) error {
	if len(modules) == 0 || l.Wait != nil {
		return nil
	}
	return &sandbox.Error{
		Code: sandbox.CodeSpecInvalid, Field: "warm",
		Message: "no interpreter of " + l.Title + " can load modules ahead", Hint: "leave it out; " + waitingLanguages + " have it",
	}
}

// libraryVariables are prefixes of what the C library and its loader read when any
// interpreter starts.
var libraryVariables = []string{"LD_", "LC_", "LANG", "MALLOC_", "GLIBC_"}

// ReadsAtStart says whether the language's interpreter reads a variable of the
// environment when it starts, so that one that is warm already cannot heed it.
func (l Language) ReadsAtStart(variable string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(variable, prefix) }
	return slices.ContainsFunc(libraryVariables, begins) || slices.ContainsFunc(l.StartVariables, begins)
}

// waitingLanguages are those with Wait, for people.
const waitingLanguages = "python, javascript and typescript"

// suggestion names the language that was probably meant, and all of them.
func suggestion(word string) string {
	var names, words []string
	for _, l := range table {
		names = append(names, l.Name)
		words = append(words, l.Name)
		words = append(words, l.Aliases...)
	}
	hint := "the languages are " + strings.Join(names, ", ")
	if near := nearest.Word(word, words); near != "" {
		return fmt.Sprintf("did you mean %q? %s", near, hint)
	}
	return hint
}

// Missing returns the programs that the template lacks. Empty means that the
// language works there.
func (l Language) Missing(lookup Lookup) []Program {
	var missing []Program
	for _, p := range l.Programs {
		if _, ok := lookup(p.Candidates); !ok {
			missing = append(missing, p)
		}
	}
	return missing
}
