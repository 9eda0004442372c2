package cli

import (
	"testing"
	"time"
)

// What is about to happen happens now, and not in no seconds.
func TestUntil(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "now", 0: "now", 900 * time.Millisecond: "now",
		time.Hour + 30*time.Second: "in 60m",
		30*time.Hour + time.Minute: "in 30h",
		72*time.Hour + time.Minute: "in 3d",
	} {
		if got := until(time.Now().Add(d)); got != want {
			t.Errorf("in %v: %q, want %q", d, got, want)
		}
	}
}
