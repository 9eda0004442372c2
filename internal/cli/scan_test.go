//go:build !lean

package cli

import (
	"testing"

	"pinfold/internal/scan"
	"pinfold/sandbox"
)

func TestExitStatusOfScan(t *testing.T) {
	for _, c := range []struct {
		worst  sandbox.Severity
		unread string
		failOn string
		want   int
	}{
		{"", "", "warning", 0},
		{"notice", "", "warning", 0},
		{"warning", "", "warning", 1},
		{"danger", "", "warning", 1},
		{"warning", "", "danger", 0},
		{"notice", "", "notice", 1},
		{"danger", "", "never", 0},
		{"", "could not be read: x", "warning", 2},
		{"notice", "could not be read: x", "warning", 2},
		{"danger", "could not be read: x", "warning", 1},
		{"danger", "could not be read: x", "never", 2},
	} {
		if got := scanStatus(&scan.Report{Worst: c.worst, Unread: c.unread}, c.failOn); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
