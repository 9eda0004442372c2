package runs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pinfold/internal/driver"
	"pinfold/internal/engine/pool"
	"pinfold/internal/language"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// machine gives the job its machine, with an interpreter if one waits for such
// programs.
func (j *job) machine(ctx context.Context) (*pool.Machine, error) {
	r := pool.Request{Tenant: j.request.Tenant, Spec: j.packages.Within(j.spec.Machine()), Driver: j.driver, Plan: j.plan, Modules: j.spec.Warm}
	why := j.mustStart()
	if why == "" {
		r.Language = j.result.Language
	}
	m, cold, err := j.runner.pools.Obtain(ctx, r)
	if err != nil {
		return nil, err
	}
	j.warm, j.result.Warm = m.Interpreter, m.Interpreter != nil
	if m.Interpreter == nil && len(j.spec.Warm) > 0 {
		j.result.ColdBecause = cmp.Or(why, cold)
	}
	return m, nil
}

// mustStart says why no interpreter that waits can take the program, or "": because that is asked for, or because it wants something that an
// interpreter takes from its start only.
func (j *job) mustStart() string {
	l, err := language.Find(j.result.Language)
	switch {
	case err != nil || l.Wait == nil || j.steps.Compile != nil:
		return "the language has none"
	case j.spec.Cold:
		return "a cold start was asked for"
	case len(j.spec.Warm) > 0 && !j.runner.opened.Load():
		return "only a server keeps interpreters that have loaded modules"
	case len(j.spec.Mounts) > 0:
		return "the run has mounts"
	case j.packages != nil:
		return "the run has packages"
	}
	d := sandbox.Limits{DiskBytes: j.spec.Limits.DiskBytes}.WithDefaults()
	for _, of := range [][2]string{{"open_files", "open files"}, {"file_size_bytes", "file size"}} {
		if j.spec.Limits.Get(of[0]) != d.Get(of[0]) {
			return "an interpreter takes the limit of " + of[1] + " from its start"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.spec.Env)) {
		if l.ReadsAtStart(name) {
			return fmt.Sprintf("the variable %s counts from an interpreter's start", sandbox.SafeText(name, 60))
		}
	}
	return ""
}

// handover is what a waiting interpreter is told.
func (j *job) handover(p driver.Plan) zygote.Handover {
	env := p.Env()
	maps.Copy(env, j.spec.Env)
	h := zygote.Handover{File: j.main, Args: j.spec.Args, Env: env, AllowedImports: j.spec.AllowedImports, Results: j.steps.Results != ""}
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
