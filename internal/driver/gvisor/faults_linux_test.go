package gvisor

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/guest"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/proctree"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// place puts a program at a path, as root's own.
func place(t *testing.T, path, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// What is no runsc, or none that works, is refused with the reason and with what helps.
func TestUnsuitedRunsc(t *testing.T) {
	runscForTests(t)
	dir := t.TempDir()
	const says = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'runsc version release-20200101.0' && exit\n"
	for what, c := range map[string]struct{ runsc, because string }{
		"there is none":        {filepath.Join(dir, "none"), "there is no runsc"},
		"a directory":          {dir, "no"},
		"another program":      {"/bin/true", "is no runsc that works here"},
		"it fails":             {"/bin/false", "is no runsc that works here"},
		"written by others":    {place(t, filepath.Join(dir, "others"), says, 0o777), "can be changed by others"},
		"only root's":          {place(t, filepath.Join(dir, "roots"), says, 0o700), "cannot be executed by everybody"},
		"it speaks too much":   {place(t, filepath.Join(dir, "much"), "#!/bin/sh\nexec yes\n", 0o755), "is no runsc that works here"},
		"a script around one":  {place(t, filepath.Join(dir, "script"), says+"exit 1\n", 0o755), "makes no sandbox here"},
		"a program of another": {foreign(t, filepath.Join(dir, "foreign")), "is no runsc that works here"},
	} {
		t.Run(what, func(t *testing.T) {
			ledger.Check(t)
			r, err := opened(t, c.runsc).Probe(t.Context(), imagetest.Host(t))
			if err != nil || r.Blocked == nil {
				t.Fatalf("%v, %+v", err, r)
			}
			e := r.Blocked
			if e.Code != sandbox.CodeDriverUnavailable || !strings.Contains(e.Message, c.because) || e.Hint == "" {
				t.Errorf("%+v", e)
			}
			t.Log(e.Message, "|", e.Hint)
		})
	}
}

// foreign is a program of another architecture's.
func foreign(t *testing.T, path string) string {
	t.Helper()
	elf := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 200)...)
	elf[16], elf[18] = 2, 0xf3 // an executable, of RISC-V
	return place(t, path, string(elf), 0o755)
}

// A runsc that takes other flags, as of another version, makes no sandbox, and says why.
func TestRunscOfAnotherVersion(t *testing.T) {
	runscForTests(t)
	if _, err := exec.LookPath("gcc"); err != nil {
		drivertest.Missing(t, "there is no gcc")
	}
	const source = `#include <stdio.h>
#include <string.h>
int main(int n, char **v) {
	if (n > 1 && !strcmp(v[1], "--version")) { puts("runsc version release-20200101.0"); return 0; }
	fputs("flag provided but not defined: -pass-fd\n", stderr);
	return 128;
}`
	dir := t.TempDir()
	path := filepath.Join(dir, "runsc")
	build := exec.CommandContext(t.Context(), "gcc", "-static", "-o", path, place(t, filepath.Join(dir, "old.c"), source, 0o644))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r, err := opened(t, path).Probe(t.Context(), imagetest.Host(t))
	if err != nil || r.Blocked == nil || !strings.Contains(r.Blocked.Message, "-pass-fd") || !strings.Contains(r.Blocked.Hint, "install gvisor.dev") {
		t.Errorf("%v, %+v", err, r.Blocked)
	}
}

