package bench

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// inFlight is how many sandboxes the endurance test keeps at a time.
const inFlight = 32

// endurance makes and destroys many sandboxes in this process and compares what
// it holds before and after.
func (s *session) endurance() error {
	total := 1000
	switch {
	case s.o.Quick:
		total = 100
	case s.o.Long:
		total = 10_000
	}
	sec, done := s.section("endurance", fmt.Sprintf("Endurance: %d sandboxes created and destroyed, %d at a time", total, inFlight), "The driver alone, in one process.")
	defer done()
	return s.withMaker(sec, func(m *maker) error { return s.endure(sec, m, total) })
}

func (s *session) endure(sec *Section, m *maker, total int) error {
	if _, _, err := m.many(s.ctx, 2*inFlight, inFlight); err != nil { // threads and pools reach their size
		return err
	}
	before := held()
	took, span, err := m.many(s.ctx, total, inFlight)
	if err != nil {
		return err
	}
	after := heldLater(before)
	part := min(1000, len(took)/4)
	first, last := took[:part].median(), took[len(took)-part:].median()
	t := &Table{ID: "endurance", First: "what", Columns: []Column{
		{"per_second", "per second", UnitRate},
		{"first_ms", fmt.Sprintf("median of the first %d", part), UnitMS},
		{"last_ms", fmt.Sprintf("of the last %d", part), UnitMS},
		{"beside_first", "last beside first", UnitTimes},
	}}
	t.Add("sandboxes", "", float64(total)/span.Seconds(), ms(first), ms(last), over(ms(last), ms(first)))
	sec.Tables = append(sec.Tables, t)
	if !maps.Equal(before, after) {
		return fmt.Errorf("something is left: %s before, %s after", counts(before), counts(after))
	}
	sec.Note("nothing is left; there are as many as before of these: %s", counts(before))
	return nil
}

// counts are numbers of things in words.
func counts(n map[string]int) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(n)) {
		all = append(all, fmt.Sprintf("%s %d", what, n[what]))
	}
	return strings.Join(all, ", ")
}

// heldLater waits for what the kernel frees late.
func heldLater(want map[string]int) map[string]int {
	got := held()
	for deadline := time.Now().Add(10 * time.Second); !maps.Equal(want, got) && time.Now().Before(deadline); got = held() {
		runtime.GC()
		time.Sleep(100 * time.Millisecond)
	}
	return got
}

// held counts what this process could have kept of a sandbox.
func held() map[string]int {
	count := map[string]int{"goroutines": runtime.NumGoroutine(), "children": len(children(os.Getpid()))}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		count["descriptors"] = len(fds)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		count["mounts"] = strings.Count(string(mounts), "\n")
	}
	return count
}
