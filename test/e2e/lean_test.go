//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/test/lockedbuffer"
)

// What users start is a program without what only a server needs, with the whole program
// inside it or beside it: every command works, whatever is beside it.
func TestLeanProgram(t *testing.T) {
	parts := agenttest.Install(t, programs...)
	whole, agent := filepath.Join(parts, "pinfold"), filepath.Join(parts, "pinfold-agent")
	beside := filepath.Join(t.TempDir(), "pinfold")
	build(t, beside, "lean", nil)
	copyFile(t, whole, beside+"-whole")
	copyFile(t, agent, beside+"-agent")
	alone := filepath.Join(t.TempDir(), "pinfold")
	complete, warden := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "warden")
	if err := os.WriteFile(warden, agenttest.Program(t, agenttest.Warden), 0o600); err != nil {
		t.Fatal(err)
	}
	carried := map[string]string{"internal/agentbin/pinfold-agent": agent, "internal/agentbin/pinfold-warden": warden}
	build(t, complete, "embedagent", carried)
	carried["internal/wholebin/pinfold-whole"] = complete
	build(t, alone, "lean,embedagent", carried)

	template := imported(t)
	for name, bin := range map[string]string{"beside": beside, "inside": alone} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				args           []string
				stdin          string
				stdout, stderr string // somewhere in it
				code           int
			}{
				{args: []string{"run", "--language", "sh", "-"}, stdin: "echo $((6 * 7))", stdout: "42\n"},
				{args: []string{"run", "--language", "sh", "--template", template, "-"}, stdin: "read x < /etc/said; echo $x", stdout: "of the image\n"},
				{args: []string{"run", "--spec", "-"}, stdin: `{"language": "sh", "code": "exit", "template": "` + template + `"}`, stderr: "--template " + template, code: 125},
				{args: []string{"run", "--language", "sh", "--driver", "gvisr", "-"}, stdin: "exit", stderr: "auto, native, process, gvisor, qemu", code: 125},
				{args: []string{"run", "--spec", "-"}, stdin: `{"language": "sh", "code": "exit", "isolation": "kernel"}`, stderr: "--isolation kernel", code: 125},
				{args: []string{"version"}, stdout: "pinfold "},
				{args: []string{"--version"}, stdout: "pinfold "},
				{args: []string{"run", "--help"}, stdout: "--memory"},
				{args: []string{"help", "serve"}, stdout: "SIGTERM"},
				{args: []string{}, stdout: "serve "},
				{args: []string{"serve", "--example"}, stdout: "listen:"},
				{args: []string{"key", "list", "--state", "/nowhere"}, stderr: "/nowhere", code: 125},
				{args: []string{"completion", "bash"}, stdout: "pinfold"},
				{args: []string{"__complete", "ser"}, stdout: "serve"},
				{args: []string{"runn"}, stderr: "did you mean pinfold run?", code: 125},
			} {
				o := start(t, bin, c.stdin, c.args...)
				if o.code != c.code || !strings.Contains(o.stdout, c.stdout) || !strings.Contains(o.stderr, c.stderr) {
					t.Errorf("%v: %+v", c.args, o)
				}
			}
			nameOfServer(t, bin)
		})
	}

	// A file of the same build beside it saves memory, unless others could change it.
	t.Run("the same program beside it", func(t *testing.T) {
		copyFile(t, complete, alone+"-whole")
		for mode, runs := range map[os.FileMode]bool{0o755: true, 0o775: false, 0o757: false} {
			if err := os.Chmod(alone+"-whole", mode); err != nil {
				t.Fatal(err)
			}
			if got := nameOfServer(t, alone); (got == alone+"-whole") != runs {
				t.Errorf("with mode %o %s runs", mode, got)
			}
		}
	})

	t.Run("another program beside it", func(t *testing.T) {
		for bin, runs := range map[string]bool{alone: false, beside: true} { // the second has nothing to compare it with
			if err := os.WriteFile(bin+"-whole", []byte("#!/bin/sh\necho a foreign program\n"), 0o755); err != nil { //nolint:gosec // it must be executable
				t.Fatal(err)
			}
			if o := start(t, bin, "", "serve", "--example"); (o.stdout == "a foreign program\n") != runs || o.code != 0 {
				t.Errorf("runs %v: %+v", runs, o)
			}
		}
	})
	t.Run("nothing beside it", func(t *testing.T) {
		if err := os.Remove(beside + "-whole"); err != nil {
			t.Fatal(err)
		}
		if o := start(t, beside, "", "doctor"); o.code != 125 || !strings.Contains(o.stderr, "hint: make build") {
			t.Errorf("%+v", o)
		}
	})
}

// build builds the program with files in the place of those that it carries.
func build(t *testing.T, into, tags string, carried map[string]string) {
	t.Helper()
	file := agenttest.Overlay(t, carried)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-tags", tags, "-overlay", file, "-o", into, "pinfold/cmd/pinfold") //nolint:gosec // our own
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// nameOfServer wants a server to be called what people look for, and returns the file
// that it runs.
func nameOfServer(t *testing.T, bin string) (exe string) {
	t.Helper()
	state := t.TempDir()
	cmd := exec.CommandContext(t.Context(), bin, "serve", "--state", state, "--listen", "unix:"+filepath.Join(state, "s")) //nolint:gosec // the program under test
	var log lockedbuffer.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if strings.Contains(log.String(), "pinfold: ready\n") {
			break
		} else if time.Now().After(end) {
			t.Fatalf("it does not listen: %s", &log)
		}
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
	args, argsErr := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
	if err != nil || argsErr != nil || string(comm) != "pinfold\n" || !strings.HasPrefix(string(args), bin+"\x00serve\x00") {
		t.Errorf("it is called %q, its command line is %q (%v, %v)", comm, args, err, argsErr)
	}
	if exe, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	return exe
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o755); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
}
