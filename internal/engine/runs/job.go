package runs

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/planner"
	"pinfold/internal/engine/pool"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/stdio"
	"pinfold/internal/engine/verdict"
	"pinfold/internal/failpoint"
	"pinfold/internal/guest"
	"pinfold/internal/language"
	"pinfold/internal/packages"
	"pinfold/internal/policy"
	"pinfold/internal/wire"
	"pinfold/internal/zygote/warm"
	"pinfold/sandbox"
)

// job is one run on its way.
type job struct {
	planned

	runner   *Runner
	place    *admission.Place // in the queue; nil: not there yet
	late     bool             // nobody waits for it
	counted  bool             // among those for which a drain waits
	rules    *policy.Policy   // the operator's, as they were when it was asked for; nil: none
	live     *liveRun         // nil: there is no store in which it could be found
	room     *room            // nil: not admitted yet
	request  Request
	spec     sandbox.Spec
	language language.Language
	steps    language.Steps    // in the machine that is at work
	main     string            // the program's file
	warm     *warm.Interpreter // it takes the program; nil: it is started
	result   *sandbox.Result
	used     *packages.Use  // the packages that were asked for, once they are here
	gate     execution.Gate // nil: what comes out is not checked
	held     []heldArtifact // what came out and waits for validators
	output   *stdio.Capture // what the program, or its compiler, has printed; nil: nothing yet
	stdin    *stdio.Inlet   // of a run whose stdin is open
	begun    func()         // tells who asked for it the id
	stands   func()         // says that it is known whether a person has to be asked
	standing chan struct{}  // closed then
	told     chan struct{}  // closed when the result is kept: what goes on after the answer waits for it

	inputs    map[string]func() execution.Input // files that went in, by path
	began     time.Time                         // when the program was started
	collected time.Duration                     // what taking values and files out has cost so far
	left      []*pool.Machine                   // what could not be destroyed in time
}

// prepare does everything that needs no sandbox: a refusal comes from here.
func (rn *Runner) prepare(ctx context.Context, req Request) (*job, error) {
	if req.OpenStdin && req.Spec.Stdin != "" {
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "stdin", Message: "comes with the request or while the run goes on, not both"}
	}
	spec, profile, err := rn.profiled(ctx, req)
	if err != nil {
		return nil, err
	}
	if spec.Limits, err = rn.policy.Limits(spec.Limits, true); err != nil {
		return nil, err
	}
	if err := rn.recordable(); err != nil {
		return nil, err
	}
	spec = spec.WithDefaults()
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if spec.Network, err = rn.network(ctx, req, spec.Network); err != nil {
		return nil, err
	}
	lang, err := findLanguage(spec)
	if err == nil {
		err = lang.CheckWarm(spec.Warm)
	}
	if err == nil {
		lang, err = lang.WithHarness(spec.AllowedImports, !req.NoResults)
	}
	if err != nil {
		return nil, err
	}
	output, err := rn.gateOf(ctx, req, &spec)
	if err != nil {
		return nil, err
	}
	id := records.NewID("run_")
	plan, err := rn.plan(ctx, req.Tenant, spec, strings.TrimPrefix(id, "run_"))
	if err != nil {
		return nil, err
	}
	j := &job{runner: rn, request: req, planned: plan, spec: spec, language: lang, main: cmp.Or(spec.Entrypoint, lang.File), gate: output, rules: rn.rulesFor(req), standing: make(chan struct{}), told: make(chan struct{}), inputs: map[string]func() execution.Input{}}
	j.begun = sync.OnceFunc(func() {
		if req.Started != nil {
			req.Started(id)
		}
	})
	j.stands = sync.OnceFunc(func() { close(j.standing) })
	if err := j.planSteps(j.plan); err != nil {
		return nil, err
	}
	if err := j.checkLayout(); err != nil {
		return nil, err
	}
	if err := j.checkValidators(ctx); err != nil {
		return nil, err
	}
	if req.OpenStdin {
		j.stdin = stdio.NewInlet()
		j.request.Streams.Stdin = j.stdin.Program()
	}
	j.result = &sandbox.Result{
		ID: id, Results: []sandbox.Rich{}, Artifacts: []sandbox.Artifact{},
		Isolation: j.plan.Posture, Language: lang.Name, Metadata: spec.Metadata, Profile: cmp.Or(req.Profile, profile),
	}
	return j, nil
}

// profiled is what a request asks for with its profile, if it names one. What the server
// itself asks for needs none.
func (rn *Runner) profiled(ctx context.Context, req Request) (sandbox.Spec, *sandbox.ProfileRef, error) {
	if req.Own {
		return req.Spec, nil, nil
	}
	return rn.policy.Run(ctx, req.Tenant, req.Spec)
}

// network is what a request may reach. What the server asks for itself is the operator's word.
func (rn *Runner) network(ctx context.Context, req Request, n sandbox.Network) (sandbox.Network, error) {
	if req.Own {
		return n, nil
	}
	return rn.policy.Network.Endpoints(ctx, req.Tenant, n)
}

