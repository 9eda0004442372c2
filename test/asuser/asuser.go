//go:build linux

// Package asuser runs a test once more as an ordinary user, by starting the
// test binary again under an id that nobody has. Tests run as root in CI; what
// Pinfold does without privilege is another path through the code and needs
// the same tests.
//
// It is for whole tests, not for a part of one: the kernel's rules for a process
// that was once root differ from those for one that never was.
package asuser

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/test/ledger"
)

// ID is the user and group id of the ordinary user: in a range that no
// distribution and no systemd hands out (systemd's UIDS-GIDS documentation). Each
// process of root's has one of its own as long as it lives: the kernel counts tasks by
// user, and a fork bomb of one package must not take those of another beside it.
var ID = free()

// free finds an id that no other process holds, and holds it: a socket that stays open has
// an abstract address, which apart's namespaces do not hide. It begins anywhere: what a
// process that was killed has left behind may still run with its id.
func free() int {
	const first, ids = 60_600, 100
	if os.Geteuid() != 0 {
		return os.Geteuid()
	}
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	for try := 0; try < ids && err == nil; try++ {
		id := first + (os.Getpid()+try)%ids
		switch err = unix.Bind(s, &unix.SockaddrUnix{Name: fmt.Sprintf("@pinfold-asuser-%d", id)}); err {
		case nil:
			return id
		case unix.EADDRINUSE:
			err = nil
		}
	}
	panic(fmt.Sprintf("asuser: none of %d ids is free: %v", ids, err))
}

// Rerun runs the named test as an ordinary user, with the environment variables
// in addition to a clean environment, and fails if it fails. programs are
// packages of this module that the test needs built; it cannot build there.
// Without root the named test has run as an ordinary user already; then Rerun
// skips.
func Rerun(t *testing.T, name string, programs, env []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("this user is an ordinary one, so %s was this test", name)
	}
	dir := public(t)
	for _, pkg := range programs {
		install(t, filepath.Join(dir, path.Base(pkg)), agenttest.Program(t, pkg))
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "test")
	install(t, binary, self)
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, ID, ID); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^"+name+"$", "-test.v", "-test.count=1", "-test.timeout=10m")
	cmd.Dir = home
	cmd.Env = append([]string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "TMPDIR=" + home, agenttest.DirEnv + "=" + dir,
		"CI=" + os.Getenv("CI"), "PINFOLD_TEST_ALL=" + os.Getenv("PINFOLD_TEST_ALL"),
		ledger.EmulatedEnv + "=" + os.Getenv(ledger.EmulatedEnv),
	}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(ID), Gid: uint32(ID), Groups: []uint32{}}, //nolint:gosec // it is small
		Pdeathsig:  syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	report(t, out)
	if err != nil {
		t.Fatalf("as user %d: %v", ID, err)
	}
	if !bytes.Contains(out, []byte("--- PASS: "+name)) && !bytes.Contains(out, []byte("--- SKIP: "+name)) {
		t.Fatalf("as user %d: %s did not run", ID, name)
	}
}

// report shows the other run: all of it when something is wrong, otherwise only
// what was skipped.
func report(t *testing.T, out []byte) {
	t.Helper()
	failed := bytes.Contains(out, []byte("--- FAIL")) || bytes.Contains(out, []byte("panic:")) || bytes.Contains(out, []byte("DATA RACE"))
	var shown []string
	lines := strings.Split(string(out), "\n")
	for i, line := range lines {
		if failed || strings.Contains(line, "--- SKIP") {
			shown = append(shown, line)
			if !failed && i+1 < len(lines) { // the reason
				shown = append(shown, lines[i+1])
			}
		}
	}
	if len(shown) > 0 {
		t.Logf("as user %d:\n%s", ID, strings.Join(shown, "\n"))
	}
}

// public makes a directory that everybody can enter.
func public(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pinfold-asuser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // it is the point
		t.Fatal(err)
	}
	return dir
}

func install(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
}
