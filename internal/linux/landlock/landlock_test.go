package landlock

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRulesetAttr(t *testing.T) {
	for _, c := range []struct {
		level int
		want  []byte
	}{
		{0, nil},
		{1, []byte{0xff, 0x1f, 0, 0, 0, 0, 0, 0}},
		{2, []byte{0xff, 0x3f, 0, 0, 0, 0, 0, 0}},
		{3, []byte{0xff, 0x7f, 0, 0, 0, 0, 0, 0}},
		{4, []byte{0xff, 0x7f, 0, 0, 0, 0, 0, 0}}, // TCP, which we leave alone
		{5, []byte{0xff, 0xff, 0, 0, 0, 0, 0, 0}},
		{6, []byte{0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}},
		{8, []byte{0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}},
		{9, []byte{0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}},
		{99, []byte{0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}},
	} {
		if diff := cmp.Diff(c.want, RulesetAttr(c.level)); diff != "" {
			t.Errorf("level %d (-want +got):\n%s", c.level, diff)
		}
	}
}

func TestPathBeneathAttr(t *testing.T) {
	got := PathBeneathAttr(execute|readFile, 0x01020304)
	want := []byte{5, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if PathBeneathFDOffset != len(want)-4 {
		t.Fatalf("the descriptor stands at %d", PathBeneathFDOffset)
	}
}

// TestRightsAreHandled: the kernel refuses a rule with a right that the rule
// set does not handle, and a rule with none.
func TestRightsAreHandled(t *testing.T) {
	for level := 1; level <= MaxLevel; level++ {
		for use := range uses {
			for _, a := range []Access{use.Rights(level), use.FileRights(level)} {
				if a == 0 || a&^Handled(level) != 0 {
					t.Errorf("level %d, use %d: rights %#x, handled %#x", level, use, a, Handled(level))
				}
			}
			if use.Rights(level)&(makeChar|makeBlock|resolveUnix) != 0 {
				t.Errorf("use %d may make devices or reach foreign sockets", use)
			}
		}
		if Handled(level)&^Handled(level+1) != 0 {
			t.Errorf("level %d handles less than %d", level+1, level)
		}
	}
}

func TestRestrictFlags(t *testing.T) {
	if got := RestrictFlags(6); got != 0 {
		t.Errorf("level 6: %#x; older kernels know no flags", got)
	}
	if got := RestrictFlags(7); got != 5 {
		t.Errorf("level 7: %#x", got)
	}
}
