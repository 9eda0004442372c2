package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// BenchmarkRun measures what a run costs the store: BeginRun and FinishRun.
// cpu-us/op is the processor time of the whole process for one of them.
func BenchmarkRun(b *testing.B) {
	for _, callers := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s, err := Open(b.Context(), b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			var n atomic.Int64
			b.SetParallelism(callers)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := oneRun(b.Context(), s, n.Add(1)); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

func oneRun(ctx context.Context, s *Store, i int64) error {
	id := fmt.Sprintf("run_%08x%d", uint32(i*2654435761), i)
	if _, err := s.BeginRun(ctx, records.Run{ID: id, Tenant: "local", CreatedAt: time.Now(), Language: "python"}); err != nil {
		return err
	}
	code := 0
	return s.FinishRun(ctx, "local", id, &sandbox.Result{
		ID: id, Status: sandbox.StatusSucceeded, ExitCode: &code, Cause: sandbox.Cause{Kind: sandbox.CauseExited}, Stdout: "1\n", StdoutBytes: 2,
		Isolation: sandbox.Isolation{Driver: "native", Enforced: []string{"memory", "processes", "seccomp", "landlock", "network:none"}},
	})
}

func BenchmarkLoadRun(b *testing.B) {
	s, err := Open(b.Context(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := oneRun(b.Context(), s, 1); err != nil {
		b.Fatal(err)
	}
	id := fmt.Sprintf("run_%08x%d", uint32(2654435761), 1)
	for b.Loop() {
		if _, err := s.LoadRun(b.Context(), "local", id); err != nil {
			b.Fatal(err)
		}
	}
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