// planSteps says what to do in a machine: its places are in the words of the steps.
func (j *job) planSteps(in driver.Plan) (err error) {
	lang := j.language.At(execution.Places(in))
	j.steps, err = lang.Plan(j.spec.Entrypoint, j.spec.Args, j.spec.Limits, j.runner.planner.Lookup(in.Template))
	return planner.Explain(in.Template, err)
}

// findLanguage takes the language that was named, or the one that the program's
// name or first line tells.
func findLanguage(s sandbox.Spec) (language.Language, error) {
	if s.Language != "" {
		return language.Find(s.Language)
	}
	first := s.Code
	for _, f := range s.Files {
		if f.Path == s.Entrypoint {
			if b, err := f.Bytes(); err == nil {
				first = string(b)
			}
		}
	}
	return language.Detect(s.Entrypoint, []byte(first[:min(len(first), 256)]))
}

// run makes the sandbox, or two when there is something to compile, and fills
// in the result.
func (j *job) run(ctx context.Context) error {
	var made products
	if j.steps.Compile != nil {
		var ok bool
		var err error
		made, ok, err = j.compiled(ctx)
		defer made.close(ctx) //nolint:errcheck // closed and checked in copyTo
		if err != nil || !ok {
			return err
		}
	}
	start := time.Now()
	m, err := j.machine(ctx)
	if err != nil {
		return err
	}
	ended := false
	defer func() {
		if !ended { // a panic: what is in there must not go on
			j.destroy(ctx, m)
		}
	}()
	j.result.Isolation = m.Plan.Posture
	from := j.steps.Dir // where a compile step has put its products
	err = j.move(m.Plan)
	failpoint.Hit("run.machine")
	if err == nil {
		err = j.fill(ctx, m.Session)
	}
	failpoint.Hit("run.filled")
	if err == nil && made != nil {
		err = made.copyTo(ctx, m.Session, from, j.steps.Dir)
	}
	j.result.Timings.CreateMS = execution.Milliseconds(time.Since(start))
	if err == nil {
		err = j.execute(ctx, m.Session)
	}
	ended = true
	return j.end(ctx, m, err)
}

// move has the steps be done in another machine than until now.
func (j *job) move(to driver.Plan) error {
	if to.Places == "" { // all have the same places
		return nil
	}
	return j.planSteps(to)
}

// execute runs the program itself and collects what it made.
func (j *job) execute(ctx context.Context, s *execution.Session) error {
	command := j.command(s, j.steps.Run)
	command.CPUs = j.runner.processors.Take(s.Plan.Processors, s.Plan.Limits.CPUs)
	defer j.runner.processors.Give(command.CPUs)
	j.began = time.Now()
	r, err := s.Run(ctx, execution.Program{
		Command: command, Limits: j.spec.Limits, Streams: j.streams(), Opened: j.opened,
		Warm: j.warm, Handover: j.handover(s.Plan),
	})
	if err != nil {
		return err
	}
	failpoint.Hit("run.executed")
	j.result.Timings.ExecMS = execution.Milliseconds(r.Wall)
	j.fillOutput(r)
	j.judge(r.Evidence(j.spec.Limits))
	j.result.Network = s.Network()
	j.result.Cause = execution.Advise(j.result.Status, j.result.Cause, j.result.Language, j.result.Network, r.Output.Last(wire.Stderr, execution.LastWords))
	if over := r.Death != nil || ctx.Err() != nil; !over { // else nothing can come out any more
		j.readResults(ctx, s)
		j.collect(ctx, s)
		failpoint.Hit("run.collected")
	}
	return nil
}

// streams are the caller's, with the spec's stdin where the caller gave none.
func (j *job) streams() execution.Streams {
	s := j.request.Streams
	if j.holds() {
		s.Stdout, s.Stderr = nil, nil
	}
	if s.Stdin == nil && j.spec.Stdin != "" {
		s.Stdin = strings.NewReader(j.spec.Stdin)
	}
	return s
}

// collect takes the program's files out.
func (j *job) collect(ctx context.Context, s *execution.Session) {
	start := time.Now()
	defer func() {
		j.collected += time.Since(start)
		j.result.Timings.CollectMS = execution.Milliseconds(j.collected)
	}()
	if !j.bringsOut() {
		return
	}
	s.Collect(ctx, execution.Artifacts{
		Patterns: j.spec.Artifacts, Sink: j.sink(), Inputs: j.inputs, Program: j.main, Mounts: j.spec.Mounts, Began: j.began, Gate: j.artifactGate(),
	}, j.result)
}

// command completes a step with the caller's environment and the limits that
// the kernel keeps for each process.
func (j *job) command(s *execution.Session, step language.Step) guest.Command {
	return s.Command(step.Args, step.Env, step.Limits, j.packages.Env(j.spec.Env))
}

// judge writes the verdict into the result.
func (j *job) judge(e verdict.Evidence) {
	r := j.result
	r.Status, r.Cause = verdict.Of(e)
	r.TimedOut = verdict.TimedOut(r.Cause.Kind)
	r.ExitCode, r.Signal = e.Ending()
}
