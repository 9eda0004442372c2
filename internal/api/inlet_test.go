package api

import (
	"testing"
	"time"
)

// A wait that began before somebody looked, and goes on, counts as one since then: pongs
// are not read meanwhile, and a client must not be taken for gone.
func TestInletStalls(t *testing.T) {
	i := newInlet()
	before := i.stalls.Load()
	if !i.put(t.Context(), make([]byte, maxTyped), time.Minute) || i.stalledSince(before) {
		t.Fatal("what fits waits")
	}
	put := make(chan bool)
	go func() { put <- i.put(t.Context(), []byte{1}, time.Minute) }()
	for i.stalls.Load() == before {
		time.Sleep(time.Millisecond)
	}
	if during := i.stalls.Load(); !i.stalledSince(before) || !i.stalledSince(during) {
		t.Error("a wait that goes on is not seen")
	}
	if _, err := i.take(t.Context()); err != nil || !<-put {
		t.Fatal("it does not go on", err)
	}
	if after := i.stalls.Load(); !i.stalledSince(before) || i.stalledSince(after) {
		t.Error("a wait that is over is seen wrongly")
	}
}
