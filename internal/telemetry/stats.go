package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// statsCollector turns the engine's counts into metrics when they are read.
type statsCollector struct {
	read func() (engine.Stats, bool)
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descLiving      = describe("pinfold_sandboxes", "Living sandboxes, by state.", "state")
	descProcesses   = describe("pinfold_processes_running", "Processes that run in living sandboxes.")
	descRuns        = describe("pinfold_runs_running", "Runs under way.")
	descQueue       = describe("pinfold_queue_length", "Requests that wait to be admitted.")
	descMemory      = describe("pinfold_promised_memory_bytes", "Sum of the memory limits of what lives.")
	descCPUs        = describe("pinfold_promised_cpus", "Sum of the CPU limits of what lives.")
	descUndestroyed = describe("pinfold_sandboxes_undestroyed", "Sandboxes whose removal failed and is tried again.")
	descDraining    = describe("pinfold_draining", "1 while the server takes no new work.")
	descCapacity    = describe("pinfold_capacity", "What is taken on at most.", "resource")
	descPool        = describe("pinfold_pool_sandboxes", "Sandboxes of a pool, by state.", "pool", "state")
	descPoolTotal   = describe("pinfold_pool_total", "Sandboxes of a pool, all states together.", "pool")
	descPoolMin     = describe("pinfold_pool_min", "Sandboxes that a pool keeps waiting.", "pool")
	descPoolHits    = describe("pinfold_pool_hits_total", "Requests that a pool served.", "pool")
	descPoolMisses  = describe("pinfold_pool_misses_total", "Requests that fitted a pool while it was empty.", "pool")
	descPoolSwapped = describe("pinfold_pool_replaced_total", "Waiting sandboxes that were no longer well and were replaced.", "pool")
)

// Describe implements prometheus.Collector.
func (c statsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descLiving, descProcesses, descRuns, descQueue, descMemory, descCPUs, descUndestroyed, descDraining, descCapacity,
		descPool, descPoolTotal, descPoolMin, descPoolHits, descPoolMisses, descPoolSwapped,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c statsCollector) Collect(ch chan<- prometheus.Metric) {
	s, ok := c.read()
	if !ok {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, state := range sandbox.States() {
		if state != sandbox.StateEnded {
			gauge(descLiving, float64(s.Living[state]), string(state))
		}
	}
	gauge(descProcesses, float64(s.Processes))
	gauge(descRuns, float64(s.Runs))
	gauge(descQueue, float64(s.Waiting))
	gauge(descMemory, float64(s.MemoryBytes))
	gauge(descCPUs, s.CPUs)
	gauge(descUndestroyed, float64(s.Undestroyed))
	draining := 0.0
	if s.Draining {
		draining = 1
	}
	gauge(descDraining, draining)
	for resource, v := range map[string]float64{
		"sandboxes": float64(s.Capacity.Sandboxes), "runs": float64(s.Capacity.Runs), "memory_bytes": float64(s.Capacity.MemoryBytes),
		"cpus": s.Capacity.CPUs, "starts_per_second": s.Capacity.StartsPerSecond, "queue": float64(s.Capacity.Queue),
	} {
		gauge(descCapacity, v, resource)
	}
	collectPools(ch, s.Pools)
}

// collectPools reports pools by name; the operator chooses the names.
func collectPools(ch chan<- prometheus.Metric, pools []sandbox.PoolInfo) {
	seen := map[string]bool{}
	for _, p := range pools {
		name := sandbox.SafeText(p.Name, 60)
		if seen[name] {
			continue // the same metric twice would spoil the whole page
		}
		seen[name] = true
		for state, v := range map[string]int{"available": p.Available, "filling": p.Filling, "in_use": p.InUse} {
			ch <- prometheus.MustNewConstMetric(descPool, prometheus.GaugeValue, float64(v), name, state)
		}
		ch <- prometheus.MustNewConstMetric(descPoolTotal, prometheus.GaugeValue, float64(p.Total), name)
		ch <- prometheus.MustNewConstMetric(descPoolMin, prometheus.GaugeValue, float64(p.Min), name)
		ch <- prometheus.MustNewConstMetric(descPoolHits, prometheus.CounterValue, float64(p.Hits), name)
		ch <- prometheus.MustNewConstMetric(descPoolMisses, prometheus.CounterValue, float64(p.Misses), name)
		ch <- prometheus.MustNewConstMetric(descPoolSwapped, prometheus.CounterValue, float64(p.Replaced), name)
	}
}
