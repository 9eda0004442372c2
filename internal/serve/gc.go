package serve

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapSlack is how much a server may have allocated since the last collection
// before there is another, at least. A server's heap is small, and each run leaves
// some garbage; the default, to collect whenever the heap has doubled, would have
// it collect many times a second.
const heapSlack = 32 << 20

// collectSeldom keeps the slack from now on, unless GOGC says what is wanted.
func collectSeldom() {
	if os.Getenv("GOGC") == "" {
		afterEach()
	}
}

// smallestHeap is what the runtime multiplies by the percentage where less is alive:
// it lets no heap be collected before it has that much at 100 percent. With 3200
// percent, a server of 4 MiB grew to 128 before the first collection.
const smallestHeap = 4 << 20

// afterEach sets the percentage for the heap as it is, and is called again by
// the next collection.
func afterEach() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	percent := 100 * heapSlack / max(live[0].Value.Uint64(), smallestHeap)
	debug.SetGCPercent(int(max(percent, 100))) //nolint:gosec // at most 800
	runtime.AddCleanup(new(*byte), func(struct{}) { afterEach() }, struct{}{})
}
