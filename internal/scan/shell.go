package scan

import (
	"errors"
	"io"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxFrames bounds the stack on which the shell's parser runs. It recurses without a
// bound of its own; a stack that grows beyond Go's limit ends the process. No script
// that a person wrote needs a tenth of this.
const maxFrames = 3000

var errDeep = errors.New("it is nested too deeply")

// boundedReader gives a parser its source in small pieces, and looks at each how deep in
// its recursion the parser asks for it. Between two pieces it can only get deeper by a
// piece's bytes.
type boundedReader struct{ rest string }

const pieceBytes = 512

func (r *boundedReader) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	var pc [1]uintptr
	if runtime.Callers(maxFrames, pc[:]) > 0 {
		return 0, errDeep
	}
	n := copy(b[:min(len(b), pieceBytes)], r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// readShell adds the facts of a shell's source. unread says why it cannot.
func readShell(p *program, source string, at place) (unread string) {
	if len(source) > maxParsed {
		return "it is too large to be parsed"
	}
	defer func() {
		if v := recover(); v != nil {
			unread = "its parser failed"
		}
	}()
	s := &shellReader{p: p, at: at, variables: map[string]string{}}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(&boundedReader{rest: source}, "")
	if err != nil {
		if errors.Is(err, errDeep) {
			return errDeep.Error()
		}
		unread = err.Error()
	}
	if file == nil {
		return unread
	}
	s.walk(file)
	return unread
}

type shellReader struct {
	p         *program
	at        place
	variables map[string]string
}

const maxTreeDepth = 2000

func (s *shellReader) walk(n syntax.Node) {
	depth := 0
	syntax.Walk(n, func(n syntax.Node) bool {
		if n == nil {
			depth--
			return true
		}
		if depth > maxTreeDepth {
			s.p.full = true
			return false
		}
		s.node(n)
		depth++
		return true
	})
}

func (s *shellReader) node(n syntax.Node) {
	switch n := n.(type) {
	case *syntax.Assign:
		if n.Name != nil && n.Value != nil && len(s.variables) < 1000 {
			s.variables[n.Name.Value] = s.text(n.Value)
			s.add(kindSet, n, n.Name.Value, arg{Text: s.variables[n.Name.Value]})
		}
	case *syntax.CallExpr:
		if len(n.Args) == 0 {
			return
		}
		var words []string
		s.p.full = s.p.full || len(n.Args) > maxCommandWords
		for _, w := range n.Args[:min(len(n.Args), maxCommandWords)] {
			words = append(words, s.text(w))
		}
		if composed(n.Args[0]) && !strings.ContainsAny(words[0], "/${ ") {
			s.add(kindHidden, n, words[0])
		}
		if strings.Contains(words[0], " ") { // a variable that holds a whole command
			words = append(strings.Fields(words[0]), words[1:]...)
		}
		s.p.command(words, s.place(n))
	case *syntax.Redirect:
		s.redirect(n)
	case *syntax.BinaryCmd:
		if n.Op == syntax.Pipe || n.Op == syntax.PipeAll {
			s.pipe(n)
		}
	case *syntax.FuncDecl:
		s.function(n)
	case *syntax.WhileClause:
		s.loop(n)
	}
}

// composed says whether a word is put together of parts, or of escapes.
func composed(w *syntax.Word) bool {
	if len(w.Parts) > 1 {
		return true
	}
	quoted, ok := w.Parts[0].(*syntax.SglQuoted)
	return ok && quoted.Dollar
}

func (s *shellReader) place(n syntax.Node) place {
	if s.at.line > 0 {
		return s.at
	}
	return place{int(n.Pos().Line()), int(n.Pos().Col()), s.at.depth}
}

func (s *shellReader) add(k kind, n syntax.Node, name string, args ...arg) {
	at := s.place(n)
	s.p.add(fact{kind: k, line: at.line, column: at.column, name: name, args: args})
}

// text is a word as far as it is known without running it.
func (s *shellReader) text(w *syntax.Word) string {
	if w == nil {
		return ""
	}
	var b strings.Builder
	for _, part := range w.Parts {
		if b.Len() < 4096 {
			s.part(&b, part, 0)
		}
	}
	return b.String()
}

func (s *shellReader) part(b *strings.Builder, part syntax.WordPart, depth int) {
	switch part := part.(type) {
	case *syntax.Lit:
		b.WriteString(strings.ReplaceAll(part.Value, `\`, ""))
	case *syntax.SglQuoted:
		text := part.Value
		if part.Dollar { // $'\x72\x6d'
			if decoded, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`); err == nil {
				text = decoded
			}
		}
		b.WriteString(text)
	case *syntax.DblQuoted:
		for _, inner := range part.Parts {
			if depth < 20 {
				s.part(b, inner, depth+1)
			}
		}
	case *syntax.ParamExp:
		name := ""
		if part.Param != nil {
			name = part.Param.Value
		}
		if v, ok := s.variables[name]; ok && part.Exp == nil && part.Slice == nil && !part.Length {
			b.WriteString(v)
			return
		}
		b.WriteString("$" + name)
	case *syntax.CmdSubst:
		b.WriteString("$(" + strings.Join(commandNames(part.Stmts), "|") + ")")
	case *syntax.ProcSubst:
		b.WriteString("<(" + strings.Join(commandNames(part.Stmts), "|") + ")")
	default:
		b.WriteString("{}")
	}
}

// commandNames are the first words of commands, pipes included.
func commandNames(all []*syntax.Stmt) (names []string) {
	todo := slices.Clone(all)
	for i := 0; i < len(todo) && i < 100; i++ {
		switch c := todo[i].Cmd.(type) {
		case *syntax.CallExpr:
			if len(c.Args) > 0 {
				names = append(names, path.Base(c.Args[0].Lit()))
			}
		case *syntax.BinaryCmd:
			todo = append(todo, c.X, c.Y)
		}
	}
	return names
}

func (s *shellReader) redirect(n *syntax.Redirect) {
	name := s.text(n.Word)
	switch n.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.DplOut, syntax.RdrInOut:
		s.add(kindWrite, n, "", arg{Text: name})
	case syntax.RdrIn:
		s.add(kindRead, n, "", arg{Text: name})
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		if n.Hdoc != nil {
			name = s.text(n.Hdoc)
		}
		s.add(kindText, n, "", arg{Text: name})
	}
}

// pipe says which commands follow each other: the last of X and the first of Y.
func (s *shellReader) pipe(n *syntax.BinaryCmd) {
	var row []string
	for _, side := range []*syntax.Stmt{n.X, n.Y} {
		for b, ok := side.Cmd.(*syntax.BinaryCmd); ok; b, ok = side.Cmd.(*syntax.BinaryCmd) {
			if side == n.X {
				row = append(row, s.first(b.X))
			}
			side = b.Y
			if len(row) > 50 {
				break
			}
		}
		row = append(row, s.first(side))
	}
	s.add(kindPipe, n, "", arg{Calls: row})
}

// first is the command of a statement, without what only stands before commands, and
// with its second word where that says what it does.
func (s *shellReader) first(stmt *syntax.Stmt) string {
	c, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(c.Args) == 0 {
		return ""
	}
	var words []string
	for _, w := range c.Args[:min(len(c.Args), 10)] {
		words = append(words, s.text(w))
	}
	words = plainCommand(words)
	if len(words) == 0 {
		return ""
	}
	return strings.Join(append([]string{path.Base(words[0])}, words[1:]...), " ")
}

// function looks for one that starts itself twice, or in the background.
func (s *shellReader) function(n *syntax.FuncDecl) {
	if n.Name == nil || n.Body == nil {
		return
	}
	calls, background := 0, false
	depth := 0
	syntax.Walk(n.Body, func(inner syntax.Node) bool {
		switch inner := inner.(type) {
		case nil:
			depth--
			return true
		case *syntax.CallExpr:
			if len(inner.Args) > 0 && inner.Args[0].Lit() == n.Name.Value {
				calls++
			}
		case *syntax.Stmt:
			background = background || inner.Background
		}
		if depth >= maxTreeDepth {
			return false
		}
		depth++
		return true
	})
	if calls > 1 || calls > 0 && background {
		s.add(kindFork, n, n.Name.Value)
	}
}

// loop says of a loop that never ends what goes on in it.
func (s *shellReader) loop(n *syntax.WhileClause) {
	if len(n.Cond) != 1 {
		return
	}
	c, ok := n.Cond[0].Cmd.(*syntax.CallExpr)
	if !ok || len(c.Args) == 0 {
		return
	}
	switch word := c.Args[0].Lit(); {
	case n.Until && word == "false", !n.Until && (word == "true" || word == ":" || word == "1"):
	default:
		return
	}
	b := loopBody{s: s}
	for _, stmt := range n.Do {
		syntax.Walk(stmt, b.visit)
	}
	if b.leaves {
		return
	}
	at := s.place(n)
	s.p.add(fact{kind: kindEndless, line: at.line, column: at.column, grows: b.grows, args: []arg{{Calls: b.calls[:min(len(b.calls), 40)]}}})
}

// loopBody is what goes on in a loop.
type loopBody struct {
	s             *shellReader
	calls         []string
	grows, leaves bool
	depth         int
}

func (b *loopBody) visit(n syntax.Node) bool {
	switch n := n.(type) {
	case nil:
		b.depth--
		return true
	case *syntax.CallExpr:
		if len(n.Args) > 0 {
			name := n.Args[0].Lit()
			b.calls = append(b.calls, name)
			b.leaves = b.leaves || slices.Contains([]string{"break", "exit", "return", "exec"}, name)
		}
	case *syntax.Stmt:
		if n.Background {
			b.calls = append(b.calls, "&")
		}
	case *syntax.Redirect:
		b.grows = b.grows || n.Op == syntax.AppOut
	case *syntax.Assign:
		b.grows = b.grows || n.Name != nil && strings.Count(b.s.raw(n.Value), "$"+n.Name.Value) > 1
	}
	b.depth++
	if b.depth >= maxTreeDepth {
		b.depth-- // Walk does not come back for what is not entered
		return false
	}
	return true
}

// raw is a word with its variables as they are written.
func (s *shellReader) raw(w *syntax.Word) string {
	return (&shellReader{p: s.p}).text(w)
}

// maxCommandWords is how many words of a command are looked at.
const maxCommandWords = 1000

// inner reads a source inside a source. One that cannot be read was not looked at.
func (p *program) inner(source string, at place) {
	if readShell(p, source, at) != "" {
		p.full = true
	}
}

// command adds a command by its words, and what is inside it: sh -c, eval, xargs.
func (p *program) command(words []string, at place) {
	words = plainCommand(words)
	switch {
	case len(words) == 0:
		return
	case at.depth > maxNestedText:
		p.full = true
		return
	}
	name := baseName(words[0])
	f := fact{kind: kindCommand, line: at.line, column: at.column, name: name}
	for _, w := range words[1:min(len(words), maxCommandWords)] {
		f.args = append(f.args, arg{Text: w})
	}
	p.add(f)
	at.depth++
	switch {
	case slices.Contains(shells, name):
		for i, w := range words[:len(words)-1] {
			if i > 0 && strings.HasPrefix(w, "-") && strings.HasSuffix(w, "c") {
				p.inner(words[i+1], at)
				return
			}
		}
	case name == "eval":
		p.inner(strings.Join(words[1:], " "), at)
	case name == "xargs" || name == "watch" || name == "crontab":
		p.command(afterFlags(words[1:]), at)
	case name == "find":
		if i := slices.Index(words, "-exec"); i >= 0 {
			p.command(words[i+1:], at)
		}
	}
}

// baseName is the name of a program; "" stays what is not known.
func baseName(word string) string {
	if word == "" {
		return ""
	}
	return path.Base(word)
}

var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "ash"}

// prefixes stand before commands and change little.
var prefixes = []string{"sudo", "env", "nohup", "time", "exec", "command", "builtin", "nice", "setsid", "timeout", "doas", "stdbuf", "busybox"}

// plainCommand takes off what only stands before a command.
func plainCommand(words []string) []string {
	for len(words) > 1 && slices.Contains(prefixes, path.Base(words[0])) {
		rest := afterFlags(words[1:])
		if path.Base(words[0]) == "timeout" && len(rest) > 1 {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return words
		}
		words = rest
	}
	return words
}

// afterFlags are the words from the first that is neither a flag nor an assignment.
func afterFlags(words []string) []string {
	i := slices.IndexFunc(words, func(w string) bool { return w != "" && !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") })
	if i < 0 {
		return nil
	}
	return words[i:]
}
