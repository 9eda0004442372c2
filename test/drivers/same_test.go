//go:build linux

package drivers

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pinfold/internal/driver/native"
	"pinfold/internal/engine"
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

// end is a program that ends in one of the ways in which programs can.
type end struct {
	language, code string
	limits         sandbox.Limits
	// feature holds the limit that it reaches, where a driver enforces that. Where its
	// report says that it does not, the limit is watched: what is beyond is ended.
	feature string
}

// stay is what a program does that was not stopped.
const stay = "\nimport time; time.sleep(600)"

var ends = map[string]end{
	"exit status":  {language: "sh", code: "exit 3"},
	"signal":       {language: "sh", code: "kill -SEGV $$"},
	"memory":       {"python", "a = []\nwhile 1: a.append(bytearray(1 << 20))", sandbox.Limits{}, sandbox.FeatureMemory},
	"wall time":    {"python", "import time; time.sleep(600)", sandbox.Limits{WallTimeMS: 1500}, sandbox.FeatureWallTime},
	"CPU time":     {"python", "while 1: pass", sandbox.Limits{CPUTimeMS: 1000}, sandbox.FeatureCPUTime},
	"disk":         {"python", "for i in range(50): open(f'{i}', 'wb').write(bytes(1 << 20))" + stay, sandbox.Limits{DiskBytes: 20 << 20}, sandbox.FeatureDisk},
	"inodes":       {"python", "for i in range(2000): open(f'{i}', 'w')" + stay, sandbox.Limits{Inodes: 500}, sandbox.FeatureInodes},
	"output":       {"sh", "yes", sandbox.Limits{}, sandbox.FeatureOutput},
	"size of file": {"python", "open('x', 'wb').write(bytes(5 << 20))", sandbox.Limits{FileSizeBytes: 1 << 20}, sandbox.FeatureFileSize},
	"threads":      {language: "python", code: "import threading, time\nall = [threading.Thread(target=time.sleep, args=(0.5,)) for _ in range(40)]\nfor t in all: t.start()\nfor t in all: t.join()\nprint(len(all))"},
}

// heavy are languages whose programs want more than the usual limits.
var heavy = []string{"c++", "rust", "java", "r", "javascript", "typescript"}

// rungs are the drivers whose results are those of native. What is left out on one is left
// out for speed alone.
var rungs = []struct {
	driver  string
	without []string // languages
	because string
}{
	{driver: "process"},
	{driver: "docker", without: []string{"rust", "java"}, because: "they would make the image three times as large"},
	{driver: "gvisor"},
	{
		driver: "qemu", without: heavy,
		because: "emulated, each takes ten seconds and more; C has a compiler, too",
	},
}

// said is what must be the same on all drivers.
type said struct {
	Status, Signal, Cause, Stdout string
	Exit                          int
}

// A program gives the same results, and ends for the same reason, whatever made its sandbox.
func TestSameResults(t *testing.T) {
	ledger.Check(t)
	e := ladder(t)
	want := map[string]said{}
	for language, code := range answers {
		var r *sandbox.Result
		if want[language], r = ran(t, e, native.Name, answer(language, code)); !strings.HasPrefix(r.Stdout, "42") {
			t.Errorf("%s: %+v %.1000s", language, want[language], r.Stderr)
		}
	}
	for name, c := range ends {
		want[name], _ = ran(t, e, native.Name, c)
	}
	t.Run("on", func(t *testing.T) {
		for _, r := range rungs {
			t.Run(r.driver, func(t *testing.T) {
				t.Parallel()
				for language, code := range answers {
					if !slices.Contains(r.without, language) {
						same(t, e, r.driver, language, answer(language, code), want[language])
					}
				}
				for name, c := range ends {
					same(t, e, r.driver, name, c, want[name])
				}
			})
		}
	})
}

// answer is a program of a language. Other limits than the usual ones are other machines,
// which an emulator boots in seconds.
func answer(language, code string) end {
	if !slices.Contains(heavy, language) {
		return end{language: language, code: code}
	}
	return end{language: language, code: code, limits: sandbox.Limits{
		MemoryBytes: 1 << 30, Processes: 256, DiskBytes: 512 << 20,
	}}
}

// same runs a program on a driver and compares what became of it with what its report lets
// one expect.
func same(t *testing.T, e *engine.Engine, driver, name string, c end, native said) {
	t.Helper()
	got, r := ran(t, e, driver, c)
	want := native
	if c.feature != "" && !slices.Contains(r.Isolation.Enforced, c.feature) {
		want = said{Status: string(sandbox.StatusKilled), Signal: "SIGKILL", Cause: native.Cause, Exit: -1}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-native +%s)\n%s%.1000s", name, driver, diff, r.Stderr)
	}
}

// patience is many times what the slowest of these programs takes, in milliseconds.
const patience = 300_000

// ran is what became of a program.
func ran(t *testing.T, e *engine.Engine, driver string, c end) (said, *sandbox.Result) {
	t.Helper()
	// What is not the limit in question is far away: a machine may be emulated on a busy host.
	c.limits.WallTimeMS, c.limits.CPUTimeMS = cmp.Or(c.limits.WallTimeMS, patience), cmp.Or(c.limits.CPUTimeMS, patience)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience*time.Millisecond)
	defer cancel()
	begun := time.Now()
	r, err := e.Run(ctx, runs.Request{Spec: sandbox.Spec{Driver: driver, Language: c.language, Code: c.code, Limits: c.limits}})
	if err != nil {
		t.Errorf("%s, %s: %v", driver, c.language, err)
		return said{}, &sandbox.Result{}
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Logf("%s, %s: took %s", driver, c.language, took.Round(time.Second))
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
	return s, r
}
