package serve

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// A server with a small heap grows by the slack until it collects, and no more.
func TestHeapSlack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	c := newCollector(time.Hour)
	runtime.GC()
	c.afterEach()
	samples := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	goal, live := samples[0].Value.Uint64(), samples[1].Value.Uint64()
	if most := max(2*live, live+heapSlack) + 4<<20; goal > most { // stacks and globals count as well
		t.Errorf("with %d bytes alive there is no collection before %d, want %d at most", live, goal, most)
	}
}

// A server in which nothing happens any more collects once, and then no more.
func TestQuietServersCollectOnce(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	c := newCollector(time.Millisecond)
	collections := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumGC
	}
	before := collections()
	c.afterEach()
	for collections() == before { // the test's own timeout bounds it
		time.Sleep(time.Millisecond)
	}
	for c.ours.Load() { // until its end has been heard of
		time.Sleep(time.Millisecond)
	}
	if c.quiet.Stop() {
		t.Error("a collection for quiet is followed by another one")
	}
}
