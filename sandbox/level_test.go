package sandbox

import (
	"slices"
	"strings"
	"testing"
)

func TestLevels(t *testing.T) {
	all := IsolationLevels()
	for i, have := range all {
		for j, least := range all {
			if got := LevelAtLeast(have, least); got != (i >= j) {
				t.Errorf("%s is at least %s: %v", have, least, got)
			}
		}
		if LevelAtLeast("", have) || !LevelAtLeast(have, "") {
			t.Errorf("what is no level is not below %s", have)
		}
	}
	if slices.Reverse(all); slices.Equal(all, IsolationLevels()) {
		t.Error("the list can be changed")
	}
	for level, valid := range map[string]bool{"": true, LevelProcess: true, LevelVM: true, "high": false, "Process": false} {
		err := Spec{Language: "sh", Code: "x", Isolation: level}.Validate()
		if (err == nil) != valid || !valid && (AsError(err).Field != "isolation" || !strings.Contains(AsError(err).Hint, LevelNamespace)) {
			t.Errorf("%q: %v", level, err)
		}
	}
}
