//go:build linux

package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/test/ledger"
	"pinfold/test/server"
)

// TestCompareTriesAndMeasures: every attack that works with nothing around it is tried on
// each driver, and the host sees what gets through; every measurement gives numbers; and
// nothing stays on the host.
func TestCompareTriesAndMeasures(t *testing.T) {
	ledger.Check(t, fmt.Sprintf("/var/tmp/pinfold-%d", os.Geteuid()))
	temp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), server.Build(t), "compare", "--quick", "--only", "native,process", "--json", "-")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, &stderr)
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Failures) > 0 {
		t.Errorf("failures: %v", r.Failures)
	}
	for _, driver := range []string{"native", "process"} {
		for _, want := range [][2]string{{"ladder", "enforced"}, {"starts", "cold_ms"}, {"starts", "warm_ms"}, {"starts", "create_ms"}, {"memory", "memory_kb"}, {"throughput", "per_second"}} {
			if v, ok := r.number(want[0], driver, want[1]); !ok || v <= 0 {
				t.Errorf("%s: %s: %s is %v, %v", want[0], driver, want[1], v, ok)
			}
		}
	}
	const attacks = 12
	if tried, _ := r.number("attacks", "native", "tried"); tried != attacks {
		t.Errorf("%v attacks were tried, not %d", tried, attacks)
	}
	if held, _ := r.number("attacks", "native", "held"); held != attacks {
		t.Errorf("native held %v of %d: %q", held, attacks, r.note("attacks", "native"))
	}
	through := r.note("attacks", "process") // as its report says: it has no pid namespace
	if !strings.Contains(through, "see the host's processes") {
		t.Errorf("control: nothing gets through where something must: %q", through)
	}
	for _, must := range []string{"read a file", "change a file", "environment", "end a process", "connect", "leave a process", "files where", "processes where"} {
		if strings.Contains(through, must) {
			t.Errorf("process lets through: %s", through)
		}
	}
	empty(t, temp)
}

// TestCompareRefusesUnknownDrivers: with the names of those there are.
func TestCompareRefusesUnknownDrivers(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), server.Build(t), "compare", "--only", "natve")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 125 || !strings.Contains(string(out), `no driver "natve"`) || !strings.Contains(string(out), "native") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCompareCleansUpAfterCtrlC: a comparison that is stopped in the middle leaves nothing.
func TestCompareCleansUpAfterCtrlC(t *testing.T) {
	ledger.Check(t, fmt.Sprintf("/var/tmp/pinfold-%d", os.Geteuid()))
	temp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), server.Build(t), "compare", "--only", "native", "--rounds", "100000")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, buffer := "", make([]byte, 4096)
	for stopped := false; ; {
		n, err := pipe.Read(buffer)
		if said += string(buffer[:n]); err != nil {
			break
		}
		if !stopped && strings.Contains(said, "cold runs, round 1 ") {
			stopped = true
			time.Sleep(300 * time.Millisecond) // into the middle of the runs
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait()
	if !strings.Contains(said, "stopped") {
		t.Errorf("exit status %d\n%.2000s", cmd.ProcessState.ExitCode(), said[max(0, len(said)-2000):])
	}
	empty(t, temp)
}

// note is what stands in the last column of a row.
func (r report) note(table, what string) string {
	for _, s := range r.Sections {
		for _, t := range s.Tables {
			if i := slices.IndexFunc(t.Rows, func(row map[string]any) bool { return t.ID == table && row["what"] == what }); i >= 0 {
				note, _ := t.Rows[i]["note"].(string)
				return note
			}
		}
	}
	return ""
}
