package execution

import (
	"testing"
	"time"
)

func TestReadingsBecomeSeldom(t *testing.T) {
	for _, test := range []struct {
		age  time.Duration
		left int64
		want time.Duration
	}{
		{0, 256 << 20, usualReading},
		{100 * time.Millisecond, 256 << 20, 25 * time.Millisecond},
		{time.Minute, 256 << 20, slowestReading},
		{time.Minute, 128 << 20, 31250 * time.Microsecond}, // which a program could fill in that time
		{time.Minute, 8 << 20, usualReading},
		{time.Minute, -1, usualReading},
	} {
		if got := calm(test.age, test.left); got != test.want {
			t.Errorf("after %v with %d bytes left: %v, want %v", test.age, test.left, got, test.want)
		}
	}
}

func TestReadingsGiveWayOnABusyMachine(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		name              string
		pause, took, late time.Duration
		want              time.Duration
	}{
		{"quiet", 10 * time.Millisecond, 100 * time.Microsecond, 0, 10 * time.Millisecond},
		{"slow to read", 2 * time.Millisecond, 5 * time.Millisecond, 0, 20 * time.Millisecond},
		{"very slow to read", 2 * time.Millisecond, 3 * time.Second, 0, longestReading},
		{"late", 2 * time.Millisecond, 100 * time.Microsecond, 5 * time.Millisecond, 40 * time.Millisecond},
		{"very late", 2 * time.Millisecond, 100 * time.Microsecond, 10 * time.Second, latestReading},
		{"early", 2 * time.Millisecond, 0, -time.Second, 2 * time.Millisecond},
	} {
		if got := paced(test.pause, test.took, now, now.Add(test.late)); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
