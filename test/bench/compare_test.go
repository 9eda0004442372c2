//go:build linux

package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver/drivertest"
	"pinfold/test/dockerengine"
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
	const attacks = 24
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
	for _, must := range []string{"read a file", "change a file", "environment", "end a process", "connect", "leave a process", "MB of files where", "processes where"} {
		if strings.Contains(through, must) {
			t.Errorf("process lets through: %s", through)
		}
	}
	empty(t, temp)
}

// TestAttack: every attack works with nothing around it, is held where the driver says so,
// and nothing is left.
func TestAttack(t *testing.T) {
	ledger.Check(t, fmt.Sprintf("/var/tmp/pinfold-%d", os.Geteuid()))
	cmd := exec.CommandContext(t.Context(), server.Build(t), "attack", "--only", "native,process", "--json", "-")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var r report
	if err != nil || json.Unmarshal(out, &r) != nil || len(r.Failures) > 0 {
		t.Fatalf("%v\n%s\n%s", err, out, &stderr)
	}
	for _, attack := range []string{"read a file of the host's", "end a process of the host's", "leave a process behind", "take 300 MB of memory where 256 MiB are allowed"} {
		if said := r.note("attacks", attack); said != "works" {
			t.Errorf("control: %s: %q", attack, said)
		}
		if said := r.note("attacks_native", attack); said != "held" {
			t.Errorf("native: %s: %q", attack, said)
		}
	}
	if said := r.note("attacks_process", "see the host's processes"); !strings.Contains(said, "as its report says: it does not enforce namespace:pid") {
		t.Errorf("process: %q", said)
	}
}

// TestCompareBesidePeers: containers and gVisor's sandboxes stand beside what their own
// commands take, and what is wanted of them is judged.
func TestCompareBesidePeers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("containers and gVisor are root's")
	}
	runsc := drivertest.Runsc(t)
	if missing := dockerengine.Missing(dockerengine.Docker); missing != "" {
		drivertest.Missing(t, "%s", missing)
	}
	ledger.Check(t)
	d, err := dockerengine.New(dockerengine.Docker)
	if d != nil {
		t.Cleanup(d.Close)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.HostImage(t.Context(), "python", []string{"dash", "python3-minimal", "libpython3-stdlib"}, nil); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), server.Build(t), "compare", "--rounds", "1", "--only", "docker,gvisor", "--docker-image", "python", "--runsc", runsc, "--json", "-")
	cmd.Env = append(os.Environ(), "TMPDIR="+d.Machines, "DOCKER_HOST="+d.Address())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var r report
	if err != nil || json.Unmarshal(out, &r) != nil || len(r.Failures) > 0 {
		t.Fatalf("%v\n%s\n%s", err, out, &stderr)
	}
	for _, row := range []string{"docker", "docker run", "gvisor", "runsc run", "bare python3"} {
		if v, ok := r.number("starts", row, "cold_ms"); !ok || v <= 0 {
			t.Errorf("%s: a cold run takes %v, %v: %s", row, v, ok, r.note("starts", row))
		}
	}
	for _, driver := range []string{"docker", "gvisor"} {
		for _, want := range [][2]string{{"setup", "first_ms"}, {"starts", "warm_ms"}, {"throughput", "cpu_ms"}, {"throughput", "warm_per_second"}, {"memory", "python_kb"}} {
			if v, ok := r.number(want[0], driver, want[1]); !ok || v <= 0 {
				t.Errorf("%s: %s: %s is %v, %v", want[0], driver, want[1], v, ok)
			}
		}
	}
	for aim, measured := range map[string]bool{
		"docker: a cold run takes at most `docker run` + 30 ms": true, "gvisor: a cold run takes at most `runsc run` + 20 ms": true, "gvisor: a run from a pool takes at most 40 ms": true,
		"docker: a run from a pool takes at most 3 × a cold run of native": false, // which is not compared
	} {
		if stands := r.note("aims", aim); stands == "" || strings.Contains(stands, " ms of ") != measured {
			t.Errorf("%s: %q", aim, stands)
		}
	}
	left, err := filepath.Glob(filepath.Join(d.Machines, "pinfold-compare-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
}

// TestCompareNamesWhatIsMissing: the others are compared all the same.
func TestCompareNamesWhatIsMissing(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "gone")
	cmd := exec.CommandContext(t.Context(), server.Build(t), "compare", "--quick", "--rounds", "1", "--only", "process,docker,gvisor,qemu", "--runsc", nowhere, "--kernel", nowhere)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	want := []string{"docker is left out: --docker-image names", "gvisor cannot work here: ", "qemu cannot work here: "}
	if os.Geteuid() == 0 {
		want = append(want, "gvisor.dev/gvisor/runsc@", "linux-image-cloud-amd64")
	}
	for _, said := range want {
		if !strings.Contains(string(out), said) {
			t.Errorf("it does not say %q:\n%s", said, out)
		}
	}
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
