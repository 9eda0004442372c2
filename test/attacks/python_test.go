//go:build linux

package attacks

import (
	"os"
	"strings"
	"testing"

	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// What is tested is the Python that was meant, its interpreters are forked, and
// where it counts no references of what lives for ever, what a zygote has loaded
// does. test/kernels runs it with other Pythons than this machine's.
func TestPythonOfThisRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's interpreters are not forked")
	}
	a := newArena(t, "")
	if err := a.engine.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec := sandbox.PoolSpec{Name: "py", Language: "python", Limits: sandbox.Limits{MemoryBytes: 512 << 20}}
	code := "import sys, json\n"
	if os.Getenv("PINFOLD_TEST_NUMPY") != "" {
		spec.Warm, code = []string{"numpy"}, code+"import numpy; assert numpy.arange(9).reshape(3, 3).sum() == 36\n"
	}
	if _, err := a.engine.SetPool(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	waitFull(t, a.engine)
	if p := a.engine.Pools()[0]; p.Interpreters != "forked" {
		t.Fatalf("interpreters are %q: %s", p.Interpreters, p.Why)
	}
	// The same count for what the zygote has loaded as for None, and another for what it has not.
	code += "count = sys.getrefcount\nprint('%d.%d' % sys.version_info[:2], count(json.dumps) == count(json) == count(None), count(object()) == count(None))"
	r, err := a.engine.Run(t.Context(), runs.Request{Spec: sandbox.Spec{Language: "python", Code: code, Limits: spec.Limits, Warm: spec.Warm}, NoArtifacts: true})
	if err != nil || r.Status != sandbox.StatusSucceeded || !r.Warm {
		t.Fatalf("%+v, %v", r, err)
	}
	version, counts, _ := strings.Cut(strings.TrimSpace(r.Stdout), " ")
	if want := os.Getenv("PINFOLD_TEST_PYTHON"); want != "" && version != want {
		t.Errorf("this is Python %s, not %s", version, want)
	}
	if forever := os.Getenv("PINFOLD_TEST_FOREVER") != ""; os.Getenv("PINFOLD_TEST_PYTHON") != "" && (counts == "True False") != forever {
		t.Errorf("references are counted: %q", counts)
	}
	t.Logf("Python %s with %v: %s, a run takes %d bytes", version, spec.Warm, counts, r.Usage.MemoryPeakBytes)
}
