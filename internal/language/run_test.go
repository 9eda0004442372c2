package language_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pinfold/internal/image"
	"pinfold/internal/language"
	"pinfold/internal/language/languagetest"
	"pinfold/sandbox"
)

// TestPrograms runs every program of languagetest in the host template, held
// by bubblewrap: the table, the template and this machine's toolchains must
// fit together. What Pinfold's own drivers make of it is tested elsewhere.
func TestPrograms(t *testing.T) {
	pen := newPen(t)
	for _, c := range languagetest.Cases() {
		t.Run(c.Language+"/"+c.Name, func(t *testing.T) {
			t.Parallel()
			l, err := language.Find(c.Language)
			if err != nil {
				t.Fatal(err)
			}
			needs(t, l, pen.lookup)
			run(t, pen, l, c)
		})
	}
}

// TestVersions asks every toolchain of this machine for its version.
func TestVersions(t *testing.T) {
	pen := newPen(t)
	for _, l := range language.Table() {
		t.Run(l.Name, func(t *testing.T) {
			needs(t, l, pen.lookup)
			step, stdin, ok := l.VersionStep(pen.lookup)
			if !ok {
				if l.Version.Args != nil {
					t.Fatal("no version step")
				}
				return
			}
			got := pen.run(t, t.TempDir(), t.TempDir(), step, stdin)
			version, ok := l.Version.Parse([]byte(got.stdout + got.stderr))
			if !ok {
				t.Fatalf("no version in %q, %q", got.stdout, got.stderr)
			}
			t.Logf("%s %s", l.Title, version)
		})
	}
}

// needs ends the test when this machine lacks the language: as a failure where
// all languages are asked for, so that nothing goes untested unseen.
func needs(t *testing.T, l language.Language, lookup language.Lookup) {
	t.Helper()
	if missing := l.Missing(lookup); len(missing) > 0 {
		_, err := l.Plan("", nil, sandbox.Limits{}, lookup)
		unavailable(t, sandbox.AsError(err).Hint)
	}
}

func unavailable(t *testing.T, hint string) {
	t.Helper()
	if os.Getenv("PINFOLD_TEST_ALL") == "1" {
		t.Fatalf("not on this machine: %s", hint)
	}
	t.Skipf("not on this machine: %s", hint)
}

// run runs one case and compares.
func run(t *testing.T, pen pen, l language.Language, c languagetest.Case) {
	home, tmp := t.TempDir(), t.TempDir()
	l, err := l.WithHarness(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := l.Plan(c.File, c.Args, sandbox.Limits{}, pen.lookup)
	if err != nil {
		t.Fatal(err)
	}
	file := c.File
	if file == "" {
		file = l.File
	}
	write(t, filepath.Join(home, file), c.Source)
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		write(t, filepath.Join(home, name), c.Files[name])
	}
	for _, f := range steps.Files {
		write(t, filepath.Join(tmp, strings.TrimPrefix(f.Path, "/tmp")), string(f.Content))
	}
	if err := os.MkdirAll(filepath.Join(tmp, strings.TrimPrefix(steps.Dir, "/tmp")), 0o755); err != nil {
		t.Fatal(err)
	}

	if steps.Compile != nil {
		got := pen.run(t, home, tmp, *steps.Compile, "")
		t.Logf("compiled in %v", got.wall.Round(time.Millisecond))
		if c.Want.NotCompile {
			compare(t, got, c.Want)
			return
		}
		if got.exit != 0 {
			t.Fatalf("compiling failed with %d:\n%s%s", got.exit, got.stdout, got.stderr)
		}
	}
	got := pen.run(t, home, tmp, steps.Run, c.Stdin)
	t.Logf("ran for %v", got.wall.Round(time.Millisecond))
	compare(t, got, c.Want)
	left, err := os.ReadDir(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if strings.HasPrefix(e.Name(), ".") || e.Name() == "__pycache__" {
			t.Errorf("%s was left in the working directory", e.Name())
		}
	}
}

func compare(t *testing.T, got outcome, want languagetest.Want) {
	t.Helper()
	failed := got.exit != 0
	if want.ExitCode == languagetest.AnyFailure && !failed || want.ExitCode >= 0 && got.exit != want.ExitCode {
		t.Errorf("exit status %d, want %d", got.exit, want.ExitCode)
	}
	if got.stdout != want.Stdout || !strings.Contains(got.stderr, want.StderrHas) {
		t.Errorf("stdout %q, want %q\nstderr %q, want it to hold %q", got.stdout, want.Stdout, got.stderr, want.StderrHas)
	}
	if want.StderrHas == "" && !failed && got.stderr != "" {
		t.Errorf("stderr %q, want none", got.stderr)
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// pen is bubblewrap with the host template.
type pen struct {
	template image.Template
	files    string // holds the template's files
	cache    string // holds what compilers keep, so that Go's library is built once for all cases
}

func newPen(t *testing.T) pen {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		unavailable(t, "apt-get install bubblewrap")
	}
	template, err := image.Host(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	p := pen{template: template, files: t.TempDir(), cache: t.TempDir()}
	for i, f := range template.Files {
		write(t, filepath.Join(p.files, strconv.Itoa(i)), string(f.Content))
	}
	return p
}

func (p pen) lookup(candidates []string) (string, bool) {
	return p.template.Lookup(os.DirFS("/"), candidates)
}

// arguments turns the template into options of bubblewrap.
func (p pen) arguments(home, tmp string) []string {
	args := []string{
		"--unshare-all", "--die-with-parent", "--new-session", "--clearenv",
		"--uid", strconv.Itoa(sandbox.UID), "--gid", strconv.Itoa(sandbox.GID),
	}
	for _, d := range p.template.Dirs {
		args = append(args, "--dir", d.Path)
	}
	for _, b := range p.template.Binds {
		args = append(args, "--ro-bind", b.Source, b.Target)
	}
	for _, l := range p.template.Links {
		args = append(args, "--symlink", l.Target, l.Path)
	}
	for i, f := range p.template.Files {
		args = append(args, "--ro-bind", filepath.Join(p.files, strconv.Itoa(i)), f.Path)
	}
	return append(args, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/var/tmp",
		"--bind", tmp, "/tmp", "--bind", p.cache, "/tmp/.cache", "--bind", home, sandbox.Home, "--chdir", sandbox.Home, "--remount-ro", "/")
}

type outcome struct {
	stdout, stderr string
	exit           int // 128 + the signal when one ended it
	wall           time.Duration
}

// run runs one step within its wall time.
func (p pen) run(t *testing.T, home, tmp string, step language.Step, stdin string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(step.Limits.WallTimeMS)*time.Millisecond)
	defer cancel()
	args := p.arguments(home, tmp)
	for _, kv := range step.Env {
		k, v, _ := strings.Cut(kv, "=")
		args = append(args, "--setenv", k, v)
	}
	cmd := exec.CommandContext(ctx, "bwrap", append(append(args, "--"), step.Args...)...)
	cmd.WaitDelay = time.Second
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%v: %v\n%s%s", step.Args, err, &stdout, &stderr)
	}
	return outcome{
		stdout: stdout.String(), stderr: stderr.String(), exit: cmd.ProcessState.ExitCode(),
		wall: time.Since(start),
	}
}
