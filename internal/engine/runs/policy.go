package runs

import (
	"cmp"
	"context"
	"slices"

	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/internal/policy"
	"pinfold/sandbox"
)

// rulesFor is the operator's policy for a request, with what the profile that it names adds, or
// nil.
func (rn *Runner) rulesFor(req Request) (rules *policy.Policy) {
	if req.Own {
		return nil
	}
	if rn.rules != nil {
		rules = rn.rules()
	}
	return rules.With(rn.policy.Profiles.Rule(req.Spec.Profile))
}

// facts are what rules look at of the job.
func (j *job) facts(ctx context.Context) policy.Facts {
	s := j.spec
	inputs := len(j.request.Inputs) > 0 || s.Stdin != "" || j.request.Streams.Stdin != nil || j.request.OpenStdin || !s.Packages.Empty() ||
		slices.ContainsFunc(s.Files, func(f sandbox.File) bool { return f.Path != s.Entrypoint })
	named := s.Profile
	if p := j.request.Profile; p != nil {
		named = p.Name
	}
	return policy.Facts{
		Kind: sandbox.PolicyRun, Tenant: j.request.Tenant, Key: records.KeyOf(ctx), Language: j.language.Name, Isolation: j.least(),
		Endpoints: s.Network.Endpoints, Limits: s.Limits, Mounts: len(s.Mounts) > 0, Inputs: inputs, Profile: named,
	}
}

// least is the least level of isolation that the request asks for.
func (j *job) least() string {
	if j.spec.Driver != sandbox.DriverAuto {
		return cmp.Or(j.spec.Isolation, j.runner.level(j.spec.Driver), sandbox.LevelNamespace)
	}
	return cmp.Or(j.spec.Isolation, sandbox.LevelNamespace)
}

// govern scans the program where the request or a rule wants that, and does what the
// operator's rules say. It comes before the job has room, since a scan takes some of its
// own and a person takes time. After an error nothing is run.
func (j *job) govern(ctx context.Context) error {
	rules, facts := j.rules, j.facts(ctx)
	if g := j.request.Spec.Gate; !rules.Empty() && g != nil && len(g.Validators) > 0 {
		return &sandbox.Error{
			Code: sandbox.CodePolicyRefused, Field: "gate.validators", Message: "the operator's rules are about one program, and no rule looks at what judges its output",
			Hint: `leave out "validators"; those of the operator's configuration hold`,
		}
	}
	looks := rules.Looks(facts)
	if j.spec.Scan || looks {
		if err := j.look(ctx); err != nil {
			if !looks || ctx.Err() != nil || admission.IsBusy(err) {
				return err
			}
			// What nobody could look at is taken to be the worst.
			j.runner.log.Warn("a program that a rule is about could not be scanned", "run", j.result.ID, "error", err)
			j.result.Findings, j.result.FindingsUnread = []sandbox.Finding{}, "could not be scanned: "+sandbox.AsError(err).Message
		}
		facts.Seen = policy.SeenIn(j.result)
	}
	o := rules.Judge(facts, policy.Asked{Isolation: j.spec.Isolation, Least: j.least(), Network: j.spec.Network, Limits: j.spec.Limits})
	j.result.Policy = o.Result
	if o.Refused != nil {
		return o.Refused
	}
	if o.Changed {
		j.spec.Isolation, j.spec.Network, j.spec.Limits = o.Asked.Isolation, o.Asked.Network, o.Asked.Limits
		if l := j.runner.level(j.spec.Driver); j.spec.Driver != sandbox.DriverAuto && !sandbox.LevelAtLeast(l, o.Asked.Isolation) {
			j.spec.Driver = sandbox.DriverAuto // the one that was named is too weak
		}
		if err := j.planAgain(ctx); err != nil {
			return err
		}
	}
	if len(o.Asks) == 0 {
		return nil
	}
	shown := j.runner.level(j.plan.Posture.Driver)
	if err := j.approved(ctx, rules); err != nil {
		return err
	}
	if !sandbox.LevelAtLeast(j.spec.Isolation, shown) {
		j.spec.Isolation = shown // nobody has approved a weaker one
	}
	return j.planAgain(ctx) // the host may be another by now
}

// planAgain plans the machine for what the job asks for now.
func (j *job) planAgain(ctx context.Context) error {
	p, err := j.runner.plan(ctx, j.request.Tenant, j.spec, j.plan.ID)
	if err != nil {
		return err
	}
	j.planned, j.result.Isolation = p, p.plan.Posture
	return j.planSteps(p.plan)
}

// TryPolicy says what a policy would have done to the last runs of all tenants.
func (rn *Runner) TryPolicy(ctx context.Context, p *policy.Policy, last int) (sandbox.PolicyReport, error) {
	if rn.records == nil {
		return p.Try(nil), nil
	}
	past, err := rn.records.LastRuns(ctx, last)
	if err != nil {
		return sandbox.PolicyReport{}, sandbox.AsError(err)
	}
	return p.Try(past), nil
}
