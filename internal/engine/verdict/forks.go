package verdict

import (
	"time"

	"pinfold/internal/driver"
)

// A refused fork is an answer: a program may try again later, do with fewer threads,
// or fail. What is ended for it is a flood, which does nothing else: at the limit of
// tasks, so many refusals a second that a quarter of all tasks could each have had
// one, no CPU time to speak of but for them, in so many intervals in a row, and on it goes.
//
// A process that hands out work to others asks again and again as well, while they work or
// wait. So where the host sees the tasks one by one, a quarter of them must have done what
// a refusal takes, unless refusals come faster than anybody asks who waits in between.
// Where refusals are not counted, that quarter is what tells: either all of them together
// take little time, or most of it is the kernel's.
//
// A shell sleeps for 1, 2, 4 and 8 seconds before it tries again, and few shells that
// do it at the same times are refused in some seconds and hardly in others. Intervals in
// which nearly all tasks sleep are passed over, a few in a row; then a single refusal is
// not "on it goes", but as many as in a flood's second.
const (
	floodInterval  = time.Second
	floodIntervals = 2
	floodShare     = 4                     // of the limit, refused in a second
	floodLeast     = 8                     // refusals in a second, however low the limit
	floodCost      = 5 * time.Millisecond  // of CPU time for each refusal; it takes a tenth of that
	floodSleep     = 4                     // intervals in a row in which all sleep
	floodIdle      = 10                    // all sleep if they take less than this part of a CPU
	floodWait      = 20                    // all wait if they take less than this part of a CPU, and nothing else is known of them
	floodHaste     = 300                   // refusals in a second that one task has only if it waits for nothing
	floodUncounted = 50 * time.Microsecond // of CPU time in a second for each task, where refusals are not counted
)

// forkJudge tells a flood of forks from a program that copes with refusals. Time is
// that of the readings. It is not safe for concurrent use.
type forkJudge struct {
	begun  time.Time    // of the current interval
	at     driver.Usage // the counters then
	floods int          // intervals in a row
	slept  int          // intervals since the last of them

	before map[int]taskTime // the tasks when the interval began; nil: they were not looked at
}

// taskTime is CPU time of one task, all of it and the kernel's, in nanoseconds.
type taskTime struct{ cpu, system int64 }

// flood takes one reading and says whether it is enough.
func (j *forkJudge) flood(now time.Time, u driver.Usage, limit int64, meter driver.TaskMeter) bool {
	if j.begun.IsZero() || j.floods == 0 && u.ProcessesDenied == j.at.ProcessesDenied && !u.ProcessesFull {
		j.begun, j.at = now, u // an interval begins with a refusal
		return false
	}
	if j.floods >= floodIntervals && j.goesOn(u, limit) {
		return true
	}
	if now.Sub(j.begun) < floodInterval {
		return false
	}
	j.interval(now.Sub(j.begun), u, limit, meter)
	j.begun, j.at = now, u
	return false
}

// interval judges one interval, at its end.
func (j *forkJudge) interval(took time.Duration, u driver.Usage, limit int64, meter driver.TaskMeter) {
	flooded := j.flooded(took, u, limit)
	var here map[int]taskTime
	if flooded || j.floods > 0 {
		here = look(meter)
	}
	switch {
	case flooded && here != nil && j.before == nil: // who asks is seen from now on
		j.before = here
		if !u.ProcessesFull {
			j.floods = 1
		}
	case flooded && j.manyAsk(here, took, u, limit):
		j.floods += int(took / floodInterval) // the readings of a busy host are far apart
		j.slept, j.before = 0, here
	case j.floods > 0 && j.slept < floodSleep && (!flooded || u.ProcessesFull) && j.sleeps(took, u, limit):
		j.slept++
		j.before = here
	default:
		j.floods, j.slept, j.before = 0, 0, nil
		if flooded && u.ProcessesFull { // who asks in the next one is seen
			j.before = here
		}
	}
}

