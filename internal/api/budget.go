package api

import "sync"

const (
	// bodyBudget bounds all JSON bodies that are held at a time, in bytes, and
	// the memory for answers likewise: see server.
	bodyBudget = 512 << 20
	// tenantBudget is what one tenant may have of it: its large requests must
	// not keep those of others out, nor its answers that nobody reads.
	tenantBudget = bodyBudget / 4
	// freeBody is how much of a body is not accounted for. Nearly all bodies
	// are smaller, and must not wait behind large ones.
	freeBody = 64 << 10
)

// budget bounds the memory that bodies of all requests take together, or all
// answers. Whoever holds none of it is never refused: each tenant has one body of
// any accepted size, however many are held by others. Its zero value is ready, and
// it is safe for concurrent use.
type budget struct {
	mu      sync.Mutex
	used    int64
	tenants map[string]*tenantBodies
	news    chan struct{} // closed when some was given back; nil while nobody waits
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
	asked  int64 // with what is not accounted for
	over   bool  // it was given back: what is asked for later would stay taken
}

// share begins a body. It must be given back.
func (b *budget) share(tenant string) *bodyShare { return &bodyShare{budget: b, tenant: tenant} }

// growTo asks for memory for a body of that size in all.
func (s *bodyShare) growTo(size int64) bool {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.grow(size)
}

// add asks for more memory.
func (s *bodyShare) add(more int64) bool {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.grow(s.asked + more)
}

func (s *bodyShare) grow(size int64) bool {
	b, more := s.budget, size-s.size
	switch {
	case s.over:
		return false
	case size <= freeBody || more <= 0:
		s.asked = max(s.asked, size)
		return true
	}
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
	s.size, s.asked = size, size
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
	s.over = true
	if t == nil || s.size == 0 {
		return
	}
	if b.news != nil {
		close(b.news)
		b.news = nil
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

// freed is closed when somebody gives something back.
func (b *budget) freed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.news == nil {
		b.news = make(chan struct{})
	}
	return b.news
}
