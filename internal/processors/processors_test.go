package processors_test

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pinfold/internal/processors"
)

func TestTake(t *testing.T) {
	var s processors.Shares
	there := []int{2, 3, 5, 7}
	take := func(cpus float64, want ...int) []int {
		t.Helper()
		got := s.Take(there, cpus)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v processors (-want +got):\n%s", cpus, diff)
		}
		return got
	}
	first := take(0.5, 2)
	take(1, 3)
	take(1.5, 5, 7)
	take(1, 2)
	s.Give(first)
	take(3, 3, 5, 7) // each has one; 2, which comes first, has one too
	take(1, 2)       // the one with the fewest, whose turn it is not
	take(4)
	take(100)
	if got := s.Take(nil, 1); got != nil {
		t.Errorf("of none: %v", got)
	}
}

// One after another, they do not all get the same.
func TestTurns(t *testing.T) {
	var s processors.Shares
	seen := map[int]int{}
	for range 30 {
		got := s.Take([]int{4, 0, 9}, 1)
		seen[got[0]]++
		s.Give(got)
	}
	if diff := cmp.Diff(map[int]int{0: 10, 4: 10, 9: 10}, seen); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Many at once: what each has is counted, and all of it is given back.
func TestManyAtOnce(t *testing.T) {
	var s processors.Shares
	there := []int{0, 1, 2, 3}
	held := make([][]int, 4*25)
	var wg sync.WaitGroup
	for i := range held {
		wg.Go(func() { held[i] = s.Take(there, 1) })
	}
	wg.Wait()
	by := map[int]int{}
	for _, h := range held {
		by[h[0]]++
	}
	if diff := cmp.Diff(map[int]int{0: 25, 1: 25, 2: 25, 3: 25}, by); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, h := range held {
		if h[0] != 2 {
			wg.Go(func() { s.Give(h) })
		}
	}
	wg.Wait()
	for range 3 * 25 {
		if got := s.Take(there, 1); got[0] == 2 {
			t.Fatal("another sandbox is put where most are")
		}
	}
}
