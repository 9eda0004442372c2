package sandbox

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// gateStrength orders actions, the weakest first.
var gateStrength = []GateAction{"", GatePass, GateFlag, GateRedact, GateWithhold}

// StrongerAction is the stronger of two actions.
func StrongerAction(a, b GateAction) GateAction {
	if slices.Index(gateStrength, b) > slices.Index(gateStrength, a) {
		return b
	}
	return a
}

// Merge is the gate that checks what g checks and what the other does: of two actions the
// stronger, of two bounds the lower, of two lists of media types what is in both, and all
// schemas and validators, each once. Either may be nil. The context is g's, if it asks for one.
func (g *Gate) Merge(other *Gate) *Gate {
	if g.Empty() || other.Empty() {
		if g.Empty() {
			g = other
		}
		return g
	}
	m := *g
	theirs := *other
	for i, c := range m.Checks() {
		*c.Action = StrongerAction(*c.Action, *theirs.Checks()[i].Action)
	}
	m.Artifacts = g.Artifacts.merge(other.Artifacts)
	m.Schemas = both(g.Schemas, other.Schemas, GateSchema.same)
	m.Validators = both(g.Validators, other.Validators, func(a, b GateValidator) bool { return a == b })
	m.ContextBytes = cmp.Or(g.ContextBytes, other.ContextBytes)
	return &m
}

// both is all of a, and what of b is not in it.
func both[T any](a, b []T, same func(a, b T) bool) []T {
	all := slices.Clone(a)
	for _, x := range b {
		if !slices.ContainsFunc(a, func(y T) bool { return same(x, y) }) {
			all = append(all, x)
		}
	}
	return all
}

func (s GateSchema) same(t GateSchema) bool {
	return s.Of == t.Of && s.Path == t.Path && s.Action == t.Action && bytes.Equal(s.Schema, t.Schema)
}

func (a *GateArtifacts) merge(b *GateArtifacts) *GateArtifacts {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return &GateArtifacts{
		Max: lower(a.Max, b.Max), MaxBytes: lower(a.MaxBytes, b.MaxBytes), MaxTotalBytes: lower(a.MaxTotalBytes, b.MaxTotalBytes),
		MediaTypes: commonTypes(a.MediaTypes, b.MediaTypes),
		Action:     StrongerAction(cmp.Or(a.Action, GateWithhold), cmp.Or(b.Action, GateWithhold)),
	}
}

// lower is the lower of two bounds, of which 0 is none.
func lower(a, b int64) int64 {
	if a == 0 || b == 0 {
		return cmp.Or(a, b)
	}
	return min(a, b)
}

// MatchMediaType says whether a pattern, such as "image/*", is for a media type.
func MatchMediaType(pattern, media string) bool {
	prefix, every := strings.CutSuffix(pattern, "*")
	return pattern == media || every && strings.HasPrefix(media, prefix)
}

// commonTypes are the patterns of what is in both lists. Of nil, all is.
func commonTypes(a, b []string) []string {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	both := []string{}
	for _, x := range a {
		for _, y := range b {
			switch {
			case MatchMediaType(y, x):
				both = append(both, x)
			case MatchMediaType(x, y):
				both = append(both, y)
			}
		}
	}
	slices.Sort(both)
	return slices.Compact(both)
}
