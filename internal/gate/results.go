package gate

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"pinfold/sandbox"
)

// results checks the values that a program has left. A value of which one form must be
// kept back is kept back whole: its forms are the same thing.
func (g *Gate) results(r *sandbox.Result) {
	kept := r.Results[:0:0]
	for i, value := range r.Results {
		name := fmt.Sprintf("results[%d]", i)
		if g.rich(name, value) {
			kept = append(kept, value)
			continue
		}
		r.ResultsSkipped = append(r.ResultsSkipped, sandbox.SkippedResult{Code: sandbox.CodeWithheld, Reason: name + " was withheld by the output gate"})
	}
	if all, err := json.Marshal(kept); err != nil || !g.matches(sandbox.GateResults, part{name: "results", data: all}, false) {
		kept = kept[:0]
		r.ResultsSkipped = append(r.ResultsSkipped, sandbox.SkippedResult{Code: sandbox.CodeWithheld, Reason: "the results were withheld by the output gate: they do not match the schema"})
	}
	for i, s := range r.ResultsSkipped {
		r.ResultsSkipped[i].Reason = g.said("results", s.Reason)
	}
	if r.Results != nil {
		r.Results = append([]sandbox.Rich{}, kept...)
	}
}

// rich checks one value, in all its forms, and changes it.
func (g *Gate) rich(name string, value sandbox.Rich) bool {
	for media, form := range value {
		s := &scan{part: part{name: name}}
		switch form := form.(type) {
		case string:
			s.part.data = []byte(form)
		case json.RawMessage:
			s.part.data = form
		default:
			b, err := json.Marshal(form)
			if err != nil {
				return false
			}
			s.part.data = b
		}
		if strings.HasPrefix(media, "image/") && media != "image/svg+xml" {
			if !g.picture(s) {
				return false
			}
			continue
		}
		g.readText(s)
		if media == "text/html" || media == "image/svg+xml" {
			g.readScripts(s)
		}
		out, kept := s.finish()
		if !kept {
			return false
		}
		if len(s.spans) == 0 && !s.cleaned {
			continue
		}
		if _, isText := form.(string); isText {
			value[media] = text(out)
		} else if json.Valid(out) {
			value[media] = json.RawMessage(out)
		} else {
			return false // what was taken out was part of its form
		}
	}
	return true
}

// picture says whether a picture in base64 may come out: it is looked at as the file that
// it is.
func (g *Gate) picture(s *scan) bool {
	if b, err := base64.StdEncoding.DecodeString(string(s.part.data)); err == nil {
		s.part.data = b
	}
	s.binary = true
	g.readBytes(s)
	_, kept := s.finish()
	return kept
}
