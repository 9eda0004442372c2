package kvm

import (
	"os"
	"testing"
	"time"
)

// TestTry says that the trial ends, and that its answer agrees with itself: a
// failed step comes with an error and the other way round.
func TestTry(t *testing.T) {
	type answer struct {
		failed Step
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		failed, err := Try()
		done <- answer{failed, err}
	}()
	select {
	case a := <-done:
		t.Logf("failed at %q: %v", a.failed, a.err)
		if (a.err == nil) != (a.failed == StepDone) {
			t.Fatalf("step %q with error %v", a.failed, a.err)
		}
		if _, err := os.Stat("/dev/kvm"); err != nil && a.failed != StepOpen {
			t.Fatalf("there is no /dev/kvm, but the trial came to %q", a.failed)
		}
	case <-time.After(time.Minute):
		t.Skip("KVM hangs here; the doctor bounds it in a child")
	}
}
