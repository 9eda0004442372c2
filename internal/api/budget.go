package api

import "sync"

const (
	// bodyBudget bounds all JSON bodies that are held at a time, in bytes.
	bodyBudget = 512 << 20
	// tenantBudget is what one tenant may have of it: its large requests must
	// not keep those of others out.
	tenantBudget = bodyBudget / 4
	// freeBody is how much of a body is not accounted for. Nearly all bodies
	// are smaller, and must not wait behind large ones.
	freeBody = 64 << 10
)

// budget bounds the memory that bodies of all requests take together. Whoever
// holds none of it is never refused: each tenant has one body of any accepted
// size, however many are held by others. Its zero value is ready, and it is
// safe for concurrent use.
type budget struct {
	mu      sync.Mutex
	used    int64
	tenants map[string]*tenantBodies
}

// tenantBodies are the bodies of one tenant that are accounted for.
type tenantBodies struct {
	used  int64
	first *bodyShare // the one that is never refused; nil once it was given back
}

// bodyShare is what one body has of the budget.
type bodyShare struct {
	budget *budget
	tenant string
	size   int64 // that is accounted for
}

// share begins a body. It must be given back.
func (b *budget) share(tenant string) *bodyShare { return &bodyShare{budget: b, tenant: tenant} }

// growTo asks for memory for a body of that size in all.
func (s *bodyShare) growTo(size int64) bool {
	more := size - s.size
	if size <= freeBody || more <= 0 {
		return true
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tenants[s.tenant]
	if t == nil {
		if b.tenants == nil {
			b.tenants = map[string]*tenantBodies{}
		}
		t = &tenantBodies{}
		b.tenants[s.tenant] = t
	}
	if t.used == 0 {
		t.first = s
	}
	if t.first != s && (t.used+more > tenantBudget || b.used+more > bodyBudget) {
		return false
	}
	s.size += more
	t.used += more
	b.used += more
	return true
}

// giveBack ends a body. A second time does nothing.
func (s *bodyShare) giveBack() {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tenants[s.tenant]
	if t == nil || s.size == 0 {
		return
	}
	t.used -= s.size
	b.used -= s.size
	s.size = 0
	if t.first == s {
		t.first = nil
	}
	if t.used == 0 {
		delete(b.tenants, s.tenant)
	}
}
