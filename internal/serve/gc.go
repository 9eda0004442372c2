package serve

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	// heapSlack is how much a server may have allocated since the last collection
	// before there is another, at least. A server's heap is small, and each run leaves
	// some garbage; the default, to collect whenever the heap has doubled, would have
	// it collect many times a second.
	heapSlack = 32 << 20
	// smallestHeap is what the runtime multiplies by the percentage where less is
	// alive: below that it does not collect. With 3200 percent, a server in which 1 MiB
	// was alive grew to 128 MiB before the first collection, and stayed there.
	smallestHeap = 4 << 20
	// quietTime is after how long without a collection there is one more, and all that is
	// free goes back to the host, the slack included: a flood of requests leaves nothing,
	// and who comes next pays some microseconds. By itself the runtime collects a server
	// that does little every two minutes, and keeps the slack.
	quietTime = 10 * time.Second
)

// collector chooses when the heap is collected.
type collector struct {
	after time.Duration
	quiet *time.Timer
	ours  atomic.Bool // the collection under way was made for quiet, and needs no other
}

// collectSeldom keeps the slack from now on, unless GOGC says what is wanted.
func collectSeldom() {
	if os.Getenv("GOGC") == "" {
		newCollector(quietTime).afterEach()
	}
}

func newCollector(quiet time.Duration) *collector {
	c := &collector{after: quiet}
	c.quiet = time.AfterFunc(quiet, func() {
		c.ours.Store(true)
		debug.FreeOSMemory()
	})
	c.quiet.Stop()
	return c
}

// afterEach sets the percentage for the heap as it is, and is called again by
// the next collection.
func (c *collector) afterEach() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	percent := 100 * heapSlack / max(live[0].Value.Uint64(), smallestHeap)
	debug.SetGCPercent(int(max(percent, 100))) //nolint:gosec // at most 800
	if !c.ours.Swap(false) {
		c.quiet.Reset(c.after)
	}
	runtime.AddCleanup(new(*byte), func(struct{}) { c.afterEach() }, struct{}{})
}
