package runs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// maxHeld is how much of artifacts waits for validators, in bytes.
const maxHeld = 32 << 20

// Where a validator finds what it judges.
const (
	judgedFile = "output.json"
	judgedDir  = "artifacts/"
)

// judged is what a validator reads of an output besides its stdout and its artifacts.
type judged struct {
	ID               string                    `json:"id"`
	Status           sandbox.Status            `json:"status"`
	Cause            sandbox.CauseKind         `json:"cause"`
	ExitCode         *int                      `json:"exit_code"`
	Signal           string                    `json:"signal,omitempty"`
	Language         string                    `json:"language"`
	StdoutBytes      int64                     `json:"stdout_bytes"`
	StdoutTruncated  bool                      `json:"stdout_truncated"`
	Stderr           string                    `json:"stderr"`
	StderrTruncated  bool                      `json:"stderr_truncated"`
	Results          []sandbox.Rich            `json:"results"`
	Artifacts        []sandbox.Artifact        `json:"artifacts"`
	ArtifactsSkipped []sandbox.SkippedArtifact `json:"artifacts_skipped,omitempty"`
}

// heldArtifact is one that came out and that nobody has yet.
type heldArtifact struct {
	artifact sandbox.Artifact
	content  []byte
}

// readWhole is a gate behind which every artifact is read: what validators were not given
// they have not judged.
type readWhole struct{ execution.Gate }

func (readWhole) Unread(sandbox.Artifact) error {
	return notJudged("it is larger than what validators are given")
}

func notJudged(why string) error {
	return &sandbox.Error{Code: sandbox.CodeWithheld, Message: why}
}

// validates says that programs of the caller's, or of the operator's, judge the output.
func (j *job) validates() bool { return j.gate != nil && len(j.spec.Gate.Validators) > 0 }

// demand is the room for the run, and for what judges it after its end.
func (j *job) demand() admission.Demand {
	d := admission.Demand{Run: true, MemoryBytes: j.plan.Limits.MemoryBytes, CPUs: j.plan.Limits.CPUs}
	if j.validates() {
		for _, v := range j.spec.Gate.Validators {
			l := v.Bounded()
			d.MemoryBytes, d.CPUs = max(d.MemoryBytes, l.MemoryBytes), max(d.CPUs, l.CPUs)
		}
	}
	return d
}

// checkValidators refuses validators that could not run.
func (j *job) checkValidators(ctx context.Context) error {
	if !j.validates() {
		return nil
	}
	for i := range j.spec.Gate.Validators {
		if _, err := j.validator(ctx, i); err != nil {
			e := sandbox.AsError(err)
			return e.WithField(strings.TrimSuffix(fmt.Sprintf("gate.validators[%d].%s", i, e.Field), "."))
		}
	}
	return nil
}

// validator is the run of one validator. The host's programs run it, which no template of
// the caller's can change, behind the wall that the run has.
func (j *job) validator(ctx context.Context, i int) (*job, error) {
	v := j.spec.Gate.Validators[i]
	return j.runner.prepare(ctx, Request{
		Tenant: j.request.Tenant, NoArtifacts: true, NoResults: true, Own: true,
		Spec: sandbox.Spec{
			Language: v.Language, Code: v.Code, Limits: v.Bounded(), Driver: j.driver.Name(), Isolation: j.spec.Isolation, Cold: true,
		},
	})
}

// sink is where artifacts go when they come out.
func (j *job) sink() func(a sandbox.Artifact, content io.Reader) error {
	if !j.validates() {
		return j.request.Artifact
	}
	var total int64
	return func(a sandbox.Artifact, content io.Reader) error {
		if total += a.Size; total > maxHeld {
			return notJudged("validators are given " + sandbox.FormatSize(maxHeld) + " of artifacts together")
		}
		b, err := io.ReadAll(io.LimitReader(content, a.Size))
		if err == nil {
			j.held = append(j.held, heldArtifact{a, b})
		}
		return err
	}
}

// release hands on the artifacts that waited.
func (j *job) release() {
	sink := j.request.Artifact
	all := j.result.Artifacts
	if len(j.held) == 0 {
		return
	}
	j.result.Artifacts = all[:0:0]
	for i, h := range j.held {
		a := all[i] // all of them came by the sink, in this order
		if sink == nil {
			if len(j.spec.Artifacts) > 0 {
				a.Content = h.content
			}
		} else if err := sink(a, bytes.NewReader(h.content)); err != nil {
			known := sandbox.AsError(err)
			j.result.ArtifactsSkipped = append(j.result.ArtifactsSkipped, sandbox.SkippedArtifact{Path: a.Path, Code: known.Code, Reason: known.Message})
			continue
		}
		j.result.Artifacts = append(j.result.Artifacts, a)
	}
	j.held = nil
}

