package compare

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pinfold/internal/bench"
	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// What got through is a failure, unless the driver says that it does not hold that.
func TestOutcomesAreJudged(t *testing.T) {
	c := &comparison{ctx: t.Context(), report: &bench.Report{}, o: Options{}.withDefaults()}
	c.all = []driver.Report{{Driver: "d", Findings: []driver.Finding{{Feature: sandbox.FeatureMemory, Answer: driver.Yes}, {Feature: sandbox.FeatureDisk, Answer: driver.No}}}}
	of := func(feature string) attack { return attack{what: "x", feature: feature} }
	for _, one := range []struct {
		o      outcome
		said   string
		failed bool
	}{
		{outcome{attack: of(""), through: true}, "works", false},
		{outcome{attack: of(""), err: errors.New("no")}, "NOT TRIED: no", true},
		{outcome{attack: of(""), driver: "d"}, "held", false},
		{outcome{attack: of(""), driver: "d", through: true}, "GOT THROUGH", true},
		{outcome{attack: of(sandbox.FeatureMemory), driver: "d", through: true}, "GOT THROUGH", true},
		{outcome{attack: of(sandbox.FeatureDisk), driver: "d", through: true}, "got through, as its report says: it does not enforce disk", false},
		{outcome{attack: of(sandbox.FeatureDisk), driver: "d", err: errors.New("no")}, "NOT TRIED: no", true},
	} {
		c.report.Failures = nil
		if said := c.judgeAttack(one.o); said != one.said || len(c.report.Failures) > 0 != one.failed {
			t.Errorf("%+v: %q, %q", one.o, said, c.report.Failures)
		}
	}
}

// What appears and bears our name is seen; what was there before, and what others have, is not.
func TestWhatIsLeftIsSeen(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	before := filepath.Join(os.TempDir(), "pinfold-before")
	after := filepath.Join(os.TempDir(), "pinfold-after")
	for _, name := range []string{before, after, filepath.Join(os.TempDir(), "others")} {
		if name == after {
			continue
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	then := look()
	if !then["file "+before] {
		t.Fatalf("%v", then)
	}
	if left := then.leftWithin(0); len(left) > 0 {
		t.Errorf("%q", left)
	}
	if err := os.WriteFile(after, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if left := then.leftWithin(0); !slices.Equal(left, []string{"file " + after}) {
		t.Errorf("%q", left)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("process %d (sleep)", cmd.Process.Pid)
	for deadline := time.Now().Add(10 * time.Second); !slices.Contains(then.leftWithin(0), want); time.Sleep(10 * time.Millisecond) { // it has its name once it is another program
		if time.Now().After(deadline) {
			t.Errorf("%q", then.leftWithin(0))
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if left := then.leftWithin(0); !slices.Equal(left, []string{"file " + after}) {
		t.Errorf("afterwards: %q", left)
	}
}
