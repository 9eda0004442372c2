package scan

import (
	"bytes"
	"slices"
	"sort"
	"strings"
)

// kind says what a fact is.
type kind string

const (
	kindImport  kind = "import"  // name is the module, or a name of it
	kindCall    kind = "call"    // name is what is called, args what it is given
	kindCommand kind = "command" // a program is started: name is its base name, args its words
	kindPipe    kind = "pipe"    // commands in a row; args[0].Calls are their names
	kindSet     kind = "set"     // name is what a value is assigned to
	kindName    kind = "name"    // a name with a meaning of its own is mentioned
	kindText    kind = "text"    // a text stands in the source
	kindRead    kind = "read"    // a file is read, by a shell
	kindWrite   kind = "write"   // a file is written, by a shell
	kindRepeat  kind = "repeat"  // something is repeated args[0].Number times
	kindNumber  kind = "number"  // a number is computed that needs a lot of memory
	kindEndless kind = "endless" // a loop without an end; args[0].Calls is what it calls
	kindFork    kind = "fork"    // a function of a shell that starts itself beside itself
	kindHidden  kind = "hidden"  // a name is put together; name is what it means
	kindWord    kind = "word"    // words of the source, comments included: name says which
)

// fact is one thing that a program does or says. Its texts are cut.
type fact struct {
	kind         kind
	line, column int
	name         string
	args         []arg
	keywords     map[string]arg
	grows        bool // of an endless loop: what it fills grows
}

// arg is what is known of an argument without running the program.
type arg struct {
	Text   string   // a constant text
	Part   string   // a text with unknown parts, each of them "{}"
	Words  []string // a list; what is unknown is ""
	Calls  []string // names that are called or mentioned in it
	Number float64
}

// any returns the text of an argument, whole or in part.
func (a arg) any() string {
	if a.Text != "" {
		return a.Text
	}
	return a.Part
}

func (f *fact) arg(i int) arg {
	if i < len(f.args) {
		return f.args[i]
	}
	return arg{}
}

// place is where the facts of a source inside a source are: at the outer one. The zero
// value is where they are themselves.
type place struct{ line, column, depth int }

// program is a source with what was read of it.
type program struct {
	source Source
	lines  []int // offsets of the beginnings of lines
	facts  []fact
	unread string
	full   bool
}

func (p *program) add(f fact) {
	if len(p.facts) >= maxFacts {
		p.full = true
		return
	}
	p.facts = append(p.facts, f)
}

func lineStarts(b []byte) []int {
	starts := []int{0}
	for i := 0; ; {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return starts
		}
		i += n + 1
		starts = append(starts, i)
	}
}

// position is the line and the column of an offset.
func (p *program) position(offset int) (line, column int) {
	line = sort.SearchInts(p.lines, offset+1)
	return line, offset - p.lines[line-1] + 1
}

// lineText is a line of the source, cut where it is long.
func (p *program) lineText(line int) string {
	if line < 1 || line > len(p.lines) {
		return ""
	}
	b := p.source.Text[p.lines[line-1]:]
	b = b[:min(len(b), 4096)]
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		b = b[:i]
	}
	return strings.ToValidUTF8(string(b), "")
}

// expand adds the commands that calls start: of a shell's text everything that the
// shell's reader sees in it, of a list of words the command.
func (p *program) expand() {
	for i, n := 0, len(p.facts); i < n; i++ {
		f := p.facts[i]
		if !p.starts(&f) {
			continue
		}
		at := place{f.line, f.column, 1}
		words := f.arg(0).Words
		if len(words) == 0 && !named(f.name, shellCalls) {
			words = joinWords(f.args)
		}
		switch text := f.arg(0).any(); {
		case len(words) > 1 || len(words) == 1 && text == "":
			p.command(words, at)
		case text != "":
			_ = readShell(p, text, at)
		}
	}
}

// starts says whether a call starts a program. What is called exec reads source in
// Python, and searches texts in JavaScript.
func (p *program) starts(f *fact) bool {
	if f.kind != kindCall || f.name == "exec" && !slices.Contains([]string{"php", "ruby", "perl", "tcl"}, p.source.Language) {
		return false
	}
	return named(f.name, processCalls) || named(f.name, shellCalls)
}

// joinWords joins arguments to the words of a command: execFile("rm", ["-rf", "/"]).
func joinWords(args []arg) (words []string) {
	for _, a := range args {
		switch {
		case len(a.Words) > 0:
			words = append(words, a.Words...)
		case a.any() != "":
			words = append(words, a.any())
		}
	}
	return words
}
