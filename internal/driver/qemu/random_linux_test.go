//go:build linux

package qemu

import (
	"testing"

	"pinfold/internal/zygote/zygotetest"
)

// drawn has so many copies each draw from their kernels first of all, and returns how many
// of them drew what no other did.
func (w *waiting) drawn(t *testing.T, copies int) int {
	t.Helper()
	const code = "import os; say('first', os.urandom(16).hex()); say('second', os.urandom(16).hex())"
	different := map[string]bool{}
	for range copies {
		said := w.says(t, code)
		if len(said["first"]) != 32 || said["first"] == said["second"] {
			t.Fatalf("a copy drew %v", said)
		}
		different[said["first"]+said["second"]] = true
	}
	return len(different)
}

// Copies that are told nothing draw the same from their kernels: what the processor's numbers
// and the times of interrupts are, a kernel takes up when it begins anew by itself, some
// seconds after it did so last, which on a busy host some do before they are asked. With what
// they are told no two do.
func TestKernelsAreToldApart(t *testing.T) {
	const copies = 5
	o := options(t)
	o.stale = true
	stale, different := open(t, o), 0
	for range 3 {
		if different = keep(t, stale, zygotetest.Hoard, asItIs).drawn(t, copies); different < copies {
			break
		}
	}
	if different == copies {
		t.Errorf("control: %d copies that are told nothing draw %d different numbers", copies, different)
	}
	if n := keep(t, open(t, options(t)), zygotetest.Hoard, asItIs).drawn(t, copies); n != copies {
		t.Errorf("%d copies draw %d different numbers", copies, n)
	}
}