// validate has validators judge what the other checks have let out, until one withholds it.
func (j *job) validate(ctx context.Context, stdout []byte) (passes bool) {
	for i, v := range j.spec.Gate.Validators {
		c := sandbox.GateOutcome{Check: fmt.Sprintf("validators[%d]", i), Action: cmp.Or(v.Action, sandbox.GateWithhold), Outcome: sandbox.GatePass}
		said, failed := j.askValidator(ctx, i, stdout)
		if said != "" {
			c.Outcome, c.Count = c.Action, 1
			if failed {
				c.Outcome = sandbox.GateWithhold
			}
			c.Findings = []sandbox.GateFinding{{Part: "output", What: said, Outcome: c.Outcome}}
		}
		g := j.result.Gate
		g.Checks, g.Outcome = append(g.Checks, c), sandbox.StrongerAction(g.Outcome, c.Outcome)
		if c.Outcome == sandbox.GateWithhold {
			return false
		}
	}
	return true
}

// askValidator runs one validator, in the run's own room. said is why the output does not pass; failed
// says that the validator did not get as far as a verdict.
func (j *job) askValidator(ctx context.Context, i int, stdout []byte) (said string, failed bool) {
	v, err := j.validator(ctx, i)
	if err == nil {
		defer close(v.told)
		v.room = j.room
		v.room.hold()
		defer v.settle()
		if err = j.give(v, stdout); err == nil {
			err = v.run(ctx)
		}
		u := v.result.Usage
		j.runner.records.Account(j.request.Tenant, records.Consumption{CPUMS: u.CPUMS, WallMS: u.WallMS, MemoryMiBMS: u.MemoryPeakBytes >> 20 * u.WallMS})
	}
	if err == nil && ctx.Err() != nil {
		err = execution.CallerGone(ctx, context.Cause(ctx))
	}
	if err != nil {
		e := sandbox.AsError(err)
		return sandbox.SafeText("the validator could not be run: "+e.Code+": "+e.Message, 2*sandbox.MaxGateReason), true
	}
	r := v.result
	switch {
	case r.Status == sandbox.StatusSucceeded:
		return "", false
	case r.Status != sandbox.StatusFailed || r.Cause.Phase != "" || r.ExitCode == nil:
		return "the validator gave no verdict: " + cmp.Or(strings.TrimSpace(string(r.Cause.Phase)+" "+string(r.Cause.Kind)), string(r.Status)), true
	}
	reason, _, _ := strings.Cut(strings.TrimLeft(r.Stderr, "\n"), "\n")
	reason = sandbox.SafeText(j.gate.Said(reason), sandbox.MaxGateReason)
	return strings.TrimSuffix(fmt.Sprintf("exit status %d: %s", *r.ExitCode, reason), ": "), false
}

// give puts a run's output where its validator finds it.
func (j *job) give(v *job, stdout []byte) error {
	r := j.result
	description, err := json.Marshal(judged{
		ID: r.ID, Status: r.Status, Cause: r.Cause.Kind, ExitCode: r.ExitCode, Signal: r.Signal, Language: r.Language,
		StdoutBytes: int64(len(stdout)), StdoutTruncated: r.StdoutTruncated, Stderr: r.Stderr, StderrTruncated: r.StderrTruncated,
		Results: r.Results, Artifacts: r.Artifacts, ArtifactsSkipped: r.ArtifactsSkipped,
	})
	if err != nil {
		return err
	}
	v.request.Streams.Stdin = bytes.NewReader(stdout)
	v.input(judgedFile, description)
	for _, h := range j.held {
		v.input(judgedDir+h.artifact.Path, h.content)
	}
	return nil
}

// input has a file go in that the program cannot write to.
func (j *job) input(path string, content []byte) {
	j.request.Inputs = append(j.request.Inputs, Input{
		Path: path, Mode: 0o444, Size: int64(len(content)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
	})
}

// withhold takes everything of the guest's out of the result.
func (j *job) withhold() {
	r := j.result
	why := "it was withheld by the output gate (" + r.Gate.Checks[len(r.Gate.Checks)-1].Check + ")"
	r.Stdout, r.Stderr, r.ExactOutput = "", "", sandbox.ExactOutput{}
	r.Cause = r.Cause.WithAdvice(nil)
	if r.Compile != nil {
		r.Compile.Stdout, r.Compile.Stderr = "", ""
	}
	if len(r.Results)+len(r.ResultsSkipped) > 0 {
		r.Results, r.ResultsSkipped = []sandbox.Rich{}, []sandbox.SkippedResult{{Code: sandbox.CodeWithheld, Reason: why}}
	}
	if len(r.Artifacts)+len(r.ArtifactsSkipped) > 0 { // their names are the guest's as well
		r.Artifacts, r.ArtifactsSkipped = []sandbox.Artifact{}, []sandbox.SkippedArtifact{{Code: sandbox.CodeWithheld, Reason: why}}
	}
	j.held = nil
	if r.Gate.Context != nil {
		r.Gate.Context = &sandbox.GateContext{}
	}
	for _, c := range r.Gate.Checks {
		for i := range c.Findings {
			c.Findings[i].Path = ""
		}
	}
}
