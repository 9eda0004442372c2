//go:build linux

package agent

import (
	"errors"
	"path"
	"strings"
)

// pattern is a glob, split into components: each matches one name as
// path.Match does, and "**" matches any number of directories.
type pattern struct {
	parts   []string
	literal bool // without wildcards
}

type patterns []pattern

// maxStates bounds the places in all patterns together, and so the work that
// one directory entry can cause.
const maxStates = 4096

func compile(globs []string) (patterns, error) {
	var out patterns
	total := 0
	for _, g := range globs {
		if _, err := path.Match(g, ""); err != nil {
			return nil, errors.New("a pattern is malformed")
		}
		var parts []string
		for part := range strings.SplitSeq(g, "/") {
			if part == "" || (part == "**" && len(parts) > 0 && parts[len(parts)-1] == "**") {
				continue
			}
			parts = append(parts, part)
		}
		if total += len(parts) + 1; total > maxStates {
			return nil, errors.New("the patterns are too long together")
		}
		out = append(out, pattern{parts, !strings.ContainsAny(g, `*?[\`)})
	}
	return out, nil
}

// state is a place in a pattern: everything before part has matched.
type state struct{ pattern, part int }

// states are all the places that the patterns have reached in one directory,
// those of one pattern side by side.
type states []state

func (p patterns) start() states {
	var at states
	for i := range p {
		at = p.add(at, state{i, 0})
	}
	return at
}

// add adds a state, and those after a "**", which may match nothing.
func (p patterns) add(at states, s state) states {
	for i := len(at) - 1; i >= 0 && at[i].pattern == s.pattern; i-- {
		if at[i] == s {
			return at
		}
	}
	at = append(at, s)
	if parts := p[s.pattern].parts; s.part < len(parts) && parts[s.part] == "**" {
		at = p.add(at, state{s.pattern, s.part + 1})
	}
	return at
}

// step goes one name further.
func (p patterns) step(at states, name string) states {
	var next states
	for _, s := range at {
		if s.part == len(p[s.pattern].parts) {
			continue
		}
		part := p[s.pattern].parts[s.part]
		if part == "**" {
			next = p.add(next, s)
		} else if ok, _ := path.Match(part, name); ok {
			next = p.add(next, state{s.pattern, s.part + 1})
		}
	}
	return next
}

// accepts says whether a whole pattern has matched, and whether that is one
// without wildcards.
func (p patterns) accepts(at states) (matches, literal bool) {
	for _, s := range at {
		if s.part == len(p[s.pattern].parts) {
			matches = true
			literal = literal || p[s.pattern].literal
		}
	}
	return matches, literal
}

// goesOn says whether something below could still match.
func (p patterns) goesOn(at states) bool {
	for _, s := range at {
		if s.part < len(p[s.pattern].parts) {
			return true
		}
	}
	return false
}
