package admission

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pinfold/sandbox"
)

func TestPolicy(t *testing.T) {
	p := Policy{
		Default: sandbox.Limits{MemoryBytes: 64 << 20, WallTimeMS: 5000},
		Max:     sandbox.Limits{MemoryBytes: 128 << 20, CPUs: 0.5, Processes: 10, CPUTimeMS: 1000},
	}
	for name, c := range map[string]struct {
		ask, want sandbox.Limits
		run       bool
	}{
		"a run that asks for nothing": {
			sandbox.Limits{}, sandbox.Limits{MemoryBytes: 64 << 20, WallTimeMS: 5000, CPUs: 0.5, Processes: 10, CPUTimeMS: 1000}, true,
		},
		"a sandbox has no limits of time": {
			sandbox.Limits{}, sandbox.Limits{MemoryBytes: 64 << 20, CPUs: 0.5, Processes: 10}, false,
		},
		"what is asked for holds": {
			sandbox.Limits{MemoryBytes: 100 << 20, WallTimeMS: 1, CPUs: 0.1, Processes: 2, CPUTimeMS: 3},
			sandbox.Limits{MemoryBytes: 100 << 20, WallTimeMS: 1, CPUs: 0.1, Processes: 2, CPUTimeMS: 3},
			true,
		},
	} {
		got, err := p.Limits(c.ask, c.run)
		if d := cmp.Diff(c.want, got); err != nil || d != "" {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}
	for field, l := range map[string]sandbox.Limits{
		"limits.memory_bytes": {MemoryBytes: 129 << 20},
		"limits.cpus":         {CPUs: 0.6},
		"limits.cpu_time_ms":  {CPUTimeMS: 1001},
	} {
		var e *sandbox.Error
		if _, err := p.Limits(l, false); !errors.As(err, &e) || e.Field != field || e.Code != sandbox.CodeLimitInvalid || e.Hint == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	if got, err := (Policy{}).Limits(sandbox.Limits{}, true); err != nil || got != (sandbox.Limits{}) {
		t.Errorf("a policy that decides nothing changes limits: %+v, %v", got, err)
	}
}
