package bench

import (
	"fmt"
	"math"
	"slices"
)

// aim is one target: what must hold, and where its number is found.
type aim struct {
	group, text string
	// judge returns whether it is reached and what was measured; a value that
	// is not known means that it was not measured.
	judge func(r *Report) (value float64, reached bool, measured string)
}

// Groups of aims, by what they are about.
const (
	groupCold  = "One program, one process, no daemon"
	groupServe = "The server"
	groupWarm  = "Warm interpreters"
	groupNet   = "Declared endpoints"
)

// targets judges every aim.
func targets(r *Report) []Target {
	var all []Target
	for _, a := range aims() {
		t := Target{Group: a.group, Aim: a.text, State: NotMeasured}
		if v, reached, measured := a.judge(r); known(v) {
			t.Measured, t.State = measured, NotReached
			if reached {
				t.State = Reached
			}
		}
		all = append(all, t)
	}
	return all
}

// atMost and atLeast judge one number.
func atMost(limit float64, unit Unit, of func(*Report) float64) func(*Report) (float64, bool, string) {
	return func(r *Report) (float64, bool, string) { v := of(r); return v, v <= limit, unit.Format(v) }
}

func atLeast(limit float64, unit Unit, of func(*Report) float64) func(*Report) (float64, bool, string) {
	return func(r *Report) (float64, bool, string) { v := of(r); return v, v >= limit, unit.Format(v) }
}

// cellOf finds a number of a table.
func cellOf(table, what, key string) func(*Report) float64 {
	return func(r *Report) float64 { return r.Find(table, what, key) }
}

// best finds the server's number: warm where it is, or else plain.
func best(table, key string) func(*Report) float64 {
	return func(r *Report) float64 {
		if v := r.Find(table, serverRunWarm, key); known(v) {
			return v
		}
		return r.Find(table, serverRun, key)
	}
}

// beside divides one contender's median by another's.
func beside(table, a, b string) func(*Report) float64 {
	return func(r *Report) float64 { return over(r.Find(table, a, "median_ms"), r.Find(table, b, "median_ms")) }
}

func aims() []aim {
	return slices.Concat(coldAims(), serveAims(), warmAims(), networkAims())
}

func coldAims() []aim {
	const ours = "pinfold run"
	return []aim{
		{groupCold, "`print(1)` in at most bare python3 + 10 ms", atMost(10, UnitMS, func(r *Report) float64 {
			return r.Find("latency-print", ours, "median_ms") - r.Find("latency-print", bareName, "median_ms")
		})},
		{groupCold, "faster than runc run", atMost(1, UnitTimes, beside("latency-print", ours, "runc run"))},
		{groupCold, "at least 10 × faster than docker run", atLeast(10, UnitTimes, beside("latency-print", "docker run", ours))},
		{groupCold, "a sandbox made, used and removed in at most 6 ms", atMost(6, UnitMS, cellOf("driver", "a whole sandbox", "median_ms"))},
		{groupCold, "an agent of at most 3 MB", atMost(3e6/1024, UnitKB, cellOf("agent", "its executable, one sealed file that all sandboxes share", "kb"))},
		{groupCold, "at most 1.2 MB of the agent's memory unshared", atMost(1.2e6/1024, UnitKB, cellOf("agent", "its unshared memory when idle", "kb"))},
		{groupCold, "the last sandboxes at most 1.2 × the first", atMost(1.2, UnitTimes, cellOf("endurance", "sandboxes", "beside_first"))},
	}
}

func serveAims() []aim {
	return []aim{
		{groupServe, "`POST /v1/runs` of `print(1)` with a warm pool in at most 1.1 × bare python3", atMost(1.1, UnitTimes, best("latency-print", "beside_bare"))},
		{groupServe, "with it at least 0.9 × the throughput of bare python3", atLeast(0.9, UnitTimes, best("throughput-print", "beside_bare"))},
		{groupServe, "the same with `cold`: only the sandbox waits, Python is started for the run: 1.1 ×", atMost(1.1, UnitTimes, cellOf("latency-print", serverRun, "beside_bare"))},
		{groupServe, "the same with `cold`: 0.9 × the throughput", atLeast(0.9, UnitTimes, cellOf("throughput-print", serverRun, "beside_bare"))},
		{groupServe, "a command in a living sandbox in at most 3 ms", atMost(3, UnitMS, cellOf("exec", "pinfold", "median_ms"))},
		{groupServe, "files at 500 MB/s and more, up and down", atLeast(500, UnitSpeed, func(r *Report) float64 {
			return math.Min(r.Find("transfer", "a file up", "median_mb_s"), r.Find("transfer", "a file down", "median_mb_s"))
		})},
		{groupServe, "at most 2 MB unshared for each of many sandboxes", atMost(2e6/1024, UnitKB, func(r *Report) float64 { return lastLevel(r, "sandbox_kb") })},
		{groupServe, "a new sandbox among 1,000 at most 1.3 × one among 1", growth("create_ms")},
		{groupServe, "a command among 1,000 at most 1.3 × one among 1", growth("command_ms")},
	}
}

