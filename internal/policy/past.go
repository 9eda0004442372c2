package policy

import (
	"encoding/json"

	"pinfold/sandbox"
)

// maxFacts bounds what is kept of one run, in bytes. The endpoints of one that declared
// more are kept without their methods and paths, which is wider.
const maxFacts = 16 << 10

// Encode is what a store keeps of facts. What a scan saw comes later, see SeenIn.
func (f Facts) Encode() ([]byte, error) {
	text, err := json.Marshal(f)
	if err != nil || len(text) <= maxFacts {
		return text, err
	}
	wide := make([]sandbox.Endpoint, len(f.Endpoints))
	for i, e := range f.Endpoints {
		wide[i] = sandbox.Endpoint{Host: e.Host, Ports: e.Ports}
	}
	f.Endpoints = wide
	return json.Marshal(f)
}

// Decode reads what a store has kept: facts, and what a scan saw, or nothing.
func (f *Facts) Decode(facts, seen []byte) error {
	if err := json.Unmarshal(facts, f); err != nil {
		return err
	}
	if len(seen) == 0 {
		return nil
	}
	f.Seen = &Seen{}
	return json.Unmarshal(seen, f.Seen)
}

// Encode is what a store keeps of what a scan saw; nothing where nobody has looked.
func (s *Seen) Encode() ([]byte, error) {
	if s == nil {
		return nil, nil
	}
	return json.Marshal(s)
}

// SeenIn is what a scan saw, as a result says it; nil where nobody has looked.
func SeenIn(r *sandbox.Result) *Seen {
	if r.Findings == nil && r.FindingsUnread == "" {
		return nil
	}
	return See(r.Findings, r.FindingsUnread != "" || r.FindingsMissed)
}
