package verdict

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
		"few shells, that all sleep for 1, 2 and 4 seconds": {32, []doing{
			{0, 20, 30, 32}, {0, 31, 20, 32}, {0, 0, 2, 32}, {0, 31, 20, 32}, {0, 0, 2, 32}, {0, 0, 2, 32}, {0, 0, 2, 32}, {0, 31, 20, 32},
		}, 8},
		"few shells, of which some try while the others sleep": {32, []doing{
			{0, 29, 30, 35}, {0, 31, 20, 36}, {0, 6, 5, 36}, {0, 6, 5, 36}, {0, 25, 10, 36}, {0, 6, 5, 36}, {0, 0, 2, 36}, {0, 25, 20, 36}, {0, 6, 5, 36}, {0, 0, 2, 36},
		}, 8},
		"threads that are refused at once, and again after five seconds": {32, []doing{
			{0, 100, 30, 32}, {0, 0, 2, 32}, {0, 0, 2, 32}, {0, 0, 2, 32}, {0, 0, 2, 32}, {0, 0, 2, 32}, {0, 100, 30, 32}, {0, 0, 2, 32},
		}, never},
		"threads that are refused, and now and then another one": {32, []doing{
			{0, 100, 30, 32}, {0, 50, 30, 32}, {0, 0, 2, 32}, {0, 1, 2, 32}, {0, 0, 2, 32}, {0, 1, 2, 32}, {0, 0, 2, 32},
		}, never},
		"few that compute, and try again": {32, []doing{
			{0, 20, 30, 32}, {0, 31, 20, 32}, {0, 0, 500, 32}, {0, 31, 20, 32}, {0, 0, 500, 32}, {0, 31, 20, 32}, {0, 0, 500, 32},
		}, never},
		"a fork bomb in Python":                    {64, []doing{{900, 0, 320, 64}}, 3},
		"a fork bomb in C":                         {64, []doing{{3000, 0, 1000, 64}}, 3},
		"a small one":                              {4, []doing{{900, 0, 320, 4}}, 3},
		"one refused thread, then work":            {64, []doing{{0, 1, 100, 64}, {0, 0, 1000, 64}}, never},
		"a thousand refused threads, then work":    {64, []doing{{0, 1000, 300, 64}, {0, 0, 1000, 64}}, never},
		"a thousand refused threads, then waiting": {64, []doing{{0, 1000, 300, 64}, {0, 0, 0, 64}}, never},
		"a thousand in a second and a half, on a busy host, then waiting": {64, []doing{{700, 0, 200, 64}, {0, 300, 100, 64}, {0, 0, 0, 64}}, never},
		"a shell that tries again":                   {64, []doing{{0, 1, 34, 64}, {0, 1, 1, 64}, {0, 19, 60, 64}, {0, 0, 0, 30}}, never},
		"tries again every tenth of a second":        {64, []doing{{10, 0, 5, 64}}, never},
		"tries again in a loop while others compute": {64, []doing{{100, 0, 1000, 64}}, never},
		"refused although there is room by now":      {64, []doing{{900, 0, 320, 20}}, never},
		"two floods of a second":                     {64, []doing{{900, 0, 320, 64}, {0, 0, 0, 20}, {900, 0, 320, 64}, {0, 0, 0, 20}}, never},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []time.Duration{2 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond} {
				if got := floodsAfter(c.limit, c.life, step); c.ends == never && got != 0 || c.ends != never && (got == 0 || got > time.Duration(c.ends)*time.Second) {
					t.Errorf("read every %v: ended after %v, want %ds (0: never)", step, got, c.ends)
				}
			}
		})
	}
}

