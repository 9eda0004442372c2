package serve

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// A server with a small heap grows by the slack until it collects, and no more.
func TestHeapSlack(t *testing.T) {
	old := debug.SetGCPercent(100)
	defer debug.SetGCPercent(old)
	afterEach()
	runtime.GC()
	afterEach()
	samples := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	goal, live := samples[0].Value.Uint64(), samples[1].Value.Uint64()
	if most := max(2*live, live+heapSlack) + 4<<20; goal > most { // stacks and globals count as well
		t.Errorf("with %d bytes alive there is no collection before %d, want %d at most", live, goal, most)
	}
}
