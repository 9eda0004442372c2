package engine

import (
	"context"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// notFound is the same for what does not exist and for what is another
// tenant's, so that nobody learns which.
func notFound(what string) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such " + what}
}

// Sandbox finds a living sandbox of a tenant. One that has ended is an error of
// code gone; any other one of code not_found.
func (e *Engine) Sandbox(tenant, id string) (*Sandbox, error) {
	e.mu.Lock()
	s := e.sandboxes[id]
	e.mu.Unlock()
	if s != nil && s.tenant == tenant {
		return s, nil
	}
	if e.options.Store == nil || s != nil {
		return nil, notFound("sandbox")
	}
	info, err := e.recordOf(context.Background(), tenant, id)
	if err != nil {
		return nil, orNotFound(err, "sandbox")
	}
	gone := &Sandbox{info: info}
	return nil, gone.notRunning()
}

func orNotFound(err error, what string) error {
	if sandbox.AsError(err).Code == sandbox.CodeNotFound {
		return notFound(what)
	}
	return sandbox.AsError(err)
}

// SandboxInfo describes a sandbox of a tenant, also one that has ended.
func (e *Engine) SandboxInfo(ctx context.Context, tenant, id string) (sandbox.Info, error) {
	e.mu.Lock()
	s := e.sandboxes[id]
	e.mu.Unlock()
	switch {
	case s != nil && s.tenant == tenant:
		return s.Info(), nil
	case s != nil || e.options.Store == nil:
		return sandbox.Info{}, notFound("sandbox")
	}
	info, err := e.recordOf(ctx, tenant, id)
	if err != nil {
		return info, orNotFound(err, "sandbox")
	}
	return info, nil
}

// recordOf returns what is recorded of a sandbox, or is going to be.
func (e *Engine) recordOf(ctx context.Context, tenant, id string) (sandbox.Info, error) {
	if info, ok := e.unsavedInfo(tenant, id); ok {
		return info, nil
	}
	return e.options.Store.LoadSandbox(ctx, tenant, id)
}

// Sandboxes lists a tenant's sandboxes. Living ones are described as they are now.
func (e *Engine) Sandboxes(ctx context.Context, tenant string, q Query) (Page[sandbox.Info], error) {
	if e.options.Store == nil {
		return e.livingPage(tenant, q), nil
	}
	page, err := e.options.Store.ListSandboxes(ctx, tenant, q)
	if err != nil {
		return page, sandbox.AsError(err)
	}
	for i, info := range page.Items {
		e.mu.Lock()
		s := e.sandboxes[info.ID]
		e.mu.Unlock()
		if s != nil {
			page.Items[i] = s.Info()
		} else if newer, ok := e.unsavedInfo(tenant, info.ID); ok {
			page.Items[i] = newer
		}
	}
	return page, nil
}

// livingPage lists what lives, for an engine without a store.
func (e *Engine) livingPage(tenant string, q Query) Page[sandbox.Info] {
	var page Page[sandbox.Info]
	for _, s := range e.living() {
		info := s.Info()
		if s.tenant == tenant && q.matches(info) {
			page.Items = append(page.Items, info)
		}
	}
	slices.SortFunc(page.Items, func(a, b sandbox.Info) int {
		order := a.CreatedAt.Compare(b.CreatedAt)
		if order == 0 {
			order = strings.Compare(a.ID, b.ID)
		}
		if q.Oldest {
			return order
		}
		return -order
	})
	return page
}

// matches says whether a query selects a sandbox.
func (q Query) matches(info sandbox.Info) bool {
	if len(q.States) > 0 && !slices.Contains(q.States, info.State) {
		return false
	}
	for k, v := range q.Metadata {
		if have, ok := info.Metadata[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// Templates names the templates there are.
func (e *Engine) Templates() []string { return []string{sandbox.TemplateHost} }
