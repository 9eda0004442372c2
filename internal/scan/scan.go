// Package scan looks at a program before it runs and says what it would do, by
// declared rules: calls to the network, files outside the working directory,
// code that is hidden, and the like.
//
// It is advice. A program that wants to hide what it does can; the wall is the
// sandbox. So nothing here is a security boundary, but everything here reads
// hostile text: each source has bounds, each parser a depth, and what cannot be
// read is a reason in the report, never a panic.
//
// Each language has a reader that turns source into facts (fact.go): Python's own
// parser in a sandbox, parsers for the shell and for JavaScript in this process, a
// lexer for the rest. Rules (rule.go) look at facts only.
package scan

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"pinfold/internal/language"
	"pinfold/sandbox"
)

// Bounds of what is looked at and of what is said.
const (
	MaxSource     = 4 << 20 // bytes
	maxParsed     = 1 << 20 // bytes that a parser in this process is given
	maxFindings   = 200     // in a report
	maxPerRule    = 20      // of one rule
	maxShownText  = 120     // runes
	maxFacts      = 20_000
	maxNestedText = 3 // sources inside sources: sh -c "sh -c '…'"
)

// RunPython runs a Python program on a source, in a sandbox, and returns what it
// prints: the guest's word. The source is the program's first argument, as a file.
type RunPython func(ctx context.Context, program, source []byte) ([]byte, error)

// Scanner looks at programs. It may be used by many at once.
type Scanner struct {
	// Python runs the program that reads Python. Without it Python is read as the
	// languages without a parser are, and the report says so.
	Python RunPython
}

// Source is one program.
type Source struct {
	File     string // as findings repeat it; may be empty
	Language string // a name of package language's table
	Text     []byte
}

// Report is what was seen.
type Report = sandbox.ScanReport

// Scan looks at a source. The error is one of the context, of RunPython, or
// language_unknown; a source that cannot be read is a report that says so.
func (s Scanner) Scan(ctx context.Context, src Source) (*Report, error) {
	l, err := language.Find(src.Language)
	if err != nil {
		return nil, err
	}
	src.Language = l.Name
	r := &Report{File: src.File, Language: l.Name, Findings: []sandbox.Finding{}}
	if why := notText(src.Text); why != "" {
		r.Unread = "could not be read: " + why
		return r, nil
	}
	p := &program{source: src, lines: lineStarts(src.Text)}
	p.readWords() // first: whatever else the source is full of, there is room for these
	if err := s.read(ctx, p); err != nil {
		return nil, err
	}
	p.expand()
	if p.unread != "" {
		r.Unread = "could not be read: " + sandbox.SafeText(p.unread, 2*maxShownText)
	}
	r.Truncated, r.Missed = p.full, p.full
	judge(r, p)
	return r, nil
}

// read fills in the facts of a program by the reader of its language, and by the lexer
// where that one cannot.
func (s Scanner) read(ctx context.Context, p *program) error {
	switch p.source.Language {
	case "python":
		if s.Python == nil {
			p.unread = "there is no sandbox to read Python in"
			break
		}
		if err := p.readPython(ctx, s.Python); err != nil {
			return err
		}
	case "sh", "bash":
		p.unread = readShell(p, string(p.source.Text), place{})
	case "javascript":
		p.unread = readJavaScript(p)
	default:
		p.readTokens()
		return ctx.Err()
	}
	if p.unread != "" {
		p.readTokens()
	}
	return ctx.Err()
}

func notText(b []byte) string {
	switch {
	case len(b) > MaxSource:
		return fmt.Sprintf("it is larger than %s", sandbox.FormatSize(MaxSource))
	case bytes.IndexByte(b, 0) >= 0:
		return "it is no text: it has a zero byte"
	case !utf8.Valid(b):
		return "it is no text in UTF-8"
	}
	return ""
}

// judge applies the rules.
func judge(r *Report, p *program) {
	type key struct {
		rule string
		line int
	}
	seen, count := map[key]bool{}, map[string]int{}
	take := func(rule *Rule, f *fact) {
		k := key{rule.ID, f.line}
		switch {
		case seen[k]:
			return
		case count[rule.ID] >= maxPerRule || len(r.Findings) >= maxFindings:
			r.Truncated = true
			r.Missed = r.Missed || count[rule.ID] == 0
			return
		}
		seen[k] = true
		count[rule.ID]++
		r.Findings = append(r.Findings, sandbox.Finding{
			Rule: rule.ID, Severity: rule.Severity, Title: rule.Title, File: p.source.File, Line: f.line, Column: f.column, Text: p.shown(rule, f.line),
		})
	}
	for i := range rules {
		rule := &rules[i]
		if rule.match == nil || !rule.applies(p.source.Language) {
			continue
		}
		for j := range p.facts {
			if rule.match(p, &p.facts[j]) {
				take(rule, &p.facts[j])
			}
		}
	}
	for i := range rules {
		if rule := &rules[i]; rule.both[0] != nil && rule.applies(p.source.Language) {
			if f, ok := together(r.Findings, rule.both[0], rule.both[1]); ok {
				take(rule, &fact{line: f.Line, column: f.Column})
			}
		}
	}
	finish(r)
}

// together finds what of the second kind there is, where there is something of the
// first, too.
func together(found []sandbox.Finding, first, second []string) (sandbox.Finding, bool) {
	has := func(ids []string) int {
		return slices.IndexFunc(found, func(f sandbox.Finding) bool { return slices.Contains(ids, f.Rule) })
	}
	if i := has(second); has(first) >= 0 && i >= 0 {
		return found[i], true
	}
	return sandbox.Finding{}, false
}

// finish sorts the findings, and says which is the worst.
func finish(r *Report) {
	slices.SortStableFunc(r.Findings, func(a, b sandbox.Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Rule, b.Rule))
	})
	for _, f := range r.Findings {
		if Rank(f.Severity) > Rank(r.Worst) {
			r.Worst = f.Severity
		}
	}
}

// Rank orders severities: higher is worse, and none is -1.
func Rank(s sandbox.Severity) int { return slices.Index(sandbox.Severities(), s) }

// shown is a line of the source for a finding. A line with a credential is cut after
// its beginning: a report must not carry it further.
func (p *program) shown(rule *Rule, line int) string {
	text := strings.TrimSpace(p.lineText(line))
	if rule.secret {
		if i := strings.IndexAny(text, "=:'\""); i >= 0 {
			text = text[:i+1] + " …"
		} else {
			text = "…"
		}
	}
	return sandbox.SafeText(text, maxShownText)
}
