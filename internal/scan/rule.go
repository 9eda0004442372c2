package scan

import (
	"slices"
	"strings"

	"pinfold/sandbox"
)

// Rule is one thing that is looked for. Rules are data but for match.
type Rule struct {
	ID       string           `json:"id"`
	Class    string           `json:"class"`
	Title    string           `json:"title"`
	Severity sandbox.Severity `json:"severity"`
	// Languages are those for which it is declared; empty: all.
	Languages []string `json:"languages,omitempty"`
	Sees      string   `json:"sees"` // what it sees
	Why       string   `json:"why"`  // why that matters
	// Example is a program that it finds something in, and Harmless its nearest
	// neighbour in which it does not. Both are in Sample's language.
	Sample   string `json:"sample_language"`
	Example  string `json:"example"`
	Harmless string `json:"harmless"`

	match  func(p *program, f *fact) bool
	both   [2][]string // rules that must both have found something, in place of match
	secret bool        // what it finds must not be repeated
}

// Rules returns a copy of all rules, in the order of their classes.
func Rules() []Rule { return slices.Clone(rules) }

func (r *Rule) applies(language string) bool {
	return len(r.Languages) == 0 || slices.Contains(r.Languages, language)
}

// named says whether a name is one of the patterns: "a.b", "a.*" for what begins so, or
// "*.b" for what ends so.
func named(name string, patterns []string) bool {
	for _, p := range patterns {
		switch {
		case strings.HasSuffix(p, ".*") && strings.HasPrefix(name, p[:len(p)-1]),
			strings.HasPrefix(p, "*.") && strings.HasSuffix(name, p[1:]),
			p == name:
			return true
		}
	}
	return false
}

// calls matches a call, or an assignment of what has such a name.
func calls(patterns []string) func(*program, *fact) bool {
	return func(_ *program, f *fact) bool { return f.kind == kindCall && named(f.name, patterns) }
}

// commands matches the start of programs.
func commands(names ...string) func(*program, *fact) bool {
	return func(_ *program, f *fact) bool { return f.kind == kindCommand && slices.Contains(names, f.name) }
}

func imports(patterns []string) func(*program, *fact) bool {
	return func(_ *program, f *fact) bool { return f.kind == kindImport && named(f.name, patterns) }
}

func anyOf(matches ...func(*program, *fact) bool) func(*program, *fact) bool {
	return func(p *program, f *fact) bool {
		return slices.ContainsFunc(matches, func(m func(*program, *fact) bool) bool { return m(p, f) })
	}
}

// texts are all texts of a fact.
func (f *fact) texts(yield func(string) bool) {
	for _, a := range f.args {
		for _, t := range append([]string{a.any()}, a.Words...) {
			if t != "" && !yield(t) {
				return
			}
		}
	}
	for _, a := range f.keywords {
		if t := a.any(); t != "" && !yield(t) {
			return
		}
	}
}

// says matches a fact of which a text has one of these in it.
func says(parts []string) func(*program, *fact) bool {
	return func(_ *program, f *fact) bool {
		for t := range f.texts {
			if hasAny(t, parts) {
				return true
			}
		}
		return false
	}
}

// textIs matches a fact of which a text meets a condition.
func textIs(is func(string) bool) func(*program, *fact) bool {
	return func(_ *program, f *fact) bool {
		for t := range f.texts {
			if is(t) {
				return true
			}
		}
		return false
	}
}

func and(a, b func(*program, *fact) bool) func(*program, *fact) bool {
	return func(p *program, f *fact) bool { return a(p, f) && b(p, f) }
}

func hasAny(s string, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(s, p) })
}

// mentionsAny says whether an argument calls or mentions one of the names.
func mentionsAny(f *fact, patterns []string) bool {
	for _, a := range f.args {
		if slices.ContainsFunc(a.Calls, func(n string) bool { return named(n, patterns) }) {
			return true
		}
	}
	return false
}

// word matches what was seen in the words of the source.
func word(name string) func(*program, *fact) bool {
	return func(_ *program, f *fact) bool { return f.kind == kindWord && f.name == name }
}

// RuleIDs are the ids of all rules.
func RuleIDs() (ids []string) {
	for _, r := range Rules() {
		ids = append(ids, r.ID)
	}
	return ids
}
