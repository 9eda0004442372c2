package runs

import (
	"bytes"
	"context"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/stdio"
	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// gateOf is the gate of a run as the request and the operator together have it, or nil. It
// puts both into the spec.
func (rn *Runner) gateOf(ctx context.Context, req Request, spec *sandbox.Spec) (execution.Gate, error) {
	if !req.Own {
		spec.Gate = spec.Gate.Merge(rn.policy.Gate)
	}
	if spec.Gate.Empty() {
		return nil, nil //nolint:nilnil // there is none
	}
	if rn.gates == nil {
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "gate", Message: "this program has no output gate", Hint: "leave it out"}
	}
	var secrets []secret.Secret
	for _, e := range spec.Network.Endpoints {
		if e.Secret == "" || rn.secrets == nil {
			continue
		}
		s, err := rn.secrets.Find(ctx, req.Tenant, e.Secret)
		if err == nil { // else the run is refused when its machine is made
			secrets = append(secrets, s)
		}
	}
	return rn.gates(*spec.Gate, secrets)
}

// holds says that output is kept back until it is checked.
func (j *job) holds() bool { return j.gate != nil && (j.gate.Holds() || j.validates()) }

// opened tells those who follow the run where its output is kept.
func (j *job) opened(c *stdio.Capture) {
	if !j.holds() {
		j.live.opened(c)
	}
}

// artifactGate is the run's gate for what collects files.
func (j *job) artifactGate() execution.ArtifactGate {
	switch {
	case j.gate == nil:
		return nil
	case j.validates():
		return readWhole{j.gate}
	}
	return j.gate
}

// passGate checks what the run has given, and passes on what was held.
func (j *job) passGate(ctx context.Context) {
	if j.gate == nil {
		return
	}
	stdout, stderr := []byte(j.result.Stdout), []byte(j.result.Stderr)
	if j.output != nil {
		exact := j.output.Exact(true)
		stdout, stderr = exact.StdoutRaw, exact.StderrRaw
	}
	out, errs := j.gate.Result(j.result, stdout, stderr)
	if j.result.Cause.Kind == sandbox.CauseExited && !bytes.Equal(errs, stderr) {
		j.result.Cause = j.result.Cause.WithAdvice(nil) // it may quote what the program said
	}
	if j.validates() && !j.validate(ctx, out) {
		j.withhold()
		out, errs = nil, nil
	}
	j.release()
	if j.holds() {
		j.live.opened(stdio.Recorded(j.result))
		j.passOn(out, errs)
	}
}

// passOn hands output to the caller's streams.
func (j *job) passOn(stdout, stderr []byte) {
	s := j.request.Streams
	if s.Stdout != nil && len(stdout) > 0 {
		_, _ = s.Stdout.Write(stdout)
	}
	if s.Stderr != nil && len(stderr) > 0 {
		_, _ = s.Stderr.Write(stderr)
	}
}
