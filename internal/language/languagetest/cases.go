// Package languagetest holds small programs in every language of the table,
// with what each must do, so that the table can be tested against any way of
// running programs: plainly, in a driver, through the whole product. It runs
// nothing itself.
package languagetest

// Case is one program and what it must do.
type Case struct {
	Language string
	Name     string            // "hello", "echo", "fail", "broken", or of its own
	File     string            // the program's file; empty means the language's
	Source   string            // the program
	Files    map[string]string // further files, by path
	Args     []string
	Stdin    string
	Want     Want
}

// Want is what a case must do.
type Want struct {
	Stdout     string // all of it
	StderrHas  string // somewhere in the last step's standard error
	ExitCode   int    // of the last step that ran; AnyFailure for any but 0
	NotCompile bool   // the compile step fails and nothing is run
}

// AnyFailure as Want.ExitCode means any exit status but 0.
const AnyFailure = -1

// Args and Stdin are what the "echo" cases are given: blanks, quotes, text
// that is not ASCII, and words that a runtime may take for its own.
var (
	Args  = []string{"one", "two words", `"q'$HOME\`, "☃", "-e", "--version", "@x", ""}
	Stdin = "first line\nsecond ☃\n"
)

// echo is what the "echo" cases print: each argument in brackets on a line of
// its own, then standard input as it came.
const echo = "[one]\n[two words]\n[\"q'$HOME\\]\n[☃]\n[-e]\n[--version]\n[@x]\n[]\nfirst line\nsecond ☃\n"

// Cases returns every case: four for each language, then further ones.
func Cases() []Case {
	var cases []Case
	for _, p := range programs {
		broken := Want{ExitCode: AnyFailure, StderrHas: p.complaint, NotCompile: p.compiled}
		cases = append(cases,
			Case{Language: p.language, Name: "hello", Source: p.hello, Want: Want{Stdout: "hello\n"}},
			Case{Language: p.language, Name: "echo", Source: p.echo, Args: Args, Stdin: Stdin, Want: Want{Stdout: echo}},
			Case{Language: p.language, Name: "fail", Source: p.fail, Want: Want{Stdout: "out\n", StderrHas: "err", ExitCode: 3}},
			Case{Language: p.language, Name: "broken", Source: p.broken, Want: broken},
		)
	}
	return append(cases, more...)
}
