package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"pinfold/internal/language"
	"pinfold/sandbox"
)

// Pools that are made because a request asked for modules.
const (
	maxAsked   = 8
	askedMin   = 2
	askedIdle  = 10 * time.Minute
	askedCheck = time.Minute
)

// machine gives the job its machine, with an interpreter if one waits for such
// programs.
func (j *job) machine(ctx context.Context) (*session, *pool, error) {
	plain := len(j.spec.Mounts) == 0
	if key, ok := j.warmKey(); ok && plain {
		fresh := slices.Contains(j.spec.Require, sandbox.FeatureASLR)
		w, p := j.engine.takeWarm(ctx, j.driver, j.plan, key, fresh)
		if w == nil && len(j.spec.Warm) > 0 && !fresh {
			of := shapeOf(j.plan.Template, j.driver.Name(), j.plan.Limits)
			of.interpreter = key
			j.engine.keepWarm(j.spec, of)
			w, p = j.engine.awaitWarm(ctx, j.plan, of)
		}
		if w != nil {
			j.warm, j.result.Warm = w.interpreter, true
			if w.interpreter.forked {
				j.result.Isolation = forkedPosture(j.result.Isolation)
			}
			return w.session, p, nil
		}
	}
	return j.engine.machine(ctx, j.driver, j.plan, plain)
}

// forkedPosture is what is enforced for a fork: everything, but for what it has
// in common with its siblings.
func forkedPosture(i sandbox.Isolation) sandbox.Isolation {
	i.Enforced = slices.DeleteFunc(slices.Clone(i.Enforced), func(f string) bool { return f == sandbox.FeatureASLR })
	i.NotEnforced = append(slices.Clone(i.NotEnforced), sandbox.Gap{
		What: sandbox.FeatureASLR,
		Why:  "the interpreter was forked from one that had loaded its modules; such siblings have one address layout and one secret for the hashes of strings",
		Fix:  "--cold",
	})
	return i
}

// warmKey says which interpreters can take the program. ok is false when it
// must be started: because it is asked for, or because it wants something that
// an interpreter takes from its start only.
func (j *job) warmKey() (key warmKey, ok bool) {
	l, err := language.Find(j.result.Language)
	if err != nil || l.Wait == nil || j.spec.Cold || j.steps.Compile != nil {
		return key, false
	}
	d := sandbox.Limits{DiskBytes: j.spec.Limits.DiskBytes}.WithDefaults()
	if j.spec.Limits.OpenFiles != d.OpenFiles || j.spec.Limits.FileSizeBytes != d.FileSizeBytes {
		return key, false
	}
	for name := range j.spec.Env {
		for _, prefix := range []string{"PYTHON", "NODE_", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_"} {
			if strings.HasPrefix(name, prefix) {
				return key, false
			}
		}
	}
	return keyOf(l.Name, j.spec.Warm), true
}

// handover is what a waiting interpreter is told.
func (j *job) handover() handover {
	h := handover{File: j.main, Args: j.spec.Args, Env: j.spec.Env, AllowedImports: j.spec.AllowedImports, Results: j.steps.Results != ""}
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

// keepWarm begins to keep interpreters with the modules that a request asked
// for, so that the next one finds one.
func (e *Engine) keepWarm(spec sandbox.Spec, of shape) {
	name := askedName(of)
	if !e.opened.Load() || !e.reserve(name) {
		return
	}
	limits := spec.Limits
	e.background.Go(func() {
		p := sandbox.PoolSpec{
			Name: name, Template: spec.Template, Driver: spec.Driver, Language: of.interpreter.language, Warm: spec.Warm, Min: askedMin,
			Limits: sandbox.Limits{
				MemoryBytes: limits.MemoryBytes, CPUs: limits.CPUs, Processes: limits.Processes,
				DiskBytes: limits.DiskBytes, Inodes: limits.Inodes,
			},
		}
		_, err := e.SetPool(context.Background(), p)
		e.mu.Lock()
		e.asked[name] = false
		e.mu.Unlock()
		if err != nil {
			e.log.Warn("cannot keep interpreters warm", "modules", of.interpreter.modules, "error", err)
		} else {
			e.dropWhenIdle(name)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.asked, name)
	})
}

// askedName names the pool for such requests. Two shapes have two pools: a name
// that they shared would keep one of them waiting for a pool that never comes.
func askedName(of shape) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%+v", of))
	return "asked-" + hex.EncodeToString(sum[:6])
}

// reserve takes one of the places for pools that requests ask for. It says no
// when there is none, or when the pool is there or being made.
func (e *Engine) reserve(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, taken := e.asked[name]; taken || len(e.asked) >= maxAsked {
		return false
	}
	e.asked[name] = true
	return true
}

// dropWhenIdle removes a pool that was made for a request when nobody has used
// it for long, or when it cannot be filled.
func (e *Engine) dropWhenIdle(name string) {
	ticker := time.NewTicker(askedCheck)
	defer ticker.Stop()
	uses, since := int64(-1), time.Now()
	for {
		select {
		case <-e.quit:
			return
		case <-ticker.C:
		}
		pools := e.Pools()
		if !slices.ContainsFunc(pools, func(p sandbox.PoolInfo) bool { return p.Name == name }) {
			return // somebody has removed it
		}
		for _, p := range pools {
			if p.Name != name {
				continue
			}
			if used := p.Hits + p.Misses; used != uses {
				uses, since = used, time.Now()
			}
			if time.Since(since) > askedIdle || p.Error != nil && p.Available == 0 {
				_ = e.RemovePool(context.Background(), name) // somebody else may have
				return
			}
		}
	}
}
