package engine

import (
	"time"

	"pinfold/internal/compilecache"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/living"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// Observer is told what happens, for metrics and traces. Calls come from many
// goroutines and must return quickly.
type Observer interface {
	runs.Observer
	living.Observer
}

// nobody observes nothing.
type nobody struct{}

func (nobody) RunStarted(string)                                   {}
func (nobody) RunFinished(*sandbox.Result)                         {}
func (nobody) SandboxCreated(bool, float64)                        {}
func (nobody) SandboxEnded(sandbox.CauseKind, *sandbox.NetworkUse) {}
func (nobody) Queued(time.Duration)                                {}
func (nobody) Refused(string)                                      {}

// Stats are the engine's counts at one moment.
type Stats struct {
	Living      map[sandbox.State]int // living sandboxes by state
	Processes   int                   // running in living sandboxes
	Runs        int                   // under way
	Waiting     int                   // in the queue
	MemoryBytes int64                 // sum of the memory limits that are promised
	CPUs        float64
	Undestroyed int // sandboxes whose removal failed and is tried again
	Capacity    admission.Capacity
	Pools       []sandbox.PoolInfo
	Draining    bool
	// CompileCache is nil where there is none.
	CompileCache *compilecache.Stats
}

// Stats counts.
func (e *Engine) Stats() Stats {
	used, waiting := e.gate.Counts()
	s := Stats{
		Undestroyed: e.pools.Undestroyed(), Draining: e.draining.Load(), Waiting: waiting, Runs: used.Runs, MemoryBytes: used.MemoryBytes, CPUs: used.CPUs,
		Capacity: e.gate.Capacity(), Pools: e.Pools(),
	}
	if c := e.options.CompileCache; c != nil {
		stats := c.Stats()
		s.CompileCache = &stats
	}
	s.Living, s.Processes = e.Count()
	return s
}
