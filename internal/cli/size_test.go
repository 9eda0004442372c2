package cli

import (
	"slices"
	"testing"

	"pinfold/sandbox"
)

// Lists say sizes in the largest unit, with at most one decimal.
func TestSizesInLists(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1024: "1KiB", 1_234_567: "1.2MiB", 268_435_457: "256MiB", 5 << 40: "5TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
	table := snapshotTable([]sandbox.Snapshot{{ID: "snp_a", Bytes: 1_234_567}})
	if row := table.rows[len(table.rows)-1]; !slices.Contains(row, "1.2MiB") {
		t.Errorf("%q", row)
	}
}