func warmAims() []aim {
	return []aim{
		{groupWarm, "`POST /v1/runs` of `print(1)` in at most 0.2 × bare python3", atMost(0.2, UnitTimes, best("latency-print", "beside_bare"))},
		{groupWarm, "at least 4.5 × the throughput of bare python3", atLeast(4.5, UnitTimes, best("throughput-print", "beside_bare"))},
		{groupWarm, "importing numpy, pandas and matplotlib.pyplot, warm, in at most 0.015 × bare", atMost(0.015, UnitTimes, cellOf("latency-data", serverRunWarm, "beside_bare"))},
		{groupWarm, "the same at 150 a second and more", atLeast(150, UnitRate, cellOf("throughput-data", serverRunWarm, "per_second"))},
		{groupWarm, "a burst's p99 at most 100 × the single median", atMost(100, UnitTimes, best("burst", "p99_beside_single"))},
		{groupWarm, "of a burst none refused, none lost", atMost(0, UnitCount, func(r *Report) float64 {
			return r.ofBursts("POST", "refused") + r.ofBursts("POST", "lost")
		})},
		{groupWarm, "at most 3 MB unshared for a warm sandbox that waits", atMost(3e6/1024, UnitKB, cellOf("waiting", "a warm Python", "each_kb"))},
		{groupWarm, "a run among 1,000 living sandboxes at most 1.3 × one among 1", growth("run_ms")},
	}
}

func networkAims() []aim {
	const table = "network-requests"
	var all []aim
	for _, k := range []struct {
		what        string
		median, p99 float64
	}{{askPlain, 1, 5}, {askTLS, 1, 5}, {askEnded, 2, 8}} {
		for _, kind := range []string{kindKept, kindNew} {
			row := rowOf(kind, k.what, wayEndpoint)
			all = append(all, aim{groupNet, fmt.Sprintf("%s, %s: a median of at most %.0f ms and a p99 of at most %.0f ms added to a request", k.what, kind, k.median, k.p99), func(r *Report) (float64, bool, string) {
				median, p99 := r.Find(table, row, "added_median_ms"), r.Find(table, row, "added_p99_ms")
				return median + p99, median <= k.median && p99 <= k.p99, UnitMS.Format(median) + " and " + UnitMS.Format(p99)
			}})
		}
	}
	return append(all,
		aim{groupNet, "one connection at 400 MB/s and more, passed through", atLeast(400, UnitSpeed, cellOf("network-stream", askTLS+": "+wayEndpoint, "median_mb_s"))},
		aim{groupNet, "the same without TLS", atLeast(400, UnitSpeed, cellOf("network-stream", askPlain+": "+wayEndpoint, "median_mb_s"))},
		aim{groupNet, "three endpoints cost at most 100 kB more for each of many sandboxes", atMost(1e5/1024, UnitKB, func(r *Report) float64 {
			return math.Max(r.Find("network-memory", boxesPassed, "more_kb"), r.Find("network-memory", boxesEnded, "more_kb"))
		})},
		aim{groupNet, "a warm run with endpoints that it does not use at most 0.3 ms above one with none", atMost(0.3, UnitMS, cellOf("network-unused", runDeclared, "more_ms"))},
	)
}

// fullLevel is the number of living sandboxes that the aims speak of.
const fullLevel = "1000"

// lastLevel is a number among most living sandboxes, if they were enough.
func lastLevel(r *Report, key string) float64 { return r.Find("density", fullLevel, key) }

// growth judges a median among many living sandboxes beside that among one.
func growth(key string) func(*Report) (float64, bool, string) {
	return func(r *Report) (float64, bool, string) {
		first, last := r.Find("density", "1", key), lastLevel(r, key)
		v := over(last, first)
		return v, v <= 1.3, fmt.Sprintf("%s: %s and %s", UnitTimes.Format(v), UnitMS.Format(first), UnitMS.Format(last))
	}
}
