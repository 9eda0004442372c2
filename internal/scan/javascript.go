package scan

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// maxJavaScript bounds what the parser of JavaScript is given: it bounds its own depth
// but for chains of "async(", which take some 600 bytes of stack a level.
const maxJavaScript = 512 << 10

// readJavaScript adds the facts of JavaScript. unread says why it cannot.
func readJavaScript(p *program) (unread string) {
	source := p.source.Text
	if len(source) > maxJavaScript {
		return "it is too large to be parsed"
	}
	defer func() {
		if v := recover(); v != nil {
			unread = "its parser failed"
		}
	}()
	if bytes.HasPrefix(source, []byte("#!")) { // keeps offsets
		source = append([]byte("//"), source[2:]...)
	}
	input := parse.NewInputBytes(bytes.Clone(source))
	defer input.Restore()
	tree, err := js.Parse(input, js.Options{})
	if err != nil {
		why, _, _ := strings.Cut(err.Error(), "\n")
		return why
	}
	r := &scriptReader{p: p, whole: input.Bytes(), alias: map[string]string{}}
	js.Walk(&aliases{r}, tree)
	js.Walk(r, tree)
	return ""
}

// scriptReader visits a tree of JavaScript.
type scriptReader struct {
	p     *program
	whole []byte // all texts of the tree are parts of it
	last  int    // offset of the last text that was visited
	alias map[string]string
}

// aliases visits what gives names to modules and functions, before all else.
type aliases struct{ r *scriptReader }

func (a *aliases) Exit(js.INode) {}

func (a *aliases) Enter(n js.INode) js.IVisitor {
	switch n := n.(type) {
	case *js.ImportStmt:
		module := unquoted(n.Module)
		if n.Default != nil {
			a.name(string(n.Default), module)
		}
		for _, x := range n.List {
			switch name := string(x.Name); {
			case name == "*" || name == "default":
				a.name(string(x.Binding), module)
			case name != "":
				a.name(string(x.Binding), module+"."+name)
			default:
				a.name(string(x.Binding), module+"."+string(x.Binding))
			}
		}
	case *js.VarDecl:
		for _, e := range n.List {
			a.bind(e)
		}
	case *js.BinaryExpr:
		if v, ok := n.X.(*js.Var); ok && n.Op == js.EqToken {
			a.name(string(v.Name()), a.r.name(n.Y, 0))
		}
	}
	return a
}

func (a *aliases) bind(e js.BindingElement) {
	if e.Default == nil {
		return
	}
	value := a.r.name(e.Default, 0)
	switch b := e.Binding.(type) {
	case *js.Var:
		a.name(string(b.Name()), value)
	case *js.BindingObject:
		for _, item := range b.List {
			v, ok := item.Value.Binding.(*js.Var)
			if !ok {
				continue
			}
			key := string(v.Name())
			if item.Key != nil && !item.Key.IsComputed() {
				key = string(item.Key.Literal.Data)
			}
			a.name(string(v.Name()), value+"."+key)
		}
	}
}

func (a *aliases) name(name, value string) {
	if value != "?" && value != "" && value != name && !strings.HasPrefix(value, name+".") && !strings.HasPrefix(value, "?.") && len(a.r.alias) < maxFacts {
		a.r.alias[name] = scriptName(value)
	}
}

func (r *scriptReader) Exit(js.INode) {}

func (r *scriptReader) Enter(n js.INode) js.IVisitor {
	switch n := n.(type) {
	case *js.ImportStmt:
		r.see(n.Module)
		r.add(kindImport, r.last, scriptName(unquoted(n.Module)))
	case *js.CallExpr:
		r.call(n.X, n.Args.List)
	case *js.NewExpr:
		var args []js.Arg
		if n.Args != nil {
			args = n.Args.List
		}
		r.call(n.X, args)
	case *js.LiteralExpr:
		r.literal(*n)
	case js.LiteralExpr:
		r.literal(n)
	case *js.TemplateExpr:
		r.add(kindText, r.last, "", arg{Text: r.template(n)})
	case *js.DotExpr:
		if name := r.name(n, 0); named(name, []string{"process.env", "*.__proto__", "*.constructor.constructor"}) {
			r.add(kindName, r.at(n), name)
		}
	case *js.BinaryExpr:
		if _, ok := n.X.(*js.DotExpr); ok && n.Op == js.EqToken {
			r.add(kindSet, r.at(n.X), r.name(n.X, 0), r.arg(n.Y))
		}
	default:
		r.loop(n)
	}
	return r
}

