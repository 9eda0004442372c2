// Package processors shares out a host's processors among sandboxes, so that each
// may use as many as its limits say.
package processors

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// Shares knows which processors busy sandboxes have. The zero value is ready, and
// safe for concurrent use.
type Shares struct {
	mu   sync.Mutex
	busy map[int]int // by processor: sandboxes that have it
	turn int         // where the next choice begins among those that are alike
}

// Take chooses processors for a sandbox that becomes busy: of those that there are
// the ones that the fewest others have, in turns where several are alike, and the
// first one first. It returns nil, which takes nothing, where the sandbox may use all.
func (s *Shares) Take(there []int, cpus float64) []int {
	n := max(1, int(math.Ceil(cpus)))
	if n >= len(there) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := s.turn % len(there)
	s.turn = begin + n
	inTurn := slices.Concat(there[begin:], there[:begin])
	slices.SortStableFunc(inTurn, func(a, b int) int { return cmp.Compare(s.busy[a], s.busy[b]) })
	taken := slices.Sorted(slices.Values(inTurn[:n]))
	if s.busy == nil {
		s.busy = map[int]int{}
	}
	for _, p := range taken {
		s.busy[p]++
	}
	return taken
}

// Give returns what Take has given, once.
func (s *Shares) Give(taken []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range taken {
		if s.busy[p]--; s.busy[p] == 0 {
			delete(s.busy, p)
		}
	}
}
