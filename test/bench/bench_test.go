//go:build linux

// Package bench runs "pinfold bench" as people do, and looks at what it says
// and at what it leaves. Its numbers are not looked at.
package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/test/ledger"
	"pinfold/test/server"
)

// program is the benchmark with a directory of its own for what is temporary.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer, temp string) {
	t.Helper()
	temp = t.TempDir()
	cmd = exec.Command(server.Build(t), append([]string{"bench", "--quick", "--without", "docker"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr, temp
}

// report is what the test reads of a report.
type report struct {
	Sections []struct {
		Tables []struct {
			ID   string           `json:"id"`
			Rows []map[string]any `json:"rows"`
		} `json:"tables"`
	} `json:"sections"`
	Failures []string `json:"failures"`
}

// number finds a number of the report.
func (r report) number(table, what, key string) (float64, bool) {
	for _, s := range r.Sections {
		for _, t := range s.Tables {
			for _, row := range t.Rows {
				if v, ok := row[key].(float64); ok && t.ID == table && row["what"] == what {
					return v, true
				}
			}
		}
	}
	return 0, false
}

// TestBenchMeasuresAndLeavesNothing: every kind of measurement gives numbers,
// and nothing stays on the host.
func TestBenchMeasuresAndLeavesNothing(t *testing.T) {
	ledger.Check(t)
	out := t.TempDir()
	cmd, stdout, stderr, temp := program(t, "--rounds", "2", "--duration", "300ms", "--only", "latency,exec,throughput,driver",
		"--json", filepath.Join(out, "b.json"), "--markdown", filepath.Join(out, "b.md"), "--svg", filepath.Join(out, "charts"))
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout, stderr)
	}
	text, err := os.ReadFile(filepath.Join(out, "b.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Failures) > 0 {
		t.Errorf("failures: %v", r.Failures)
	}
	for _, want := range [][3]string{
		{"latency-print", "bare", "median_ms"},
		{"latency-print", "pinfold run", "beside_bare"},
		{"latency-print", "POST /v1/runs, cold", "p99_ms"},
		{"latency-print", "POST /v1/runs, warm", "median_ms"},
		{"latency-true", "pinfold run", "median_ms"},
		{"exec", "pinfold", "median_ms"},
		{"throughput-print", "POST /v1/runs, cold", "per_second"},
		{"driver", "a whole sandbox", "median_ms"},
		{"driver", "the kernel's floor", "median_ms"},
		{"driver-rate", "4", "per_second"},
		{"agent", "its unshared memory when idle", "kb"},
	} {
		if v, ok := r.number(want[0], want[1], want[2]); !ok || v <= 0 {
			t.Errorf("%s: %s: %s is %v, %v", want[0], want[1], want[2], v, ok)
		}
	}
	if md, err := os.ReadFile(filepath.Join(out, "b.md")); err != nil || !strings.Contains(string(md), "](charts/latency-print.svg)") {
		t.Errorf("the document: %v\n%s", err, md)
	}
	empty(t, temp)
}

// TestBenchCleansUpAfterCtrlC: a benchmark that is stopped in the middle ends
// its server and its sandboxes, and says that it was stopped.
func TestBenchCleansUpAfterCtrlC(t *testing.T) {
	ledger.Check(t)
	cmd, stdout, _, temp := program(t, "--long", "--quick=false", "--only", "latency")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	cmd.Stderr = writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	said := ""
	buffer := make([]byte, 4096)
	for !strings.Contains(said, "latency:") {
		n, err := reader.Read(buffer)
		if err != nil {
			t.Fatalf("it ended before it measured: %v\n%s", err, said)
		}
		said += string(buffer[:n])
	}
	time.Sleep(300 * time.Millisecond) // into the middle of a round
	for range 2 {                      // as timeout(1) does
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for n, err := reader.Read(buffer); err == nil; n, err = reader.Read(buffer) {
		said += string(buffer[:n])
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("it ended with %v\n%s\n%s", err, said, stdout)
	}
	if !strings.Contains(said, "stopped") {
		t.Errorf("it did not say that it was stopped:\n%s", said)
	}
	empty(t, temp)
}

// empty wants a directory in which nothing is left.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left", e.Name())
	}
}
