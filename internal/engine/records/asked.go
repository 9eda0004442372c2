package records

import (
	"encoding/json"

	"pinfold/sandbox"
)

// Asked is how a run was asked for and what it was made with: what it takes, with the other
// parts of its event, to ask for it again.
type Asked struct {
	// Spec is the request without what parts of their own have.
	Spec sandbox.Spec `json:"spec"`
	// Elsewhere names the fields whose content is in no part: it came by streams.
	Elsewhere []string `json:"elsewhere,omitempty"`
	// MadeWith is what the run was made with, by name.
	MadeWith map[string]string `json:"made_with,omitempty"`
}

const askedPart = "asked"

// AddAsked adds how a run was asked for, besides AddSpec.
func (e *Event) AddAsked(a Asked) {
	s := &a.Spec
	s.Code, s.Stdin, s.Files, s.Args, s.Env, s.Metadata, s.Limits = "", "", nil, nil, nil, nil, sandbox.Limits{}
	e.data(askedPart, a)
}

// AskedAgain puts the request of a run together again from the parts of its event; ok says
// that it is among them.
func AskedAgain(parts map[string][]byte) (a Asked, ok bool, err error) {
	if parts[askedPart] == nil {
		return a, false, nil
	}
	s := &a.Spec
	for _, part := range []struct {
		name string
		to   any
	}{{askedPart, &a}, {"files", &s.Files}, {"args", &s.Args}, {"env", &s.Env}, {"metadata", &s.Metadata}, {"limits", &s.Limits}} {
		if b := parts[part.name]; b != nil {
			if err := json.Unmarshal(b, part.to); err != nil {
				return a, false, err
			}
		}
	}
	s.Code, s.Stdin = string(parts["code"]), string(parts["stdin"])
	return a, true, nil
}
