package snapshots

import (
	"math"
	"testing"
	"time"

	"pinfold/sandbox"
)

// No number of milliseconds becomes another time, or one that is over, by what does not fit
// into nanoseconds.
func TestTTLIsBounded(t *testing.T) {
	k := New(Options{TTL: time.Hour})
	for _, ms := range []int64{3_600_001, math.MaxInt64 / 1_000_000, math.MaxInt64/1_000_000 + 1, 18_446_744_073_710, math.MaxInt64} {
		if ttl, err := k.TTL(ms); err == nil || sandbox.AsError(err).Field != "ttl_ms" {
			t.Errorf("%d ms are kept for %s", ms, ttl)
		}
	}
	for ms, want := range map[int64]time.Duration{0: time.Hour, 100: 100 * time.Millisecond, 3_600_000: time.Hour} {
		if ttl, err := k.TTL(ms); err != nil || ttl != want {
			t.Errorf("%d ms: %s, %v", ms, ttl, err)
		}
	}
}