// look is nil where tasks cannot be seen, or none with the time that it took to become one.
func look(meter driver.TaskMeter) map[int]taskTime {
	if meter == nil {
		return nil
	}
	all, ran := map[int]taskTime{}, false
	meter.EachTask(func(task int, cpu, system int64) {
		all[task] = taskTime{cpu, system}
		ran = ran || cpu > 0
	})
	if !ran {
		return nil
	}
	return all
}

// manyAsk says whether in this interval many of the tasks did what a refused fork takes.
func (j *forkJudge) manyAsk(here map[int]taskTime, took time.Duration, u driver.Usage, limit int64) bool {
	if here == nil || j.before == nil { // it cannot be told, but that all of them only wait
		return !u.ProcessesFull || u.CPUNanos-j.at.CPUNanos > took.Nanoseconds()/floodWait
	}
	var all taskTime
	var each []int64
	for task, now := range here {
		before, old := j.before[task]
		if old { // one that began meanwhile has used what a start takes
			each = append(each, now.cpu-before.cpu)
		}
		all.cpu += now.cpu - before.cpu
		all.system += now.system - before.system
	}
	refused := u.ProcessesDenied - j.at.ProcessesDenied
	least := int64(floodUncounted.Seconds() * float64(took))
	switch {
	case !u.ProcessesFull && float64(refused) >= floodHaste*took.Seconds():
		return true
	case !u.ProcessesFull:
		least = all.cpu / max(1, refused) / 4
	case all.cpu > int64(float64(limit*int64(floodCost))*took.Seconds()) && 2*all.system < all.cpu:
		return false
	}
	asked := 0
	for _, cpu := range each {
		if cpu > least {
			asked++
		}
	}
	return asked >= max(2, min(int(limit), len(here))/floodShare)
}

// goesOn says whether there was more since the last interval: a thousand refusals at
// once take two intervals on a busy host, and then they are over.
func (j *forkJudge) goesOn(u driver.Usage, limit int64) bool {
	if u.ProcessesFull {
		return j.flooded(0, u, limit)
	}
	least := int64(1)
	if j.slept > 0 {
		least = floodRate(limit)
	}
	return u.ProcessesDenied-j.at.ProcessesDenied >= least && atLimit(u, limit)
}

// flooded judges one interval.
func (j *forkJudge) flooded(took time.Duration, u driver.Usage, limit int64) bool {
	if u.ProcessesFull { // refusals are not counted: it is beyond the limit or it is not
		return u.ProcessesDenied > 0 && u.Processes > limit
	}
	refused := u.ProcessesDenied - j.at.ProcessesDenied
	return atLimit(u, limit) &&
		float64(refused) >= float64(floodRate(limit))*took.Seconds() &&
		u.CPUNanos-j.at.CPUNanos <= refused*floodCost.Nanoseconds()
}

// sleeps says whether the tasks stayed and did next to nothing in one interval.
func (j *forkJudge) sleeps(took time.Duration, u driver.Usage, limit int64) bool {
	return atLimit(u, limit) && u.CPUNanos-j.at.CPUNanos < took.Nanoseconds()/floodIdle
}

// floodRate is how many refusals in a second are many.
func floodRate(limit int64) int64 { return max(floodLeast, limit/floodShare) }

// atLimit says whether the tasks that there are leave little room.
func atLimit(u driver.Usage, limit int64) bool { return u.Processes > limit-max(1, limit/4) }

// LeftFlood says whether what a program left behind is flooding, by a reading before
// the program's end, one soon after it, and one when its output was cut off. What the
// program itself was refused, and coped with, is not part of it: refusals go on, and are
// many. In that quarter of a second many of a shell's fork bomb go to sleep, and others
// end: more than a quarter of the tasks are a crowd.
func LeftFlood(before, soon, now driver.Usage, limit int64) bool {
	if now.ProcessesFull {
		return now.ProcessesDenied > 0 && now.Processes > limit
	}
	refused := now.ProcessesDenied - before.ProcessesDenied
	return now.ProcessesDenied > soon.ProcessesDenied && refused >= floodRate(limit) && now.Processes > limit/floodShare &&
		now.CPUNanos-before.CPUNanos <= refused*floodCost.Nanoseconds()
}
