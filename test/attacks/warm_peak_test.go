//go:build linux

package attacks

import (
	"os"
	"testing"
	"time"

	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// The most memory of a run is the kernel's word, also where the program has it
// only for a moment that no reading of the counters meets, and it is of that run
// alone: what loading modules took is no part of it.
func TestMemoryPeakOfShortRuns(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user may have no cgroup that counts memory")
	}
	ledger.Check(t)
	a := newArena(t, "")
	if err := a.engine.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, language string
		little, much   string
		pool           bool
		atMost         int64 // for little; 48 MiB more for much
	}{
		{"forked", "python", "print(1)", "x = b'x' * (48 << 20); del x", true, 8 << 20},
		{"started ahead", "javascript", "1", "Buffer.alloc(48 << 20, 1)", true, 80 << 20},
		{"cold", "python", "print(1)", "x = b'x' * (48 << 20); del x", false, 24 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			limits := sandbox.Limits{MemoryBytes: 256 << 20}
			if test.pool {
				if _, err := a.engine.SetPool(t.Context(), sandbox.PoolSpec{Name: "p", Language: test.language, Limits: limits}); err != nil {
					t.Fatal(err)
				}
			}
			peak := func(code string) int64 {
				t.Helper()
				if test.pool {
					eventually(t, func() bool { return a.engine.Pools()[0].Available > 0 })
				}
				s := sandbox.Spec{Language: test.language, Code: code, Limits: limits, Cold: !test.pool}
				r, err := a.engine.Run(t.Context(), runs.Request{Spec: s, NoArtifacts: true})
				if err != nil || r.Status != sandbox.StatusSucceeded || r.Warm != test.pool {
					t.Fatalf("%+v, %v", r, err)
				}
				return r.Usage.MemoryPeakBytes
			}
			little, much := peak(test.little), peak(test.much)
			t.Logf("%d and %d bytes", little, much)
			if little == 0 || little > test.atMost || much < 48<<20 || much > test.atMost+48<<20 {
				t.Errorf("a little takes %d bytes, 48 MiB take %d", little, much)
			}
		})
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never")
		}
	}
}