// loop looks for loops without an end.
func (r *scriptReader) loop(n js.INode) {
	switch n := n.(type) {
	case *js.WhileStmt:
		if l, ok := n.Cond.(*js.LiteralExpr); ok && (l.TokenType == js.TrueToken || string(l.Data) == "1") {
			r.endless(n.Body)
		}
	case *js.ForStmt:
		if n.Cond == nil {
			r.endless(n.Body)
		}
	}
}

func (r *scriptReader) literal(n js.LiteralExpr) {
	r.see(n.Data)
	if n.TokenType != js.StringToken {
		return
	}
	if text := unquoted(n.Data); len(text) > 3 {
		r.add(kindText, r.offset(n.Data), "", arg{Text: text[:min(len(text), 4096)], Number: float64(len(text))})
	}
}

func (r *scriptReader) template(n *js.TemplateExpr) string {
	var b strings.Builder
	for _, part := range n.List[:min(len(n.List), 100)] {
		r.see(part.Value)
		b.WriteString(strings.TrimSuffix(strings.TrimLeft(string(part.Value), "`}"), "${") + "{}")
	}
	b.WriteString(strings.Trim(string(n.Tail), "`}"))
	text := b.String()
	return text[:min(len(text), 4096)]
}

func (r *scriptReader) call(callee js.IExpr, list []js.Arg) {
	name := scriptName(r.name(callee, 0))
	var args []arg
	for _, a := range list[:min(len(list), 4)] {
		args = append(args, r.arg(a.Value))
	}
	at := r.at(callee)
	r.add(kindCall, at, name, args...)
	hidden := callee
	if len(list) > 0 && (name == "require" || name == "import") {
		hidden = &js.IndexExpr{Y: list[0].Value}
	}
	if index, ok := hidden.(*js.IndexExpr); ok && !isLiteral(index.Y) {
		if key, ok := r.fold(index.Y, 0).(string); ok {
			r.add(kindHidden, at, key)
		}
	}
	if len(args) > 0 && (name == "require" || name == "import") && args[0].Text != "" {
		r.add(kindImport, at, scriptName(args[0].Text))
	}
}

func (r *scriptReader) arg(e js.IExpr) (a arg) {
	switch v := r.fold(e, 0).(type) {
	case string:
		a.Text = v[:min(len(v), 4096)]
	case float64:
		a.Number = v
	}
	switch e := e.(type) {
	case *js.ArrayExpr:
		a.Words = r.words(e)
	case *js.TemplateExpr:
		if a.Text == "" {
			a.Part = r.template(e)
		}
	case *js.BinaryExpr:
		if part := r.part(e, 0); a.Text == "" && strings.ReplaceAll(part, "{}", "") != "" {
			a.Part = part[:min(len(part), 4096)]
		}
	}
	if _, plain := e.(*js.LiteralExpr); !plain && e != nil {
		c := &mentions{r: r}
		js.Walk(c, e)
		a.Calls = c.names
	}
	return a
}

// part is a text with "{}" for what is not known.
func (r *scriptReader) part(e js.IExpr, depth int) string {
	if s, ok := r.fold(e, 0).(string); ok {
		return s
	}
	if b, ok := e.(*js.BinaryExpr); ok && b.Op == js.AddToken && depth < 30 {
		return r.part(b.X, depth+1) + r.part(b.Y, depth+1)
	}
	return "{}"
}

// mentions collects the names in an expression.
type mentions struct {
	r     *scriptReader
	names []string
	seen  int
}

func (m *mentions) Exit(js.INode) {}

