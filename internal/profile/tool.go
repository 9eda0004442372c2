package profile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"pinfold/internal/language"
	"pinfold/sandbox"
)

// Levels says how strongly sandboxes of the driver of a name can be isolated, or of any
// where it is ""; "" is not known.
type Levels func(driver string) string

// Tools are the profiles of a tenant that a key may use: all where only is nil.
func (s Set) Tools(tenant string, only []string, levels Levels) []sandbox.Tool {
	tools := []sandbox.Tool{}
	for _, name := range s.Names(tenant) {
		if only == nil || slices.Contains(only, name) {
			tools = append(tools, s[name].tool(levels))
		}
	}
	return tools
}

func (c Complete) tool(levels Levels) sandbox.Tool {
	p := c.Profile
	return sandbox.Tool{Profile: p, Digest: c.ref.Digest, Input: encoded(input(false)), Output: encoded(output()), BlastRadius: radius(p, levels)}
}

// encoded is JSON of what can always be said in it.
func encoded(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the author's mistake
	}
	return b
}

func radius(p sandbox.Profile, levels Levels) sandbox.BlastRadius {
	l := p.Limits
	r := sandbox.BlastRadius{
		Endpoints: reach(p.Network), Secrets: []string{}, WritableMounts: []string{},
		WallTimeMS: l.WallTimeMS, CPUTimeMS: l.CPUTimeMS, CPUs: l.CPUs, MemoryBytes: l.MemoryBytes, DiskBytes: l.DiskBytes, OutputBytes: l.OutputBytes,
		Compile: compileLimits(p), LivingMS: p.TTLMS, Weakest: weakest(p), Strongest: levels(p.Driver),
	}
	if !p.Network.None() {
		r.BytesUp, r.BytesDown, r.Requests = p.Network.Limits.BytesUp, p.Network.Limits.BytesDown, p.Network.Limits.Requests
	}
	for _, e := range p.Network.Endpoints {
		if e.Secret != "" && !slices.Contains(r.Secrets, e.Secret) {
			r.Secrets = append(r.Secrets, e.Secret)
		}
	}
	if r.Weakest == "" {
		r.Weakest = r.Strongest // the driver is named
	}
	if !sandbox.LevelAtLeast(r.Strongest, r.Weakest) { // this host cannot make it
		r.Strongest = ""
	}
	return r
}

// compileLimits are those of the profile's language's compile step, if it has one.
func compileLimits(p sandbox.Profile) *sandbox.Limits {
	l, err := language.Find(p.Language)
	if err != nil || l.Compile == nil {
		return nil
	}
	limits := l.CompileStep(p.Limits)
	return &limits
}

// maxSummary bounds what models are told of a tool, in bytes: some take no more.
const maxSummary = 1024

// shownEndpoints is how many endpoints models are told of.
const shownEndpoints = 8

// summary is what a model is told of a tool.
func summary(t sandbox.Tool) string {
	p, r := t.Profile, t.BlastRadius
	title := p.Language
	if l, err := language.Find(p.Language); err == nil {
		title = l.Title
	}
	ms := func(n int64) string { return sandbox.FormatQuantity(n, sandbox.UnitMilliseconds) }
	cpus := "CPUs"
	if r.CPUs == 1 {
		cpus = "CPU"
	}
	text := fmt.Sprintf("Runs a program in %s in a fresh sandbox that is gone afterwards: at most %s, %s of memory, %v %s, %s of output. ",
		title, ms(r.WallTimeMS), sandbox.FormatSize(r.MemoryBytes), r.CPUs, cpus, sandbox.FormatSize(r.OutputBytes))
	switch list := r.Endpoints; {
	case len(list) == 0:
		text += "It has no network."
	case len(list) > shownEndpoints:
		text += fmt.Sprintf("Of the network it reaches %s and %d others, and nothing else.", strings.Join(list[:shownEndpoints], ", "), len(list)-shownEndpoints)
	default:
		text += "Of the network it reaches " + strings.Join(list, ", ") + ", and nothing else."
	}
	if p.Approval != "" {
		text += " A person has to approve each run before it starts, which takes its time and may be refused."
	}
	if p.Description != "" {
		text = p.Description + "\n\n" + text
	}
	if len(text) > maxSummary {
		text = strings.ToValidUTF8(text[:maxSummary-len("…")], "") + "…"
	}
	return text
}
