package scan

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// syntaxOf says what a lexer has to know about a language.
type syntaxOf struct {
	line   []string    // what begins a comment to the end of the line
	block  [][2]string // comments with an end
	quotes string      // what begins and ends a text, with \ as the escape
	raw    string      // the same, without an escape
}

var (
	likeC  = syntaxOf{line: []string{"//"}, block: [][2]string{{"/*", "*/"}}, quotes: `"'`, raw: "`"}
	likeSh = syntaxOf{line: []string{"#"}, quotes: "\"'`"}
)

func syntaxFor(language string) syntaxOf {
	switch language {
	case "python", "ruby", "perl", "r", "tcl", "sh", "bash":
		return likeSh
	case "php":
		return syntaxOf{line: []string{"//", "#"}, block: likeC.block, quotes: "\"'`"}
	case "lua":
		return syntaxOf{line: []string{"--"}, block: [][2]string{{"--[[", "]]"}}, quotes: `"'`}
	}
	return likeC
}

// lexer splits a source into words, texts and signs. It does not recurse and looks at
// each byte a bounded number of times.
type lexer struct {
	s      string
	pos    int
	syntax syntaxOf
}

// token is one of a lexer's: kind 'a' for a name, '"' for a text, or the sign itself.
type token struct {
	kind   byte
	text   string
	offset int
}

func (l *lexer) next() (t token, ok bool) {
	for l.pos < len(l.s) {
		if l.skip() {
			continue
		}
		start, c := l.pos, l.s[l.pos]
		switch {
		case strings.IndexByte(l.syntax.quotes, c) >= 0 || strings.IndexByte(l.syntax.raw, c) >= 0:
			text := l.quoted(c, strings.IndexByte(l.syntax.raw, c) >= 0)
			if c == '`' {
				return token{'`', text, start}, true
			}
			return token{'"', text, start}, true
		case isNameByte(c):
			for l.pos < len(l.s) && isNameByte(l.s[l.pos]) {
				l.pos++
			}
			return token{'a', l.s[start:l.pos], start}, true
		}
		l.pos++
		return token{c, l.s[start:l.pos], start}, true
	}
	return token{}, false
}

// skip passes over white space and comments, and says whether there were any.
func (l *lexer) skip() bool {
	rest := l.s[l.pos:]
	if strings.IndexByte(" \t\r\n", rest[0]) >= 0 {
		l.pos++
		return true
	}
	for _, b := range l.syntax.block {
		if strings.HasPrefix(rest, b[0]) {
			l.pos += after(rest, b[1])
			return true
		}
	}
	for _, c := range l.syntax.line {
		if strings.HasPrefix(rest, c) {
			l.pos += after(rest, "\n")
			return true
		}
	}
	return false
}

func after(s, end string) int {
	if i := strings.Index(s, end); i >= 0 {
		return i + len(end)
	}
	return len(s)
}

func (l *lexer) quoted(quote byte, raw bool) string {
	l.pos++
	start := l.pos
	for l.pos < len(l.s) && l.s[l.pos] != quote {
		if l.s[l.pos] == '\\' && !raw {
			l.pos++
		}
		if l.pos < len(l.s) && l.s[l.pos] == '\n' && quote == '\'' && !raw { // an apostrophe
			break
		}
		l.pos++
	}
	l.pos = min(l.pos, len(l.s))
	text := l.s[start:l.pos]
	l.pos = min(l.pos+1, len(l.s))
	return text[:min(len(text), 4096)]
}

func isNameByte(c byte) bool {
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf
}

// readTokens adds facts by words alone: what is called by which name with which texts.
// It sees no loops and follows no names.
func (p *program) readTokens() {
	l := &lexer{s: string(p.source.Text), syntax: syntaxFor(p.source.Language)}
	r := tokenReader{p: p}
	for {
		t, ok := l.next()
		if !ok || p.full {
			r.flush()
			return
		}
		r.take(t)
	}
}

// tokenReader joins tokens to names with dots, and those to calls with arguments.
type tokenReader struct {
	p      *program
	name   string // the name with its dots, as far as it is read
	at     int
	joined bool // a dot stands after it
	call   *fact
}

const maxNameBytes = 200

func (r *tokenReader) take(t token) {
	switch t.kind {
	case 'a':
		r.word(t)
	case '.', ':', '>', '-':
		if r.name != "" {
			r.joined = t.kind != '-'
		}
	case '!':
		// a macro's name goes on: format!(…)
	case '(', '{':
		if r.name != "" {
			r.inside()
			r.begin(kindCall)
		}
		r.name = ""
	case '"':
		r.text(t)
		r.name = ""
	case '`':
		r.text(t)
		if slices.Contains([]string{"ruby", "perl", "php"}, r.p.source.Language) {
			f := fact{kind: kindCall, name: "`", args: []arg{{Text: t.text}}}
			f.line, f.column = r.p.position(t.offset)
			r.p.add(f)
		}
	case ';', ')':
		r.flush()
		r.name = ""
	default:
		r.name = ""
	}
}

// word goes on with a name, or begins one.
func (r *tokenReader) word(t token) {
	if !r.joined || len(r.name) > maxNameBytes {
		r.name, r.at = "", t.offset
	}
	if r.name != "" {
		r.name += "."
	}
	r.name += t.text
	r.joined = false
	if slices.Contains([]string{"import", "require", "use", "include"}, t.text) {
		r.begin(kindImport)
		r.name = ""
	}
}

// inside says that a call stands in another one's parentheses.
func (r *tokenReader) inside() {
	if r.call != nil && r.call.kind == kindCall && len(r.call.args) < 8 {
		r.call.args = append(r.call.args, arg{Calls: []string{r.name}})
	}
}

// begin starts a fact that texts may be added to.
func (r *tokenReader) begin(k kind) {
	r.flush()
	f := fact{kind: k, name: strings.TrimPrefix(r.name, "std.")}
	f.line, f.column = r.p.position(r.at)
	r.call = &f
}

func (r *tokenReader) text(t token) {
	line, column := r.p.position(t.offset)
	if r.name != "" { // system "ls", without parentheses
		r.begin(kindCall)
	}
	if r.call != nil && len(r.call.args) < 8 {
		r.call.args = append(r.call.args, arg{Text: t.text})
		if r.call.kind == kindImport {
			r.call.name = t.text
		}
	}
	r.p.add(fact{kind: kindText, line: line, column: column, args: []arg{{Text: t.text, Number: float64(len(t.text))}}})
}

func (r *tokenReader) flush() {
	if r.call != nil {
		r.p.add(*r.call)
	}
	r.call = nil
}
