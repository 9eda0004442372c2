package sandbox

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An output that is empty is there, one that is not there is not.
func TestProcessOutputInJSON(t *testing.T) {
	for _, p := range []Process{
		{ID: "prc_1", StdoutBytes: 6},
		{ID: "prc_2", HasOutput: true},
		{ID: "prc_3", HasOutput: true, Stdout: "x\n", Stderr: "y", StdoutTruncated: true, StderrTruncated: true, StdoutBytes: 6},
	} {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"stdout", "stderr", "stdout_truncated", "stderr_truncated"} {
			if got := strings.Count(string(b), `"`+field+`":`); (got == 1) != p.HasOutput || got > 1 {
				t.Errorf("%s: %s is there %d times in %s", p.ID, field, got, b)
			}
		}
		var back Process
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, back); diff != "" {
			t.Errorf("%s came back otherwise:\n%s", p.ID, diff)
		}
	}
}