// A runsc that is replaced is tried anew; one that stays is tried once.
func TestRunscIsReplaced(t *testing.T) {
	content, err := os.ReadFile(runscForTests(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "runsc")
	d := opened(t, place(t, path, string(content), 0o755))
	plan := planFor(t, d, "replaced", sandbox.Limits{})
	if _, err := d.Probe(t.Context(), imagetest.Host(t)); err != nil || d.local.tries.Load() != 1 {
		t.Errorf("%d tries, %v", d.local.tries.Load(), err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var gone *sandbox.Error
	if _, err := d.Create(t.Context(), plan); !errors.As(err, &gone) || gone.Code != sandbox.CodeDriverUnavailable {
		t.Errorf("without runsc: %v", err)
	}
	place(t, path, "#!/bin/sh\nexit 1\n", 0o755)
	if r, err := d.Probe(t.Context(), imagetest.Host(t)); err != nil || r.Blocked == nil {
		t.Errorf("a broken one: %v, %+v", err, r)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	place(t, path, string(content), 0o755)
	if r, err := d.Probe(t.Context(), imagetest.Host(t)); err != nil || r.Blocked != nil || d.local.tries.Load() != 2 {
		t.Errorf("there again: %v, %+v, %d tries", err, r.Blocked, d.local.tries.Load())
	}
}

// Whichever of a machine's processes is killed, all end, the machine says so, and nothing is
// left of it.
func TestProcessesAreKilled(t *testing.T) {
	runsc := runscForTests(t)
	for _, which := range []string{"runsc", "runsc-sandbox", "runsc-gofer"} {
		t.Run(which, func(t *testing.T) {
			ledger.Check(t)
			d := opened(t, runsc)
			m := create(t, d, "killed-"+which[5:], sandbox.Limits{})
			p, err := m.Start(t.Context(), guest.Command{Args: []string{"/bin/sleep", "60"}}, guest.Streams{})
			if err != nil {
				t.Fatal(err)
			}
			all := proctree.Below(os.Getpid())
			pid := processNamed(m.machine, which)
			if pid == 0 {
				t.Fatalf("there is no %s", which)
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			select {
			case <-m.Dead():
			case <-time.After(20 * time.Second):
				t.Fatal("the machine lives")
			}
			if death := m.Death(); death.Kind != driver.DeathAgent || death.Evidence == "" {
				t.Errorf("%+v", death)
			}
			if _, err := p.Wait(t.Context()); err == nil {
				t.Error("a process outlived its machine")
			}
			gone(t, all)
		})
	}
}

// A sentry that is stopped does not answer: readings go on, and Destroy ends it.
func TestSentryHangs(t *testing.T) {
	ledger.Check(t)
	m := create(t, opened(t, runscForTests(t)), "hangs", sandbox.Limits{})
	if err := unix.Kill(processNamed(m.machine, "runsc-sandbox"), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for range 5 {
		if _, err := m.Usage(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(begun); took > 2*askTimeout+time.Second {
		t.Errorf("five readings took %v", took)
	}
	if err := m.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
}

// What a runsc does not do as it was asked is seen: here, processes in the machine's group
// that are a user's whom the sandbox does not have, or that nothing confines.
func TestVerify(t *testing.T) {
	d := opened(t, runscForTests(t))
	m := create(t, d, "verify", sandbox.Limits{})
	if err := m.verify(); err != nil {
		t.Fatalf("the control: %v", err)
	}
	files, err := m.group.EntryFiles()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(files)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read x; exec sleep 60")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range m.group.Dirs() {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.verify(); err == nil || !strings.Contains(err.Error(), "which is not the sandbox's") {
		t.Errorf("a process of root's in the sandbox's group: %v", err)
	}
	_, _ = io.WriteString(in, "\n")
	kill(cmd)
	for range 20 { // the machine moves the limit by itself, too
		if err := m.group.SetMemoryLimit(m.plan.Limits.MemoryBytes + 2*startMemory); err != nil {
			t.Fatal(err)
		}
		if err = m.verify(); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "memory limit") {
		t.Errorf("too much memory: %v", err)
	}
}

// Hosts on which a group can be made only in part say so.
func TestFindings(t *testing.T) {
	runscForTests(t)
	h, err := cgroup.Detect(cgroup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := &common{hierarchy: h}
	seen := map[string]bool{}
	for _, f := range l.findings("v") {
		if seen[f.Feature] {
			t.Errorf("%s is answered twice", f.Feature)
		}
		seen[f.Feature] = true
	}
	for _, f := range sandbox.Features() {
		if !seen[f.Name] && f.Name != sandbox.FeatureNetwork { // its machines have no endpoints
			t.Errorf("%s is not answered", f.Name)
		}
	}
}
