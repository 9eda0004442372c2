//go:build linux

package drivers

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/driver/gvisor"
	"pinfold/internal/driver/native"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// answers are programs of every language that all say the same.
var answers = map[string]string{
	"python": "print(6*7)", "javascript": "console.log(6*7)", "typescript": "const x: number = 42; console.log(x)", "shell": "echo $((6*7))",
	"c": "#include <stdio.h>\nint main(void) { puts(\"42\"); return 0; }", "c++": "#include <iostream>\nint main() { std::cout << 42 << std::endl; }",
	"rust": "fn main() { println!(\"42\"); }", "java": "public class Main { public static void main(String[] a) { System.out.println(42); } }",
	"ruby": "puts 42", "php": "<?php echo 42, \"\\n\";", "perl": "print \"42\\n\"", "lua": "print(42)", "r": "cat(42, \"\\n\")", "tcl": "puts 42",
}

// ends are programs that end in every way that a program can.
var ends = map[string]struct {
	language, code string
	limits         sandbox.Limits
}{
	"exit status":  {"sh", "exit 3", sandbox.Limits{}},
	"signal":       {"sh", "kill -SEGV $$", sandbox.Limits{}},
	"memory":       {"python", "a = []\nwhile 1: a.append(bytearray(1 << 20))", sandbox.Limits{MemoryBytes: 100 << 20}},
	"wall time":    {"python", "import time; time.sleep(60)", sandbox.Limits{WallTimeMS: 1500}},
	"CPU time":     {"python", "while 1: pass", sandbox.Limits{CPUTimeMS: 1000}},
	"disk":         {"python", "open('/tmp/x', 'wb').write(b'x' * (50 << 20))", sandbox.Limits{DiskBytes: 20 << 20}},
	"inodes":       {"python", "for i in range(2000): open(f'/tmp/{i}', 'w')", sandbox.Limits{Inodes: 500}},
	"output":       {"sh", "yes", sandbox.Limits{}},
	"size of file": {"python", "open('/tmp/x', 'wb').write(b'x' * (5 << 20))", sandbox.Limits{FileSizeBytes: 1 << 20}},
	"threads":      {"python", "import threading, time\nall = [threading.Thread(target=time.sleep, args=(0.5,)) for _ in range(40)]\nfor t in all: t.start()\nfor t in all: t.join()\nprint(len(all))", sandbox.Limits{}},
}

// said is what must be the same on all drivers.
type said struct {
	Status, Signal, Cause, Stdout string
	Exit                          int
}

// A program gives the same results, and ends for the same reason, whatever made its sandbox.
func TestSameResults(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the gvisor driver needs root")
	}
	runsc, err := exec.LookPath(cmp.Or(os.Getenv("PINFOLD_RUNSC"), "runsc"))
	if err != nil {
		drivertest.Missing(t, "there is no runsc: %v", err)
	}
	agent := agenttest.Bytes(t)
	ledger.Check(t)
	open := func() ([]byte, error) { return agent, nil }
	state := filepath.Join(t.TempDir(), "state")
	e := newEngine(nil,
		native.New(native.Options{StateDir: state, Agent: open}),
		gvisor.New(gvisor.Options{Runsc: runsc, Agent: open, Blocks: filepath.Join(state, "blocks")}))
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	run := func(t *testing.T, driver, language, code string, l sandbox.Limits) said {
		t.Helper()
		r, err := e.Run(soon(t), runs.Request{Spec: sandbox.Spec{Driver: driver, Language: language, Code: code, Limits: l}})
		if err != nil {
			t.Fatalf("%s: %v", driver, err)
		}
		if r.Isolation.Driver != driver {
			t.Errorf("%s was made by %s", driver, r.Isolation.Driver)
		}
		s := said{Status: string(r.Status), Signal: r.Signal, Cause: string(r.Cause.Kind), Exit: -1}
		if r.ExitCode != nil {
			s.Exit = *r.ExitCode
		}
		if r.Status == sandbox.StatusSucceeded {
			s.Stdout = r.Stdout
		}
		return s
	}
	roomy := sandbox.Limits{MemoryBytes: 1 << 30, Processes: 256, DiskBytes: 512 << 20, WallTimeMS: time.Minute.Milliseconds(), CPUTimeMS: time.Minute.Milliseconds()}
	for language, code := range answers {
		t.Run(language, func(t *testing.T) {
			one, other := run(t, "native", language, code, roomy), run(t, "gvisor", language, code, roomy)
			if diff := gocmp.Diff(one, other); diff != "" || one.Status != string(sandbox.StatusSucceeded) {
				t.Errorf("(-native +gvisor)\n%s%+v", diff, one)
			}
		})
	}
	for name, c := range ends {
		t.Run(name, func(t *testing.T) {
			one, other := run(t, "native", c.language, c.code, c.limits), run(t, "gvisor", c.language, c.code, c.limits)
			if diff := gocmp.Diff(one, other); diff != "" {
				t.Errorf("(-native +gvisor)\n%s", diff)
			}
		})
	}
}
