//go:build linux

package programs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/sandbox"
)

// timeout bounds one program. It is there so that a test ends that hangs, and
// far longer than any of them takes on a machine that does much else.
const timeout = 10 * time.Minute

// limits are enough for all of them.
var limits = []string{
	"--memory", "1GiB", "--processes", "256", "--disk", "512MiB", "--open-files", "1024",
	"--timeout", "9m", "--cpu-time", "9m", "--output-limit", "16MiB",
}

// outsider is the ordinary user as whom root runs a program outside.
// It has a name, which some programs want.
const outsider = 65534

// build makes the program under test, with its agent beside it.
func build(t *testing.T) string {
	t.Helper()
	return filepath.Join(agenttest.Install(t, "pinfold/cmd/pinfold", agenttest.Agent), "pinfold")
}

// outside runs a command line in dir as a program without Pinfold would be run
// by an ordinary user: a small environment, a loopback of its own where that is to
// be had, so that ports are free.
func outside(t *testing.T, dir, command string) (stdout, stderr string, code int) {
	t.Helper()
	args := []string{"bash", "-c", command}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, outsider, outsider); err != nil {
			t.Fatal(err)
		}
		args = append([]string{
			"unshare", "--net", "sh", "-c",
			`ip link set lo up && exec setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"`, "sh",
		}, args...)
	}
	return execute(t, dir, args, "PATH=/usr/local/bin:/usr/bin:/bin", "HOME="+dir, "LANG=C.UTF-8")
}

// inside runs the main file of dir, with the other files beside it, in a sandbox.
func inside(t *testing.T, pinfold, dir, main, language string, more ...string) sandbox.Result {
	t.Helper()
	args := append([]string{pinfold, "run", "--json", "--language", language}, limits...)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != main {
			args = append(args, "--file", filepath.Join(dir, e.Name())+":"+e.Name())
		}
	}
	args = append(args, more...)
	cut := len(args) // the program's own arguments come last
	for i, a := range more {
		if a == "--" {
			cut = len(args) - len(more) + i
		}
	}
	args = append(args[:cut:cut], append([]string{filepath.Join(dir, main)}, args[cut:]...)...)
	stdout, stderr, _ := execute(t, dir, args, os.Environ()...)
	var r sandbox.Result
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || r.ID == "" {
		t.Fatalf("no result: %v: %.500s %.2000s", err, stdout, stderr)
	}
	return r
}

func execute(t *testing.T, dir string, args []string, env ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the tests' own commands
	cmd.Dir, cmd.Env = dir, env
	var streams [2]bytes.Buffer
	var ends [2]*os.File
	var read sync.WaitGroup
	for i := range streams {
		from, to, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		// The program may open /dev/stderr, as it may where its own user started it.
		if err := to.Chown(outsider, outsider); err != nil && os.Geteuid() == 0 {
			t.Fatal(err)
		}
		ends[i] = to
		read.Go(func() { _, _ = streams[i].ReadFrom(from) })
	}
	cmd.Stdout, cmd.Stderr = ends[0], ends[1]
	err := cmd.Run()
	_ = errors.Join(ends[0].Close(), ends[1].Close())
	read.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", args, err)
	}
	return streams[0].String(), streams[1].String(), cmd.ProcessState.ExitCode()
}

// copyTree puts the files of a folder of testdata into a new directory that
// everybody may enter.
func copyTree(t *testing.T, from string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pinfold-programs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the outsider must enter it
		t.Fatal(err)
	}
	return dir
}

// need skips on a user's machine without a program, and fails where nothing may
// be missing.
func need(t *testing.T, file, pkg string) {
	t.Helper()
	if found, _ := filepath.Glob(file); len(found) > 0 {
		return
	}
	message := "missing: apt-get install " + pkg
	if os.Getenv("CI") == "true" || os.Getenv("PINFOLD_TEST_ALL") == "1" {
		t.Fatal(message)
	}
	t.Skip(message)
}

// firstLines shortens what a program said.
func firstLines(s string) string {
	if lines := strings.SplitAfter(s, "\n"); len(lines) > 40 {
		return strings.Join(lines[:20], "") + "…\n" + strings.Join(lines[len(lines)-20:], "")
	}
	return s
}
