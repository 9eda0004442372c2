package living

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/stdio"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// # The output gate
//
// Each process's output is one output, and each answer with files. What has an end is held
// until then and checked; what has none (a terminal, a port) does not come out of a sandbox
// whose gate can hold something back.

// outputGate is what checks a sandbox's output.
type outputGate struct {
	asked   sandbox.Gate // by the request, the profile and the operator
	make    execution.Gates
	holds   bool          // nothing comes out before it is checked
	reading chan struct{} // has room for one: who has a whole file in memory
}

// gateOf is what checks the output of a sandbox that asks for a gate, or nil. own is for
// what the server itself makes: the operator's gate is not for that.
func (mg *Manager) gateOf(asked *sandbox.Gate, own bool) (*outputGate, error) {
	if !own {
		asked = asked.Merge(mg.policy.Gate)
	}
	switch {
	case asked.Empty():
		return nil, nil //nolint:nilnil // there is none
	case len(asked.Validators) > 0:
		return nil, &sandbox.Error{
			Code: sandbox.CodePolicyRefused, Message: "the operator has programs judge what comes out, which is for runs only",
			Hint: "run the program instead (pinfold run)",
		}
	case mg.gates == nil:
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "gate", Message: "this program has no output gate", Hint: "leave it out"}
	}
	g, err := mg.gates(*asked, nil)
	if err != nil {
		return nil, err
	}
	return &outputGate{asked: *asked, make: mg.gates, holds: g.Holds(), reading: make(chan struct{}, 1)}, nil
}

// named adds the secrets that endpoints name to those that can have come into a sandbox.
func named(secrets []string, n sandbox.Network) []string {
	for _, e := range n.Endpoints {
		if e.Secret != "" && !slices.Contains(secrets, e.Secret) {
			secrets = append(slices.Clip(secrets), e.Secret)
		}
	}
	return secrets
}

// hasSecrets are the names of those that can have come into the sandbox, and so into what
// is made of it.
func (s *Sandbox) hasSecrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.secrets)
}

// newGate makes the gate of one output of the sandbox, which has one.
func (s *Sandbox) newGate(ctx context.Context) (execution.Gate, error) {
	var names []string
	if s.gate.asked.Secrets != "" {
		names = s.hasSecrets()
	}
	known, err := execution.SecretsFor(ctx, s.manager.secrets, s.tenant, names)
	if err != nil {
		return nil, err
	}
	return s.gate.make(s.gate.asked, known)
}

// holds says that nothing comes out of the sandbox before it is checked.
func (s *Sandbox) holds() bool { return s.gate != nil && s.gate.holds }

// Unchecked says why what comes that way does not come out, if it does not: nobody could
// check it before.
func (s *Sandbox) Unchecked(way string) error {
	if !s.holds() {
		return nil
	}
	return &sandbox.Error{
		Code: sandbox.CodeWithheld, Message: fmt.Sprintf("the output gate of sandbox %s has to look at what comes out before anybody has it, and through %s it would come as it is", s.info.ID, way),
		Hint: `have a command print it, or write it to a file and read that; or make a sandbox whose gate has no other action than "flag"`,
	}
}

// Unchecked says why nobody can have the process's terminal, if that is so: one that goes on
// from another sandbox's memory may have one all the same.
func (p *Process) Unchecked() error { return p.sandbox.Unchecked("a terminal") }

// checked is what is left of an output that was held back.
type checked struct {
	cut   [2]bool // the beginning is missing
	order []sandbox.OutputPiece
}

// check puts what the process has printed through the sandbox's gate, when it has ended.
func (p *Process) check(r *sandbox.Process) {
	if p.sandbox.gate == nil || p.asks {
		return
	}
	stdout, cutOut := p.output.Kept(wire.Stdout)
	stderr, cutErr := p.output.Kept(wire.Stderr)
	var out, errs []byte
	g, err := p.sandbox.newGate(context.Background())
	if err == nil {
		out, errs = g.Printed(stdout, stderr, cutOut)
		r.Gate = g.Outcome(p.id, stdio.Text(out), stdio.Text(errs))
	} else {
		p.sandbox.manager.log.Error("what a process has printed cannot be checked", "process", p.id, "sandbox", p.sandbox.info.ID, "error", err)
		out, errs, r.Gate = p.sandbox.gate.uncheckable(stdout, stderr)
	}
	if !p.sandbox.gate.holds {
		return
	}
	p.held = &checked{cut: [2]bool{cutOut, cutErr}}
	if !cutOut && !cutErr && len(out) == len(stdout) && len(errs) == len(stderr) {
		p.held.order = p.output.Order()
	}
	if r.Cause != nil && (!bytes.Equal(out, stdout) || !bytes.Equal(errs, stderr)) {
		cause := r.Cause.WithAdvice(nil) // it may quote what the program said
		r.Cause = &cause
	}
	_, _ = p.shown.Writer(wire.Stdout).Write(out) // it never fails
	_, _ = p.shown.Writer(wire.Stderr).Write(errs)
	p.output.Drop()
}

// uncheckable is what comes out where the secrets that have to be looked for cannot be read.
func (g *outputGate) uncheckable(stdout, stderr []byte) (out, errs []byte, r *sandbox.GateResult) {
	c := sandbox.GateOutcome{Check: "secrets", Action: g.asked.Secrets, Outcome: sandbox.GateFlag, Count: 1}
	if g.holds {
		c.Outcome, stdout, stderr = sandbox.GateWithhold, nil, nil
	}
	c.Findings = []sandbox.GateFinding{{Part: "output", What: "the secrets to look for cannot be read", Outcome: c.Outcome}}
	return stdout, stderr, &sandbox.GateResult{Outcome: c.Outcome, Checks: []sandbox.GateOutcome{c}}
}
