package pool

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/records"
	"pinfold/internal/language"
	"pinfold/internal/zygote"
	"pinfold/internal/zygote/warm"
	"pinfold/sandbox"
)

// startZygote starts a zygote for a pool's interpreters. The error is a *zygote.UnfitError
// where there can be none.
func (s *Pools) startZygote(ctx context.Context, d driver.Driver, spec sandbox.PoolSpec) (driver.Zygote, error) {
	if d.Abilities().Copier != nil {
		return s.startCopies(ctx, d, spec)
	}
	zygoter := d.Abilities().Zygoter
	if zygoter == nil {
		return nil, &zygote.UnfitError{Why: "this driver has no zygotes"}
	}
	lang, err := language.Find(spec.Language)
	if err != nil {
		return nil, err
	}
	plan, err := s.planner.PlanOn(ctx, d, spec.Machine(), records.NewID(""))
	if err != nil {
		return nil, err
	}
	limits := spec.Limits.WithDefaults()
	step, ok, err := lang.At(execution.Places(plan)).ZygoteStep(spec.Warm, limits, s.planner.Lookup(plan.Template))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, &zygote.UnfitError{Why: "interpreters of this language cannot be forked"}
	}
	z := zygote.Spec{Args: step.Args}
	for _, f := range step.Files {
		z.Files = append(z.Files, zygote.GuestFile{Path: f.Path, Content: f.Content})
	}
	for _, l := range execution.Rlimits(limits) {
		z.Limits = append(z.Limits, zygote.Rlimit{Resource: l.Resource, Value: l.Value})
	}
	if z.Setup, err = json.Marshal(zygote.Modules{Modules: step.Modules}); err != nil {
		return nil, sandbox.Errorf(sandbox.CodeInternal, "encoding a zygote's modules: %w", err)
	}
	z.Env = execution.Environment(plan.User, step.Env)
	z.Home, z.UID, z.GID = plan.User.Home, plan.User.UID, plan.User.GID
	return zygoter.NewZygote(ctx, plan, z)
}

// waiting says how an interpreter is started that waits.
type waiting func(l language.Language, modules []string, limits sandbox.Limits, lookup language.Lookup) (w language.Wait, ok bool, err error)

// startInterpreter starts a pool's interpreter in a fresh machine and waits until it
// has loaded its modules.
func (s *Pools) startInterpreter(ctx context.Context, m *execution.Session, spec sandbox.PoolSpec, how waiting) (*warm.Interpreter, error) {
	ctx, cancel := context.WithTimeout(ctx, warm.LoadTimeout)
	defer cancel()
	lang, err := language.Find(spec.Language)
	if err != nil {
		return nil, err
	}
	step, ok, err := how(lang.At(execution.Places(m.Plan)), spec.Warm, spec.Limits, s.planner.Lookup(m.Plan.Template))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, &zygote.UnfitError{Why: "interpreters of this language cannot be copied while they wait"}
	}
	p := m.Parcel()
	for _, f := range step.Files {
		if err := p.Add(ctx, "", f.Path, 0o644, f.Content); err != nil {
			return nil, err
		}
	}
	if err := p.Send(ctx); err != nil {
		return nil, err
	}
	g, err := m.Agent(ctx)
	if err != nil {
		return nil, err
	}
	limits := spec.Limits.WithDefaults()
	i, err := warm.Start(ctx, g, m.Command(step.Args, step.Env, limits), step.Modules)
	if err != nil && m.LastUsage(ctx).OOMKills > 0 {
		return nil, zygote.TooLittleMemory(limits.MemoryBytes)
	}
	return i, err
}

// fork makes a machine with a child of the pool's zygote in it. ok is false when the pool's
// interpreters cannot be forked here and must be started.
func (p *pool) fork(ctx context.Context, plan driver.Plan) (w *ready, ok bool, err error) {
	f, ok, err := p.zygotes.Fork(ctx, plan)
	if f == nil {
		return nil, ok, err
	}
	if c, ok := f.Machine.(*copied); ok {
		m := execution.Greeted(c.Machine, forkedPlan(plan), c.guest, f.Release)
		return &ready{session: m, interpreter: c.interpreter, forked: f, made: time.Now()}, true, nil
	}
	m := execution.Ungreeted(f.Machine, forkedPlan(plan), f.Release)
	return &ready{session: m, interpreter: warm.Forked(f.Child), forked: f, made: time.Now()}, true, nil
}

// forkedPlan is what is made where a machine's interpreter is a fork or a copy: everything
// that was planned, but for what it has in common with its siblings.
func forkedPlan(plan driver.Plan) driver.Plan {
	i := plan.Posture
	i.Enforced = slices.DeleteFunc(slices.Clone(i.Enforced), func(f string) bool { return f == sandbox.FeatureASLR })
	i.NotEnforced = append(slices.Clone(i.NotEnforced), (sandbox.Gap{
		What: sandbox.FeatureASLR,
		Why:  "the interpreter is a fork or a copy of one that had loaded its modules; such siblings have one address layout and one secret for the hashes of strings",
	}).WithAdvice(sandbox.Advise("%s", sandbox.Set("cold", true))))
	plan.Posture = i
	return plan
}

// interpreterKey is which interpreters can take a program.
type interpreterKey struct {
	language string
	modules  string // sorted, joined by commas
}

func keyOf(lang string, modules []string) interpreterKey {
	sorted := slices.Compact(slices.Sorted(slices.Values(modules)))
	return interpreterKey{lang, strings.Join(sorted, ",")}
}
