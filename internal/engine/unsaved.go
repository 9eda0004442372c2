package engine

import (
	"context"
	"maps"

	"pinfold/sandbox"
)

// maxUnsaved bounds how many results wait to be recorded. Sandboxes are bounded
// by the capacity while they live, and by this when they have ended.
const maxUnsaved = 10_000

// unsaved is what the store would not take. It is tried again every second;
// meanwhile the engine answers from here, and is not ready.
type unsaved struct {
	sandboxes map[string]OwnedSandbox
	results   map[string]ownedResult
}

type ownedResult struct {
	tenant string
	result *sandbox.Result
}

// saveSandbox records a sandbox now or later.
func (e *Engine) saveSandbox(tenant string, info sandbox.Info) {
	if e.options.Store == nil {
		return
	}
	e.unsavedWrite.RLock() // flushUnsaved must not write an old description after this one
	defer e.unsavedWrite.RUnlock()
	e.trySandbox(tenant, info)
}

func (e *Engine) trySandbox(tenant string, info sandbox.Info) {
	err := e.options.Store.SaveSandbox(context.Background(), tenant, info)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		delete(e.unsaved.sandboxes, info.ID)
		return
	}
	e.log.Error("cannot record a sandbox; it is tried again", "sandbox", info.ID, "state", string(info.State), "error", err)
	if e.unsaved.sandboxes == nil {
		e.unsaved.sandboxes = map[string]OwnedSandbox{}
	}
	if len(e.unsaved.sandboxes) < maxUnsaved {
		e.unsaved.sandboxes[info.ID] = OwnedSandbox{Tenant: tenant, Info: info}
	}
}

// saveResult records a result now or later.
func (e *Engine) saveResult(tenant, id string, r *sandbox.Result) {
	err := e.options.Store.FinishRun(context.Background(), tenant, id, r)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		delete(e.unsaved.results, id)
		return
	}
	e.log.Error("cannot record the result of a run; it is tried again", "run", id, "error", err)
	if e.unsaved.results == nil {
		e.unsaved.results = map[string]ownedResult{}
	}
	if len(e.unsaved.results) < maxUnsaved {
		e.unsaved.results[id] = ownedResult{tenant, r}
	}
}

// flushUnsaved tries again.
func (e *Engine) flushUnsaved() {
	e.mu.Lock()
	sandboxes, results := maps.Clone(e.unsaved.sandboxes), maps.Clone(e.unsaved.results)
	e.mu.Unlock()
	for id := range sandboxes {
		e.flushSandbox(id)
	}
	for id, r := range results {
		e.saveResult(r.tenant, id, r.result)
	}
}

func (e *Engine) flushSandbox(id string) {
	e.unsavedWrite.Lock()
	defer e.unsavedWrite.Unlock()
	e.mu.Lock()
	o, still := e.unsaved.sandboxes[id]
	e.mu.Unlock()
	if still {
		e.trySandbox(o.Tenant, o.Info)
	}
}

// unsavedInfo returns the description of a tenant's sandbox that the store does
// not have yet.
func (e *Engine) unsavedInfo(tenant, id string) (sandbox.Info, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o, ok := e.unsaved.sandboxes[id]
	return o.Info, ok && o.Tenant == tenant
}
