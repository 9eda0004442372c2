// Package gate checks what comes out of a sandbox before anybody uses it, takes out what
// must not come out, or keeps a part back. What it reads is hostile: every check is bounded
// in time and memory by the size of what it reads.
//
// It finds what it looks for as it stands. What a program encrypts, compresses or writes in
// a code of its own passes.
package gate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// MaxArtifactBytes is the most of one artifact that is read to be checked.
const MaxArtifactBytes = 32 << 20

// maxSpans bounds the places of one part from which something is taken out; what has more
// is withheld.
const maxSpans = 100_000

// Gate is the gate of one output: a run's, that of a process, or files. It is for one
// goroutine.
type Gate struct {
	asked     sandbox.Gate
	checks    []*check
	by        map[string]*check
	artifacts *check // nil: there are no bounds
	schemas   []*schema
	secrets   []named

	came  int64 // artifacts
	total int64 // bytes of them
}

type named struct {
	name     string
	redactor secret.Redactor
}

// check is one check and what came of it so far.
type check struct {
	sandbox.GateOutcome

	part part // in which the last finding was
	at   int  // where it was
	line int64
}

// part is a part of the output.
type part struct {
	name, path string
	data       []byte
}

// New makes the gate of an output, which may have these secrets in it. g must be valid; what is wrong
// with a schema is an error of code spec_invalid that names it.
func New(g sandbox.Gate, secrets []secret.Secret) (*Gate, error) {
	x := &Gate{asked: g, by: map[string]*check{}}
	for _, c := range g.Checks() {
		if *c.Action != "" {
			x.by[c.Name] = x.add(c.Name, *c.Action)
		}
	}
	for _, s := range secrets {
		x.secrets = append(x.secrets, named{s.Name, s.Redactor()})
	}
	if a := g.Artifacts; a != nil {
		x.artifacts = x.add("artifacts", orWithhold(a.Action))
	}
	for i, s := range g.Schemas {
		field := fmt.Sprintf("gate.schemas[%d]", i)
		compiled, err := compile(s, field+".schema")
		if err != nil {
			return nil, err
		}
		compiled.check = x.add(strings.TrimPrefix(field, "gate."), orWithhold(s.Action))
		x.schemas = append(x.schemas, compiled)
	}
	return x, nil
}

func orWithhold(a sandbox.GateAction) sandbox.GateAction {
	if a == "" {
		return sandbox.GateWithhold
	}
	return a
}

func (g *Gate) add(name string, action sandbox.GateAction) *check {
	c := &check{GateOutcome: sandbox.GateOutcome{Check: name, Action: action, Outcome: sandbox.GatePass}}
	g.checks = append(g.checks, c)
	return c
}

// Holds says that output may be changed or kept back: nobody can have it before its end.
func (g *Gate) Holds() bool {
	return slices.ContainsFunc(g.checks, func(c *check) bool { return c.Action != sandbox.GateFlag })
}

// found notes one finding of a check, at an offset of the part (-1: in no place).
func (c *check) found(p part, at int, what string, outcome sandbox.GateAction) {
	c.Count++
	c.Outcome = sandbox.StrongerAction(c.Outcome, outcome)
	if len(c.Findings) == sandbox.MaxGateFindings {
		return
	}
	f := sandbox.GateFinding{Part: p.name, Path: p.path, What: what, Outcome: outcome}
	if at >= 0 {
		if c.part.name != p.name || c.part.path != p.path || at < c.at {
			c.part, c.at, c.line = p, 0, 1
		}
		c.line += int64(bytes.Count(p.data[c.at:at], []byte{'\n'}))
		c.at = at
		f.Line = c.line
	}
	c.Findings = append(c.Findings, f)
}

// Result checks a run's result, all but its artifacts, and changes it. Stdout and stderr are
// the bytes that were printed; what of them may be seen comes back.
func (g *Gate) Result(r *sandbox.Result, stdout, stderr []byte) (out, errs []byte) {
	out, errs = g.Printed(stdout, stderr, r.StdoutTruncated)
	if changed := len(out) != len(stdout) || len(errs) != len(stderr); changed {
		r.OutputOrder = nil // it counts bytes that are not there any more
	}
	r.Stdout, r.Stderr = text(out), text(errs)
	if r.StdoutRaw != nil || r.StderrRaw != nil {
		r.StdoutRaw, r.StderrRaw = out, errs
	}
	if c := r.Compile; c != nil {
		c.Stdout = g.said("compile.stdout", c.Stdout)
		c.Stderr = g.said("compile.stderr", c.Stderr)
	}
	g.results(r)
	for i, s := range r.ArtifactsSkipped {
		if !g.Name(s.Path) {
			r.ArtifactsSkipped[i].Path = ""
		}
	}
	g.missing(r)
	r.Gate = g.Outcome(r.ID, r.Stdout, r.Stderr)
	return out, errs
}

// Printed checks what a program has printed, of whose stdout a part may be missing, and
// returns what of it may be seen.
func (g *Gate) Printed(stdout, stderr []byte, cut bool) (out, errs []byte) {
	out, kept := g.output(part{name: "stdout", data: stdout})
	if !kept || !g.matches(sandbox.GateStdout, part{name: "stdout", data: out}, cut) {
		out = nil
	}
	errs, _ = g.output(part{name: "stderr", data: stderr})
	return out, errs
}

// Outcome is what has come of the checks so far. What was printed, and whose id it has, is
// for the excerpts.
func (g *Gate) Outcome(id, stdout, stderr string) *sandbox.GateResult {
	r := &sandbox.GateResult{Outcome: sandbox.GatePass, Checks: make([]sandbox.GateOutcome, 0, len(g.checks))}
	for _, c := range g.checks {
		r.Outcome = sandbox.StrongerAction(r.Outcome, c.Outcome)
		r.Checks = append(r.Checks, c.GateOutcome)
	}
	if n := int(g.asked.ContextBytes); n > 0 {
		r.Context = &sandbox.GateContext{Stdout: excerpt("stdout", id, stdout, n), Stderr: excerpt("stderr", id, stderr, n)}
	}
	return r
}

// text is output as text: valid UTF-8.
func text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// said is a text of the result's, without what must not come out.
func (g *Gate) said(name, what string) string {
	out, _ := g.output(part{name: name, data: []byte(what)})
	return text(out)
}

// Said is a text of somebody else's about the output, without what must not come out.
func (g *Gate) Said(what string) string { return g.said("validator", what) }

// missing notes schemas of artifacts of which none came out.
func (g *Gate) missing(r *sandbox.Result) {
	for _, s := range g.schemas {
		came := s.seen || slices.ContainsFunc(r.Artifacts, func(a sandbox.Artifact) bool { return s.isFor(a.Path) })
		if s.of == sandbox.GateArtifact && !came {
			s.check.found(part{name: "artifact"}, -1, "no artifact came out that the schema is for", s.check.Action)
		}
	}
}
