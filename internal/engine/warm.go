package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pinfold/internal/driver"
	"pinfold/internal/engine/execution"
	"pinfold/internal/language"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// machine gives the job its machine, with an interpreter if one waits for such
// programs.
func (j *job) machine(ctx context.Context) (*execution.Session, *pool, error) {
	w, p, why := j.interpreter(ctx)
	if w == nil {
		if len(j.spec.Warm) > 0 {
			j.result.ColdBecause = why
		}
		return j.engine.machine(ctx, j.driver, j.plan, len(j.spec.Mounts) == 0, j.spec.Require)
	}
	j.warm, j.result.Warm = w.interpreter, true
	return w.session, p, nil
}

// interpreter takes an interpreter that waits, or comes at once. Where none does,
// why says so.
func (j *job) interpreter(ctx context.Context) (w *readyMachine, p *pool, why string) {
	key, why := j.warmKey()
	if why != "" {
		return nil, nil, why
	}
	of := shapeOf(j.plan.Template, j.driver.Name(), j.plan.Limits)
	of.interpreter = key
	fresh := forkedPlan(j.plan).Meets(j.spec.Require) != nil // no fork will do
	if w, p = j.engine.takeWarm(ctx, of, j.plan, j.spec.Require); w == nil && len(j.spec.Warm) > 0 && !fresh {
		j.engine.keepWarm(j.request.Tenant, j.spec, of)
		w, p = j.engine.awaitWarm(ctx, j.plan, of, j.spec.Require)
	}
	if w != nil {
		return w, p, ""
	}
	pools := j.engine.poolsOf(of)
	missed(pools)
	return nil, nil, whyNone(pools, fresh)
}

// whyNone says why none of the pools of a shape had an interpreter.
func whyNone(pools []*pool, fresh bool) string {
	if len(pools) == 0 {
		return "no pool has these modules, and all places for pools that requests ask for are taken"
	}
	why := "they were not loaded in time"
	for _, p := range pools {
		switch info := p.info(); {
		case fresh && info.Interpreters == "forked":
			return sandbox.FeatureASLR + " is required, and interpreters with these modules are forked"
		case info.Error != nil && (info.Error.Code == sandbox.CodeSpecInvalid || info.Error.Code == sandbox.CodeLimitInvalid):
			why = info.Error.Message // about the modules; what went wrong on the host is not for everybody
		case info.Error != nil:
			why = "their pool cannot be filled at the moment"
		case info.Max > 0 && info.InUse >= info.Max:
			why = "all that their pool may have are in use"
		}
	}
	return why
}

// forkedPlan is what is made where a machine's program comes by a fork: everything
// that was planned, but for what a fork has in common with its siblings.
func forkedPlan(plan driver.Plan) driver.Plan {
	i := plan.Posture
	i.Enforced = slices.DeleteFunc(slices.Clone(i.Enforced), func(f string) bool { return f == sandbox.FeatureASLR })
	i.NotEnforced = append(slices.Clone(i.NotEnforced), (sandbox.Gap{
		What: sandbox.FeatureASLR,
		Why:  "the interpreter was forked from one that had loaded its modules; such siblings have one address layout and one secret for the hashes of strings",
	}).WithAdvice(sandbox.Advise("%s", sandbox.Set("cold", true))))
	plan.Posture = i
	return plan
}

// warmKey is which interpreters can take a program.
type warmKey struct {
	language string
	modules  string // sorted, joined by commas
}

func keyOf(lang string, modules []string) warmKey {
	sorted := slices.Compact(slices.Sorted(slices.Values(modules)))
	return warmKey{lang, strings.Join(sorted, ",")}
}

// warmKey says which interpreters can take the program, or why it must be
// started: because that is asked for, or because it wants something that an
// interpreter takes from its start only.
func (j *job) warmKey() (key warmKey, why string) {
	l, err := language.Find(j.result.Language)
	switch {
	case err != nil || l.Wait == nil || j.steps.Compile != nil:
		return key, "the language has none"
	case j.spec.Cold:
		return key, "a cold start was asked for"
	case len(j.spec.Warm) > 0 && !j.engine.opened.Load():
		return key, "only a server keeps interpreters that have loaded modules"
	case len(j.spec.Mounts) > 0:
		return key, "the run has mounts"
	}
	d := sandbox.Limits{DiskBytes: j.spec.Limits.DiskBytes}.WithDefaults()
	for _, of := range [][2]string{{"open_files", "open files"}, {"file_size_bytes", "file size"}} {
		if j.spec.Limits.Get(of[0]) != d.Get(of[0]) {
			return key, "an interpreter takes the limit of " + of[1] + " from its start"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.spec.Env)) {
		if l.ReadsAtStart(name) {
			return key, fmt.Sprintf("the variable %s counts from an interpreter's start", sandbox.SafeText(name, 60))
		}
	}
	return keyOf(l.Name, j.spec.Warm), ""
}

// handover is what a waiting interpreter is told.
func (j *job) handover() zygote.Handover {
	h := zygote.Handover{File: j.main, Args: j.spec.Args, Env: j.spec.Env, AllowedImports: j.spec.AllowedImports, Results: j.steps.Results != ""}
	if j.codeInHandover() {
		h.Code = &j.spec.Code
	}
	return h
}

// maxHandoverCode bounds a program that is handed over with the rest; a larger
// one goes as a file before.
const maxHandoverCode = 256 << 10

// codeInHandover says whether the waiting interpreter writes the program's file
// itself, which saves a journey to the agent.
func (j *job) codeInHandover() bool {
	return j.warm != nil && j.spec.Code != "" && len(j.spec.Code) <= maxHandoverCode && !strings.Contains(j.main, "/") &&
		j.spec.Limits.WithDefaults().DiskBytes >= 2*maxHandoverCode
}
