// Package admission decides what may be asked for and how much of it at once: the
// capacity of the server, each tenant's quota of it, the queue for what does not fit
// yet, and the operator's policy about limits. It knows sandboxes by what they take,
// and makes none.
package admission

import (
	"cmp"
	"runtime"
	"time"
)

// Capacity is what a server takes on at once, for all tenants together. A
// zero field means its default.
type Capacity struct {
	Sandboxes       int           // living at once, those of runs included; default 1024
	Runs            int           // runs at once; default four for each CPU
	MemoryBytes     int64         // the sum of the memory limits; default 4 TiB: limits are seldom used up
	CPUs            float64       // the sum of the CPU limits; default 2048 for each CPU, at least 4 for each sandbox
	StartsPerSecond float64       // default 2000
	Queue           int           // requests that may wait; default 1000
	QueueTimeout    time.Duration // how long one may wait; default 30 s
	Detached        int           // runs of one tenant that nobody waits for, waiting and running; default 100
}

// WithDefaults returns c with its zero fields filled in.
func (c Capacity) WithDefaults() Capacity {
	c.Sandboxes = cmp.Or(c.Sandboxes, 1024)
	c.Runs = cmp.Or(c.Runs, 4*runtime.NumCPU())
	c.MemoryBytes = cmp.Or(c.MemoryBytes, 1<<42)
	c.CPUs = cmp.Or(c.CPUs, max(2048*float64(runtime.NumCPU()), 4*float64(c.Sandboxes))) // what was not given does not end before what was
	c.StartsPerSecond = cmp.Or(c.StartsPerSecond, 2000)
	c.Queue = cmp.Or(c.Queue, 1000)
	c.QueueTimeout = cmp.Or(c.QueueTimeout, 30*time.Second)
	c.Detached = cmp.Or(c.Detached, 100)
	return c
}

// Quota is one tenant's share. A zero field means the whole capacity.
type Quota struct {
	Sandboxes       int     `json:"sandboxes,omitempty"`
	Runs            int     `json:"runs,omitempty"`
	MemoryBytes     int64   `json:"memory_bytes,omitempty"`
	CPUs            float64 `json:"cpus,omitempty"`
	StartsPerSecond float64 `json:"starts_per_second,omitempty"`
}

// Or returns q with its zero fields as in d.
func (q Quota) Or(d Quota) Quota {
	return Quota{
		Sandboxes: cmp.Or(q.Sandboxes, d.Sandboxes), Runs: cmp.Or(q.Runs, d.Runs), MemoryBytes: cmp.Or(q.MemoryBytes, d.MemoryBytes),
		CPUs: cmp.Or(q.CPUs, d.CPUs), StartsPerSecond: cmp.Or(q.StartsPerSecond, d.StartsPerSecond),
	}
}

// bounds returns what a tenant may have at most.
func (q Quota) bounds(c Capacity) Capacity {
	b := c
	lower(&b.Sandboxes, q.Sandboxes)
	lower(&b.Runs, q.Runs)
	lower(&b.MemoryBytes, q.MemoryBytes)
	lower(&b.CPUs, q.CPUs)
	lower(&b.StartsPerSecond, q.StartsPerSecond)
	return b
}

func lower[T int | int64 | float64](field *T, value T) {
	if value > 0 {
		*field = min(*field, value)
	}
}

// Demand is what one sandbox takes.
type Demand struct {
	Run         bool // it counts as a run as well
	MemoryBytes int64
	CPUs        float64
}

// Load is what is taken.
type Load struct {
	Sandboxes, Runs int
	MemoryBytes     int64
	CPUs            float64
}

func (l *Load) add(d Demand, sign int) {
	l.Sandboxes += sign
	if d.Run {
		l.Runs += sign
	}
	l.MemoryBytes += int64(sign) * d.MemoryBytes
	l.CPUs += float64(sign) * d.CPUs
}

// refuses names what a further demand would go beyond, or nothing.
func (l Load) refuses(d Demand, c Capacity) string {
	l.add(d, 1)
	switch {
	case l.Sandboxes > c.Sandboxes:
		return "sandboxes"
	case l.Runs > c.Runs:
		return "runs"
	case l.MemoryBytes > c.MemoryBytes:
		return "memory"
	case l.CPUs > c.CPUs+1e-9:
		return "cpus"
	}
	return ""
}
