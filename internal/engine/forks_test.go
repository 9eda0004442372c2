package engine

import (
	"testing"
	"time"

	"pinfold/internal/driver"
)

// doing is what a program does at a time of its life: refusals and CPU time each
// second, by how many tasks, and bursts of refusals at whole seconds.
type doing struct {
	rate, burst int64
	cpuMS       int64 // each second
	tasks       int64
}

// What is a flood is decided by the rate of refusals and by what the program does
// meanwhile. The numbers are those of real programs; the clock is the test's.
func TestForkJudge(t *testing.T) {
	const never = 0
	for name, c := range map[string]struct {
		limit int64
		life  []doing // second by second, the last one again and again
		ends  int     // within that many seconds
	}{
		"a shell's fork bomb, whose shells sleep before they try again": {64, []doing{{0, 40, 70, 64}, {0, 61, 50, 64}, {0, 27, 30, 64}, {0, 41, 20, 64}}, 3},
		"the same with more processes":                                  {256, []doing{{0, 199, 240, 250}, {0, 253, 150, 256}, {0, 64, 40, 256}, {0, 194, 60, 256}}, 3},
		"a fork bomb in Python":                                         {64, []doing{{900, 0, 320, 64}}, 3},
		"a fork bomb in C":                                              {64, []doing{{3000, 0, 1000, 64}}, 3},
		"a small one":                                                   {4, []doing{{900, 0, 320, 4}}, 3},
		"one refused thread, then work":                                 {64, []doing{{0, 1, 100, 64}, {0, 0, 1000, 64}}, never},
		"a thousand refused threads, then work":                         {64, []doing{{0, 1000, 300, 64}, {0, 0, 1000, 64}}, never},
		"a thousand refused threads, then waiting":                      {64, []doing{{0, 1000, 300, 64}, {0, 0, 0, 64}}, never},
		"a shell that tries again":                                      {64, []doing{{0, 1, 34, 64}, {0, 1, 1, 64}, {0, 19, 60, 64}, {0, 0, 0, 30}}, never},
		"tries again every tenth of a second":                           {64, []doing{{10, 0, 5, 64}}, never},
		"tries again in a loop while others compute":                    {64, []doing{{100, 0, 1000, 64}}, never},
		"refused although there is room by now":                         {64, []doing{{900, 0, 320, 20}}, never},
		"two floods of a second":                                        {64, []doing{{900, 0, 320, 64}, {0, 0, 0, 20}, {900, 0, 320, 64}, {0, 0, 0, 20}}, never},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []time.Duration{2 * time.Millisecond, slowestReading, latestReading} {
				if got := floodsAfter(c.limit, c.life, step); c.ends == never && got != 0 || c.ends != never && (got == 0 || got > time.Duration(c.ends)*time.Second) {
					t.Errorf("read every %v: ended after %v, want %ds (0: never)", step, got, c.ends)
				}
			}
		})
	}
}

// floodsAfter is the time at which a program is a flood, 0 for never.
func floodsAfter(limit int64, life []doing, step time.Duration) time.Duration {
	var j forkJudge
	var u driver.Usage
	begin := time.Unix(1, 0)
	var rates float64
	second := -1
	for at := step; at < 30*time.Second; at += step {
		l := life[min(int(at/time.Second), len(life)-1)]
		if now := int(at / time.Second); now != second {
			second = now
			rates += float64(l.burst)
		}
		rates += float64(l.rate) * step.Seconds()
		u.ProcessesDenied, u.Processes = int64(rates), l.tasks
		u.CPUNanos += l.cpuMS * int64(step) / 1000
		if j.flood(begin.Add(at), u, limit) {
			return at
		}
	}
	return 0
}

// Where refusals are not counted, a program that stays beyond the limit is ended,
// and one that went back is not.
func TestForkJudgeWithoutCounts(t *testing.T) {
	for _, c := range []struct {
		beyond time.Duration
		want   bool
	}{{time.Second / 2, false}, {10 * time.Second, true}} {
		var j forkJudge
		begin, ended := time.Unix(1, 0), false
		for at := time.Duration(0); at < 5*time.Second; at += 10 * time.Millisecond {
			u := driver.Usage{ProcessesFull: true, ProcessesDenied: 1, Processes: 64}
			if at < c.beyond {
				u.Processes = 66
			}
			ended = ended || j.flood(begin.Add(at), u, 64)
		}
		if ended != c.want {
			t.Errorf("beyond the limit for %v: ended %v", c.beyond, ended)
		}
	}
}
