package bench

import (
	"math"
	"slices"
	"time"
)

// sample is a list of durations.
type sample []time.Duration

// at returns the quantile q of a sample, zero of an empty one.
func (s sample) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	c := slices.Sorted(slices.Values(s))
	return c[min(len(c)-1, int(q*float64(len(c))))]
}

func (s sample) median() time.Duration { return s.at(0.5) }

// ms is a duration in milliseconds; none for zero, which nothing takes.
func ms(d time.Duration) float64 {
	if d == 0 {
		return none
	}
	return float64(d) / float64(time.Millisecond)
}

// none is a value that was not measured.
var none = math.NaN()

// over is a/b; none where there is nothing to compare with.
func over(a, b float64) float64 {
	if b == 0 || math.IsNaN(a) || math.IsNaN(b) {
		return none
	}
	return a / b
}

// known says whether a value was measured.
func known(v float64) bool { return !math.IsNaN(v) }
