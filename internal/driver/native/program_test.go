//go:build linux

package native

import (
	"path/filepath"
	"testing"
)

// BenchmarkProgram measures what the table of system calls for one sandbox takes.
func BenchmarkProgram(b *testing.B) {
	d := newDriver(b, filepath.Join(b.TempDir(), "state"))
	h, err := d.prepare()
	if err != nil {
		b.Fatal(err)
	}
	m := d.newMachine(planFor(b, d, "program"), h)
	b.ReportAllocs()
	for b.Loop() {
		n := m.initSpec(0)
		n.join = []int{5, 6, 7, 8, 9}
		n.program()
	}
}
