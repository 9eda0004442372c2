//go:build linux

package native

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
)

// BenchmarkCreate measures a sandbox's making and its end.
func BenchmarkCreate(b *testing.B) {
	agenttest.Bytes(b)
	d := newDriver(b, filepath.Join(b.TempDir(), "state"))
	n, before := 0, cpuTime(b)
	for b.Loop() {
		n++
		m, err := d.Create(b.Context(), planFor(b, d, fmt.Sprintf("create-%d", n)))
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(n), "cpu-ns/op")
}

// cpuTime is what this process and its children have used.
func cpuTime(tb testing.TB) (sum int64) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			tb.Fatal(err)
		}
		sum += u.Utime.Nano() + u.Stime.Nano()
	}
	return sum
}

// BenchmarkShow measures writing the files that change: all of them, as while a
// program runs, and the one that a program waits for.
func BenchmarkShow(b *testing.B) {
	b.Run("all", func(b *testing.B) { show(b, (*meter).show) })
	b.Run("time", func(b *testing.B) { show(b, (*meter).showTime) })
}

func show(b *testing.B, write func(*meter)) {
	b.Helper()
	agenttest.Bytes(b)
	d := newDriver(b, filepath.Join(b.TempDir(), "state"))
	made, err := d.Create(b.Context(), planFor(b, d, "show"))
	if err != nil {
		b.Fatal(err)
	}
	m := made.(*machine)
	for b.Loop() {
		m.inside.shown = time.Time{}
		write(&m.meter)
	}
	if err := m.Destroy(b.Context()); err != nil {
		b.Fatal(err)
	}
}
