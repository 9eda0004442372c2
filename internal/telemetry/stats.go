package telemetry

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pinfold/internal/compilecache"
	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// writeStats writes the engine's present counts.
func writeStats(p page, s engine.Stats) {
	p.head(kindGauge, "pinfold_sandboxes", "Living sandboxes, by state.")
	for _, state := range sandbox.States() {
		if state != sandbox.StateEnded {
			p.line("pinfold_sandboxes", labelText([]string{"state"}, []string{string(state)}), float64(s.Living[state]))
		}
	}
	p.single(kindGauge, "pinfold_processes_running", "Processes that run in living sandboxes.", float64(s.Processes))
	p.single(kindGauge, "pinfold_runs_running", "Runs under way.", float64(s.Runs))
	p.single(kindGauge, "pinfold_queue_length", "Requests that wait to be admitted.", float64(s.Waiting))
	p.single(kindGauge, "pinfold_promised_memory_bytes", "Sum of the memory limits of what lives.", float64(s.MemoryBytes))
	p.single(kindGauge, "pinfold_promised_cpus", "Sum of the CPU limits of what lives.", s.CPUs)
	p.single(kindGauge, "pinfold_sandboxes_undestroyed", "Sandboxes whose removal failed and is tried again.", float64(s.Undestroyed))
	draining := 0.0
	if s.Draining {
		draining = 1
	}
	p.single(kindGauge, "pinfold_draining", "1 while the server takes no new work.", draining)
	p.head(kindGauge, "pinfold_capacity", "What is taken on at most.")
	for _, c := range []struct {
		resource string
		v        float64
	}{
		{"cpus", s.Capacity.CPUs},
		{"memory_bytes", float64(s.Capacity.MemoryBytes)},
		{"queue", float64(s.Capacity.Queue)},
		{"runs", float64(s.Capacity.Runs)},
		{"sandboxes", float64(s.Capacity.Sandboxes)},
		{"starts_per_second", s.Capacity.StartsPerSecond},
	} {
		p.line("pinfold_capacity", labelText([]string{"resource"}, []string{c.resource}), c.v)
	}
	writePools(p, s.Pools)
	if s.CompileCache != nil {
		writeCompileCache(p, *s.CompileCache)
	}
}

func writeCompileCache(p page, s compilecache.Stats) {
	p.single(kindCounter, "pinfold_compile_cache_hits_total", "Programs that had been compiled before.", float64(s.Hits))
	p.single(kindCounter, "pinfold_compile_cache_misses_total", "Programs that could have been in the cache and were compiled.", float64(s.Misses))
	p.single(kindCounter, "pinfold_compile_cache_evictions_total", "Entries that made room for others.", float64(s.Evictions))
	p.single(kindCounter, "pinfold_compile_cache_damaged_total", "Entries that did not fit their hash and were dropped.", float64(s.Damaged))
	p.single(kindGauge, "pinfold_compile_cache_entries", "Entries of the compile cache.", float64(s.Entries))
	p.single(kindGauge, "pinfold_compile_cache_bytes", "What they take of the disk.", float64(s.Bytes))
}

// writePools writes pools by name; the operator chooses the names.
func writePools(p page, pools []sandbox.PoolInfo) {
	unique := pools[:0:0]
	seen := map[string]bool{}
	for _, pool := range pools { // the same series twice would spoil the whole page
		if !seen[pool.Name] && len(unique) < maxSeries {
			unique = append(unique, pool)
		}
		seen[pool.Name] = true
	}
	p.head(kindGauge, "pinfold_pool_sandboxes", "Sandboxes of a pool, by state.")
	for _, pool := range unique {
		for _, c := range []struct {
			state string
			v     int
		}{{"available", pool.Available}, {"filling", pool.Filling}, {"in_use", pool.InUse}} {
			p.line("pinfold_pool_sandboxes", labelText([]string{"pool", "state"}, []string{sandbox.SafeText(pool.Name, 60), c.state}), float64(c.v))
		}
	}
	for _, m := range []struct {
		kind, name, help string
		v                func(sandbox.PoolInfo) float64
	}{
		{kindGauge, "pinfold_pool_total", "Sandboxes of a pool, all states together.", func(i sandbox.PoolInfo) float64 { return float64(i.Total) }},
		{kindGauge, "pinfold_pool_min", "Sandboxes that a pool keeps waiting.", func(i sandbox.PoolInfo) float64 { return float64(i.Min) }},
		{kindCounter, "pinfold_pool_hits_total", "Requests that a waiting sandbox of a pool served.", func(i sandbox.PoolInfo) float64 { return float64(i.Hits) }},
		{kindCounter, "pinfold_pool_forked_total", "Requests for which an interpreter was forked at once, because none waited.", func(i sandbox.PoolInfo) float64 { return float64(i.Forked) }},
		{kindCounter, "pinfold_pool_misses_total", "Requests that fitted a pool and that it could not serve.", func(i sandbox.PoolInfo) float64 { return float64(i.Misses) }},
		{kindCounter, "pinfold_pool_replaced_total", "Waiting sandboxes that were no longer well and were replaced.", func(i sandbox.PoolInfo) float64 { return float64(i.Replaced) }},
	} {
		p.head(m.kind, m.name, m.help)
		for _, pool := range unique {
			p.line(m.name, labelText([]string{"pool"}, []string{sandbox.SafeText(pool.Name, 60)}), m.v(pool))
		}
	}
}

// writeProcess writes what Prometheus' own libraries say of every process,
// under their names. What cannot be read is left out.
func writeProcess(p page, started time.Time) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	p.single(kindGauge, "go_goroutines", "Goroutines.", float64(runtime.NumGoroutine()))
	p.single(kindGauge, "go_memstats_heap_alloc_bytes", "Bytes of the heap that are in use.", float64(memory.HeapAlloc))
	p.single(kindCounter, "go_memstats_alloc_bytes_total", "Bytes allocated in all.", float64(memory.TotalAlloc))
	p.single(kindCounter, "go_gc_cycles_total", "Garbage collections.", float64(memory.NumGC))
	p.single(kindGauge, "process_start_time_seconds", "When the process began, in seconds since 1970.", float64(started.UnixMilli())/1000)
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
		cpu := time.Duration(used.Utime.Nano() + used.Stime.Nano())
		p.single(kindCounter, "process_cpu_seconds_total", "CPU time of the process.", cpu.Seconds())
	}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		p.single(kindGauge, "process_open_fds", "Open file descriptors.", float64(len(fds)))
	}
	if statm, err := os.ReadFile("/proc/self/statm"); err == nil { // proc_pid_statm(5): size, resident, …
		if fields := strings.Fields(string(statm)); len(fields) > 1 {
			if pages, err := strconv.ParseFloat(fields[1], 64); err == nil {
				p.single(kindGauge, "process_resident_memory_bytes", "Memory of the process.", pages*float64(os.Getpagesize()))
			}
		}
	}
}