func (m *mentions) Enter(n js.INode) js.IVisitor {
	if m.seen++; m.seen > 60 || len(m.names) > 8 {
		return nil
	}
	switch n := n.(type) {
	case *js.CallExpr:
		m.names = append(m.names, m.r.name(n.X, 0))
	case *js.DotExpr:
		m.names = append(m.names, m.r.name(n, 0))
	case *js.Var:
		if v, ok := m.r.alias[string(n.Name())]; ok {
			m.names = append(m.names, v)
		}
	}
	return m
}

// endless says of a loop that never ends what goes on in it.
func (r *scriptReader) endless(body js.INode) {
	l := &loopReader{r: r}
	js.Walk(l, body)
	if l.leaves {
		return
	}
	r.add(kindEndless, l.at, "", arg{Calls: l.calls})
	if n := len(r.p.facts); n > 0 {
		r.p.facts[n-1].grows = l.grows
	}
}

type loopReader struct {
	r             *scriptReader
	at            int
	calls         []string
	grows, leaves bool
}

func (l *loopReader) Exit(js.INode) {}

func (l *loopReader) Enter(n js.INode) js.IVisitor {
	switch n := n.(type) {
	case *js.BranchStmt, *js.ReturnStmt, *js.ThrowStmt:
		l.leaves = true
	case *js.UnaryExpr:
		l.leaves = l.leaves || n.Op == js.AwaitToken
	case *js.CallExpr:
		name := l.r.name(n.X, 0)
		l.at = max(l.at, l.r.at(n.X))
		l.grows = l.grows || slices.Contains([]string{"push", "add", "set", "unshift", "concat"}, name[strings.LastIndex(name, ".")+1:])
		if len(l.calls) < 40 {
			l.calls = append(l.calls, name)
		}
	case *js.BinaryExpr:
		l.grows = l.grows || n.Op == js.AddEqToken && l.r.fold(n.Y, 0) == nil
	case *js.FuncDecl, *js.ArrowFunc:
		return nil
	}
	return l
}

// offset is where a text of the tree lies in the source, or -1.
func (r *scriptReader) offset(b []byte) int { return offsetIn(r.whole, b) }

func (r *scriptReader) see(b []byte) { r.last = max(r.offset(b), 0) }

// at is where an expression is: by its last text, or, for a variable, which has the
// place of its first use, by where its name stands next.
func (r *scriptReader) at(e js.IExpr) int {
	switch e := e.(type) {
	case *js.DotExpr:
		if l, ok := literalOf(e.Y); ok {
			return max(r.offset(l.Data), 0)
		}
		return r.at(e.X)
	case *js.IndexExpr:
		return r.at(e.X)
	case *js.GroupExpr:
		return r.at(e.X)
	case *js.Var:
		return r.called(e.Data)
	}
	return r.last
}

// called is where a name is called next.
func (r *scriptReader) called(name []byte) int {
	text := r.p.source.Text
	for from, tries := r.last, 0; tries < 50; tries++ {
		i := bytes.Index(text[from:], name)
		if i < 0 {
			break
		}
		from += i
		end := from + len(name)
		if bytes.HasPrefix(bytes.TrimLeft(text[end:min(len(text), end+20)], " \t\n"), []byte("(")) {
			return from
		}
		from = end
	}
	return max(r.offset(name), 0)
}

func (r *scriptReader) add(k kind, offset int, name string, args ...arg) {
	f := fact{kind: k, name: name, args: args}
	f.line, f.column = r.p.position(max(offset, 0))
	r.p.add(f)
}

func isLiteral(e js.IExpr) bool {
	_, literal := literalOf(e)
	_, template := e.(*js.TemplateExpr)
	return literal || template
}

// literalOf is an expression as a literal: the parser has them as values and as pointers.
func literalOf(e js.IExpr) (js.LiteralExpr, bool) {
	switch e := e.(type) {
	case js.LiteralExpr:
		return e, true
	case *js.LiteralExpr:
		return *e, true
	}
	return js.LiteralExpr{}, false
}
