package gate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// MostRead is the most of one artifact that is read to be checked, in bytes.
func (g *Gate) MostRead() int64 { return MaxArtifactBytes }

// Unread says what becomes of an artifact that is too large to be read: nil lets it out.
func (g *Gate) Unread(a sandbox.Artifact) error {
	if !g.Name(a.Path) {
		return withheldFor("its name was withheld by the output gate")
	}
	if err := g.bounds(a, a.Path); err != nil {
		return err
	}
	p := part{name: "artifact", path: a.Path}
	withheld := false
	for _, c := range g.checks {
		if c == g.artifacts || slices.ContainsFunc(g.schemas, func(s *schema) bool { return s.check == c && !s.isFor(a.Path) }) {
			continue
		}
		outcome := c.Action
		if outcome == sandbox.GateRedact {
			outcome = sandbox.GateWithhold
		}
		c.found(p, -1, "a file larger than what is read, "+sandbox.FormatSize(MaxArtifactBytes), outcome)
		withheld = withheld || outcome == sandbox.GateWithhold
	}
	if withheld {
		return withheldFor("it is larger than what the output gate reads, " + sandbox.FormatSize(MaxArtifactBytes))
	}
	g.came, g.total = g.came+1, g.total+a.Size
	return nil
}

func withheldFor(why string) error {
	return &sandbox.Error{Code: sandbox.CodeWithheld, Message: why}
}

// Artifact checks one artifact, whose size is that of content. What may come out comes
// back; an error of code withheld says why nothing may.
func (g *Gate) Artifact(a sandbox.Artifact, content []byte) ([]byte, error) {
	p := part{name: "artifact", path: a.Path, data: content}
	if !g.Name(a.Path) {
		return nil, withheldFor("its name was withheld by the output gate")
	}
	if err := g.bounds(a, a.Path); err != nil {
		return nil, err
	}
	m := mediaOf(a.MediaType, content)
	s := &scan{part: p, binary: m.isBinary(content)}
	if !s.binary {
		g.readCharacters(s)
	}
	if s.cleaned { // it may be something else now
		content = s.part.data
		m = mediaOf(a.MediaType, content)
		s.binary = m.isBinary(content)
	}
	if err := g.kind(s.part, m); err != nil {
		return nil, err
	}
	if s.binary {
		g.readBytes(s)
	} else {
		g.readWords(s)
	}
	if m.is("text/html", "image/svg+xml") || slices.Contains([]string{"text/html", "image/svg+xml", "application/xml", "text/markdown"}, m.declared) || looksActive(m, content) {
		g.readScripts(s)
	}
	if c := g.by["formulas"]; c != nil {
		switch m.name(len(content) == 0) {
		case "text/csv", "text/tab-separated-values":
			s.formulas(c)
		case "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet":
			s.outcome = sandbox.StrongerAction(s.outcome, g.workbook(s.part, c))
		}
	}
	out, kept := s.finish()
	if kept {
		kept = g.matches(sandbox.GateArtifact, part{name: "artifact", path: a.Path, data: out}, false)
	}
	if !kept {
		return nil, withheldFor("it was withheld by the output gate (" + strings.Join(g.reasons(a.Path), ", ") + ")")
	}
	g.came, g.total = g.came+1, g.total+int64(len(out))
	return out, nil
}

// looksActive says that a browser that looks at the content could take a text for HTML.
func looksActive(m media, content []byte) bool {
	first := bytes.TrimSpace(content[:min(len(content), 1024)])
	return m.isText() && m.declared == anyBytes && len(first) > 0 && first[0] == '<'
}

// reasons are the checks for which an artifact is withheld.
func (g *Gate) reasons(name string) (all []string) {
	for _, c := range g.checks {
		if slices.ContainsFunc(c.Findings, func(f sandbox.GateFinding) bool { return f.Path == name && f.Outcome == sandbox.GateWithhold }) {
			all = append(all, c.Check)
		}
	}
	if len(all) == 0 {
		all = append(all, "for what its checks found")
	}
	return all
}

// bounds holds an artifact against the numbers and sizes that may come out.
func (g *Gate) bounds(a sandbox.Artifact, name string) error {
	most := g.asked.Artifacts
	if most == nil {
		return nil
	}
	var why string
	switch {
	case most.Max > 0 && g.came >= most.Max:
		why = fmt.Sprintf("more than %d artifacts", most.Max)
	case most.MaxBytes > 0 && a.Size > most.MaxBytes:
		why = "larger than " + sandbox.FormatSize(most.MaxBytes)
	case most.MaxTotalBytes > 0 && g.total+a.Size > most.MaxTotalBytes:
		why = "more than " + sandbox.FormatSize(most.MaxTotalBytes) + " together"
	default:
		return nil
	}
	return g.artifactFault(part{name: "artifact", path: name}, why)
}

func (g *Gate) artifactFault(p part, why string) error {
	g.artifacts.found(p, -1, why, g.artifacts.Action)
	if g.artifacts.Action != sandbox.GateWithhold {
		return nil
	}
	return withheldFor("it was withheld by the output gate (artifacts: " + why + ")")
}

// kind holds what a file is against what its name says and what may come out.
func (g *Gate) kind(p part, m media) error {
	empty := len(p.data) == 0
	if c := g.by["media_types"]; c != nil && !m.agree(empty) {
		name, _, _ := strings.Cut(m.found.String(), ";")
		c.found(p, -1, "content of "+name+" by the name of "+m.declared, c.Action)
		if c.Action == sandbox.GateWithhold {
			return withheldFor("it was withheld by the output gate (media_types: its content is " + name + ")")
		}
	}
	if most := g.asked.Artifacts; most != nil && most.MediaTypes != nil {
		is := m.name(empty)
		if !slices.ContainsFunc(most.MediaTypes, func(t string) bool { return sandbox.MatchMediaType(t, is) }) {
			return g.artifactFault(p, is+" is not among the media types that may come out")
		}
	}
	return nil
}

// Name says whether the name of a file may be seen: it is the guest's text as well.
func (g *Gate) Name(name string) bool {
	s := &scan{part: part{name: "name", data: []byte(name)}, binary: true}
	g.readText(s)
	return s.outcome != sandbox.GateWithhold
}
