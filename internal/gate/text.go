package gate

import (
	"cmp"
	"slices"

	"pinfold/sandbox"
)

// span is a place from which something is taken out, and what takes its place.
type span struct {
	from, to int
	with     string
}

// scan is one part on its way through the checks of text.
type scan struct {
	part    part
	spans   []span
	outcome sandbox.GateAction
	binary  bool // nothing can be taken out of it
	cleaned bool // characters are gone from the part
}

// hit is one finding in text: action of the check, and what is taken out if it redacts.
func (s *scan) hit(c *check, from, to int, what, with string) {
	outcome := c.Action
	if outcome == sandbox.GateRedact && (s.binary || len(s.spans) >= maxSpans) {
		outcome = sandbox.GateWithhold
	}
	if outcome == sandbox.GateRedact {
		if n := len(s.spans); n > 0 && with == "" && s.spans[n-1].to == from && s.spans[n-1].with == "" {
			s.spans[n-1].to = to
		} else {
			s.spans = append(s.spans, span{from, to, with})
		}
	}
	s.outcome = sandbox.StrongerAction(s.outcome, outcome)
	c.found(s.part, from, what, outcome)
}

// output puts text through all checks of text. It returns what is left of it; not kept says
// that nothing may be seen.
func (g *Gate) output(p part) (out []byte, kept bool) {
	s := &scan{part: p}
	g.readText(s)
	return s.finish()
}

// readText is every check that is for text.
func (g *Gate) readText(s *scan) {
	g.readCharacters(s)
	g.readWords(s)
}

// readCharacters takes characters out before anything else is looked for: what they divide
// would otherwise come out whole.
func (g *Gate) readCharacters(s *scan) {
	control, hidden := g.by["control_characters"], g.by["hidden_text"]
	if control == nil && hidden == nil {
		return
	}
	s.characters(control, hidden)
	if len(s.spans) == 0 || s.outcome == sandbox.GateWithhold {
		return
	}
	s.part.data, s.spans, s.cleaned = s.left(), nil, true
	s.binary = true // two bytes that were none may have become one: then all is withheld
	s.characters(control.ifRedacts(), hidden.ifRedacts())
	s.binary = false
}

// ifRedacts is the check if it takes out what it finds, or nil.
func (c *check) ifRedacts() *check {
	if c == nil || c.Action != sandbox.GateRedact {
		return nil
	}
	return c
}

// readWords is every check of text but that of characters.
func (g *Gate) readWords(s *scan) {
	g.readSecrets(s)
	s.anchored(g.by["keys"], g.by["instructions"])
}

// readBytes is every check that is for anything, text or not.
func (g *Gate) readBytes(s *scan) {
	g.readSecrets(s)
	s.anchored(g.by["keys"], nil)
}

func (g *Gate) readSecrets(s *scan) {
	if c := g.by["secrets"]; c != nil {
		for _, known := range g.secrets {
			for _, at := range known.redactor.Find(s.part.data, maxSpans) {
				s.hit(c, at[0], at[1], known.name, "[secret "+known.name+"]")
			}
		}
	}
}

// finish takes out what must be taken out.
func (s *scan) finish() (out []byte, kept bool) {
	if s.outcome == sandbox.GateWithhold {
		return nil, false
	}
	return s.left(), true
}

// left is what of the part is left without what was found.
func (s *scan) left() (out []byte) {
	if len(s.spans) == 0 {
		return s.part.data
	}
	slices.SortFunc(s.spans, func(a, b span) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	out = make([]byte, 0, len(s.part.data))
	at := 0
	for _, x := range s.spans {
		if x.from >= at {
			out = append(out, s.part.data[at:x.from]...)
			out = append(out, x.with...)
		}
		at = max(at, x.to)
	}
	return append(out, s.part.data[at:]...)
}
