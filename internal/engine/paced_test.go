package engine

import (
	"testing"
	"time"
)

func TestReadingsGiveWayOnABusyMachine(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		name              string
		pause, took, late time.Duration
		want              time.Duration
	}{
		{"quiet", 10 * time.Millisecond, 100 * time.Microsecond, 0, 10 * time.Millisecond},
		{"slow to read", 2 * time.Millisecond, 5 * time.Millisecond, 0, 20 * time.Millisecond},
		{"late", 2 * time.Millisecond, 100 * time.Microsecond, 5 * time.Millisecond, 40 * time.Millisecond},
		{"very late", 2 * time.Millisecond, 100 * time.Microsecond, 10 * time.Second, latestReading},
		{"early", 2 * time.Millisecond, 0, -time.Second, 2 * time.Millisecond},
	} {
		if got := paced(test.pause, test.took, now, now.Add(test.late)); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
