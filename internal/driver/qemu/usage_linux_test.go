package qemu

import (
	"math"
	"testing"

	"pinfold/internal/driver"
)

// A machine that goes on from a memory is not billed what was used before, whatever it tells.
func TestWhatWasUsedBefore(t *testing.T) {
	u := driver.Usage{CPUNanos: 70, OOMKills: 3, ProcessesDenied: 5, ReadBytes: 9, WrittenBytes: 8, MemoryPeak: 6}
	if got := (&machine{}).tamed(u); got.CPUNanos != 70 || got.OOMKills != 3 || got.WrittenBytes != 8 {
		t.Errorf("control: %+v", got)
	}
	m := &machine{base: driver.Usage{CPUNanos: 50, OOMKills: 2, ProcessesDenied: 5, ReadBytes: -4, WrittenBytes: 20, MemoryPeak: 6}}
	if got := m.tamed(u); got.CPUNanos != 20 || got.OOMKills != 1 || got.ProcessesDenied != 0 || got.ReadBytes != 9 || got.WrittenBytes != 0 || got.MemoryPeak != 6 {
		t.Errorf("%+v", got)
	}
	if got := m.tamed(driver.Usage{CPUNanos: math.MinInt64}); got.CPUNanos != 0 {
		t.Errorf("%+v", got)
	}
}
