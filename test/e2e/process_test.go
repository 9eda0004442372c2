//go:build linux

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// onlyWatched are the programs that end otherwise where the kernel keeps no limit, as a
// plain process's report says: they are ended when they are beyond.
func onlyWatched() []string {
	if os.Geteuid() == 0 {
		return []string{"a million files"}
	}
	return []string{"a million files", "a fork that is refused", "threads"}
}

// TestCausesOfProcesses runs the programs of TestCauses as plain processes: with the same
// results, except where the report says otherwise.
func TestCausesOfProcesses(t *testing.T) {
	ledger.Check(t, fmt.Sprintf("/var/tmp/pinfold-%d", os.Geteuid()))
	bin := pinfold(t)
	for _, c := range causes {
		if strings.Contains(c.code, "/dev/shm") {
			continue // there is none
		}
		t.Run(c.name, func(t *testing.T) {
			triedAgain := c.kind
			flood := strings.HasPrefix(c.name, "fork bomb") && (os.Geteuid() != 0 || c.language == "bash")
			if flood { // as the report says, it may take all its time
				triedAgain = ""
			}
			if flood && os.Geteuid() != 0 {
				c.args, c.stderr = append(slices.Clone(c.args), "--timeout", "5s"), ""
			}
			code := strings.ReplaceAll(c.code, "'/tmp/", "'")
			r, o := runCause(t, bin, triedAgain, c.language, code, append([]string{"--driver", "process"}, c.args...)...)
			// Where nothing limits, who watches is first unless the host is busy.
			if slices.Contains(onlyWatched(), c.name) && (r.Status != c.status || c.name == "a million files") {
				c.status, c.exit, c.stderr = sandbox.StatusKilled, 137, ""
			}
			if flood && (os.Geteuid() != 0 && r.Cause.Kind == sandbox.CauseWallTime || slept(r)) {
				c.kind, c.exit = sandbox.CauseWallTime, 124
			}
			if r.Cause.Kind != c.kind || r.Status != c.status || o.code != c.exit {
				t.Fatalf("%s by %+v, exit status %d; want %s by %s and %d\nstderr: %.300s", r.Status, r.Cause, o.code, c.status, c.kind, c.exit, r.Stderr)
			}
			if !strings.Contains(r.Stderr, c.stderr) {
				t.Errorf("stderr without %q: %.300s", c.stderr, r.Stderr)
			}
			checkCause(t, r)
		})
	}
	again(t)
}