// What a program leaves behind is judged by what it does then, and not by what the
// program was refused while it ran. The numbers of floods are those of real ones.
func TestForksOfWhatIsLeftBehind(t *testing.T) {
	at := func(refused, tasks, cpuMS int64) driver.Usage {
		return driver.Usage{ProcessesDenied: refused, Processes: tasks, CPUNanos: cpuMS * 1e6}
	}
	for name, c := range map[string]struct {
		before, soon, now driver.Usage
		want              bool
	}{
		"a shell's fork bomb whose first shell has gone":     {at(0, 1, 2), at(0, 20, 4), at(37, 37, 30), true},
		"the same, most of it before we looked":              {at(0, 1, 2), at(36, 64, 25), at(37, 37, 30), true},
		"one whose shells all try again":                     {at(50, 64, 50), at(60, 64, 60), at(308, 63, 295), true},
		"one in Python":                                      {at(40, 64, 50), at(45, 64, 60), at(1100, 64, 500), true},
		"a thousand refused before, and one child":           {at(1000, 2, 300), at(1000, 1, 300), at(1000, 1, 300), false},
		"a thousand refused before, and sixty children":      {at(1000, 61, 300), at(1000, 60, 300), at(1000, 60, 300), false},
		"a thousand refused just before the end, and sixty":  {at(10, 61, 300), at(1000, 60, 300), at(1000, 60, 300), false},
		"a thousand refused, the last ones just at the end":  {at(900, 2, 300), at(990, 2, 310), at(1000, 1, 310), false},
		"children that are refused now and then":             {at(16, 64, 300), at(16, 64, 300), at(20, 64, 310), false},
		"as many as may be, that compute and are refused":    {at(0, 64, 10), at(0, 64, 10), at(20, 64, 510), false},
		"refusals are not counted, and it is in its limit":   {at(1, 66, 0), at(1, 66, 0), driver.Usage{ProcessesFull: true, ProcessesDenied: 1, Processes: 60}, false},
		"refusals are not counted, and it is beyond a limit": {at(1, 66, 0), at(1, 66, 0), driver.Usage{ProcessesFull: true, ProcessesDenied: 1, Processes: 200}, true},
	} {
		if got := LeftFlood(c.before, c.soon, c.now, 64); got != c.want {
			t.Errorf("%s: a flood %v", name, got)
		}
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
		if j.flood(begin.Add(at), u, limit, nil) {
			return at
		}
	}
	return 0
}

// tasksOf are the CPU times of tasks.
type tasksOf []taskTime

func (t tasksOf) EachTask(visit func(task int, cpu, system int64)) {
	for i, used := range t {
		visit(i+1, used.cpu, used.system)
	}
}

// A process that asks again and again for others, which work or wait, is left alone; as
// many refusals of many tasks are a flood. The numbers are those of real programs.
func TestForksOfOneTaskAreNoFlood(t *testing.T) {
	const limit, never = 64, 0
	for name, c := range map[string]struct {
		rate        int64    // refusals a second; below 0: they are not counted
		first, rest taskTime // what the first task uses in a second, and each of the others
		ends        bool
	}{
		"a pool's first process, which asks every 50 ms":                 {20, taskTime{8e6, 6e6}, taskTime{}, false},
		"the same, every 10 ms":                                          {95, taskTime{40e6, 30e6}, taskTime{}, false},
		"every 50 ms, and the others look now and then if there is work": {20, taskTime{8e6, 6e6}, taskTime{8e4, 0}, false},
		"one that waits for nothing":                                     {3000, taskTime{900e6, 800e6}, taskTime{}, true},
		"a shell's fork bomb":                                            {50, taskTime{1e6, 0}, taskTime{1e6, 0}, true},
		"a fork bomb in Python":                                          {900, taskTime{15e6, 12e6}, taskTime{15e6, 12e6}, true},
		"not counted: threads that sleep":                                {-1, taskTime{}, taskTime{}, false},
		"not counted: threads that compute":                              {-1, taskTime{30e6, 0}, taskTime{30e6, 0}, false},
		"not counted: a shell's fork bomb":                               {-1, taskTime{2e5, 0}, taskTime{2e5, 0}, true},
		"not counted: a fork bomb in Python":                             {-1, taskTime{30e6, 20e6}, taskTime{30e6, 20e6}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var j forkJudge
			begin, ended := time.Unix(1, 0), time.Duration(never)
			for at := 50 * time.Millisecond; at < 10*time.Second && ended == never; at += 50 * time.Millisecond {
				used := make(tasksOf, limit)
				u := driver.Usage{Processes: limit, ProcessesDenied: int64(float64(c.rate) * at.Seconds())}
				if c.rate < 0 {
					u.Processes, u.ProcessesDenied, u.ProcessesFull = limit+2, 1, true
				}
				for i := range used {
					second := c.rest
					if i == 0 {
						second = c.first
					}
					used[i] = taskTime{int64(float64(second.cpu) * at.Seconds()), int64(float64(second.system) * at.Seconds())}
					u.CPUNanos += used[i].cpu
				}
				if j.flood(begin.Add(at), u, limit, used) {
					ended = at
				}
			}
			if (ended != never) != c.ends || ended > 4*time.Second {
				t.Errorf("ended after %v, 0: never", ended)
			}
		})
	}
}

// Where neither refusals are counted nor tasks are seen, a program that stays beyond the
// limit and works is ended, and one that went back or waits is not.
func TestForkJudgeWithoutCounts(t *testing.T) {
	for _, c := range []struct {
		beyond time.Duration
		cpu    float64 // of one
		want   bool
	}{{time.Second / 2, 0.3, false}, {10 * time.Second, 0.3, true}, {10 * time.Second, 0.02, false}} {
		var j forkJudge
		begin, ended := time.Unix(1, 0), false
		for at := time.Duration(0); at < 5*time.Second; at += 10 * time.Millisecond {
			u := driver.Usage{ProcessesFull: true, ProcessesDenied: 1, Processes: 64, CPUNanos: int64(c.cpu * float64(at))}
			if at < c.beyond {
				u.Processes = 66
			}
			ended = ended || j.flood(begin.Add(at), u, 64, nil)
		}
		if ended != c.want {
			t.Errorf("beyond the limit for %v, with %v of a CPU: ended %v", c.beyond, c.cpu, ended)
		}
	}
}

// Shells that sleep for seconds between their tries are seen whenever they try.
func TestForkJudgeSeesEveryTry(t *testing.T) {
	const limit, try = 32, int64(80_000)
	begin := time.Unix(1, 0)
	for _, first := range []time.Duration{1500 * time.Millisecond, 2500 * time.Millisecond} {
		var j forkJudge
		ended := false
		for at := 50 * time.Millisecond; at < 10*time.Second; at += 50 * time.Millisecond {
			used := make(tasksOf, limit)
			for i := range used {
				used[i].cpu = 100_000
				for next := first; next <= at; next += 4 * time.Second {
					used[i].cpu += try
				}
			}
			u := driver.Usage{Processes: limit + 2, ProcessesDenied: 1, ProcessesFull: true}
			ended = ended || j.flood(begin.Add(at), u, limit, used)
		}
		if !ended {
			t.Errorf("tries at %v and every 4s after it are no flood", first)
		}
	}
}

// A pool whose first process asks all the time, and whose others end and begin together, is
// left alone: what begins uses CPU time, and has asked for nothing.
func TestForksOfWavesAreNoFlood(t *testing.T) {
	const limit, wave = 16, 2500 * time.Millisecond
	begin := time.Unix(1, 0)
	for _, step := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond} {
		for shift := time.Duration(0); shift < 2*time.Second; shift += 100 * time.Millisecond {
			counted := shift < time.Second
			var j forkJudge
			for at := step; at < 30*time.Second; at += step {
				waves := int64((at + shift) / wave)
				u := driver.Usage{Processes: limit, ProcessesDenied: int64(at / (20 * time.Millisecond))}
				tasks := tasksByID{1: {cpu: u.ProcessesDenied * 200_000, system: u.ProcessesDenied * 150_000}}
				if !counted {
					u.Processes, u.ProcessesDenied, u.ProcessesFull = limit+2, 1, true
				}
				u.CPUNanos = tasks[1].cpu + (waves+1)*(limit-1)*500_000
				for i := range int64(limit - 1) {
					tasks[int(2+waves*limit+i)] = taskTime{cpu: 500_000, system: 300_000}
				}
				if j.flood(begin.Add(at), u, limit, tasks) {
					t.Fatalf("ended after %v, read every %v, with waves that begin %v early, counted %v", at, step, shift, counted)
				}
			}
		}
	}
}

// tasksByID are the CPU times of tasks by their ids.
type tasksByID map[int]taskTime

func (t tasksByID) EachTask(visit func(task int, cpu, system int64)) {
	for id, used := range t {
		visit(id, used.cpu, used.system)
	}
}
