//go:build linux

package inside

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pinfold"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

var update = flag.Bool("update", false, "rewrite docs/compatibility.md")

const (
	docsFile     = "../../docs/compatibility.md"
	machinesFile = "testdata/machines.md" // what other hosts' tests found, if there is such
)

// Every row of docs/compatibility.md is so, as root and as an ordinary user.
func TestCompatibility(t *testing.T) {
	ledger.Check(t)
	local := open(t)
	for _, rows := range [][]row{found, refused} {
		for _, r := range rows {
			t.Run(r.what, func(t *testing.T) { r.check(t, local) })
		}
	}
	if os.Geteuid() == 0 {
		t.Run("as user", func(t *testing.T) { asuser.Rerun(t, "TestCompatibility", []string{agenttest.Agent}, nil) })
	}
}

func (r row) check(t *testing.T, local *pinfold.Local) {
	t.Helper()
	if _, err := exec.LookPath(r.needs); r.needs != "" && err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("PINFOLD_TEST_ALL") == "1" {
			t.Fatalf("the host has no %s; see scripts/setup", r.needs)
		}
		t.Skip("the host has no " + r.needs)
	}
	result, err := local.Run(t.Context(), sandbox.Spec{Language: "bash", Code: r.code}, pinfold.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := strings.TrimSpace(result.Stdout + result.Stderr)
	want := strings.ReplaceAll(r.want, "{HOST_USR}", fmt.Sprint(size(t, "/usr")>>10))
	if !regexp.MustCompile(`^(?:` + want + `)$`).MatchString(out) {
		t.Errorf("%s printed %q, not %q (%s, %+v)", r.code, out, want, result.Status, result.Cause)
	}
}

// Calls that fail with EPERM are named in the result, and those with ENOSYS are not:
// libraries try these all the time.
func TestRefusedCallsAreNamed(t *testing.T) {
	ledger.Check(t)
	local := open(t)
	code := "import ctypes\nl = ctypes.CDLL(None)\nl.ptrace(0, 0, 0, 0)\nl.msgget(1, 0o1600)\nl.unshare(0x10000000)\nl.syscall(435, None, 0)\nl.syscall(9999)\n"
	result, err := local.Run(t.Context(), sandbox.Spec{Language: "python", Code: code}, pinfold.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []sandbox.DeniedSyscall{{Name: "msgget", Count: 1}, {Name: "ptrace", Count: 1}, {Name: "unshare", Count: 1}}
	if diff := cmp.Diff(want, result.DeniedSyscalls); diff != "" {
		t.Errorf("denied_syscalls (-want +got):\n%s", diff)
	}
	if os.Geteuid() == 0 {
		t.Run("as user", func(t *testing.T) { asuser.Rerun(t, "TestRefusedCallsAreNamed", []string{agenttest.Agent}, nil) })
	}
}

// What sysinfo(2) says is the host's, and so is the number of processes in the links of
// /proc, as docs/compatibility.md and SECURITY.md say.
func TestHostIsSeen(t *testing.T) {
	ledger.Check(t)
	local := open(t)
	const processes = 100 // many more than the sandbox has
	for range processes {
		sleep := exec.CommandContext(t.Context(), "sleep", "infinity")
		if err := sleep.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sleep.Wait() })
	}
	code := fmt.Sprintf("import json, os\nprint(json.dumps([*os.getloadavg(), os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'), os.stat('/proc').st_nlink > %d]))\n", processes)
	for left, want := 20, hostShows(t); ; left-- {
		result, err := local.Run(t.Context(), sandbox.Spec{Language: "python", Code: code}, pinfold.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		before := want
		want = hostShows(t)
		var got []any
		decode(t, []byte(result.Stdout), &got)
		if slices.Equal(got, want) || slices.Equal(got, before) {
			return
		}
		if left == 0 || slices.Equal(before, want) { // else the load was another one meanwhile, as every five seconds
			t.Fatalf("what is seen of the host (-want +got):\n%s", cmp.Diff(want, got))
		}
	}
}

// hostShows is the host's load and memory, and that it has many processes.
func hostShows(t *testing.T) []any {
	t.Helper()
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		t.Fatal(err)
	}
	load := func(i int) float64 { return float64(s.Loads[i]) / (1 << 16) }
	return []any{load(0), load(1), load(2), float64(uint64(s.Totalram) * uint64(s.Unit)), true} //nolint:unconvert // not 64 bits on every architecture
}

// size is that of the file system that holds a file, in bytes.
func size(t *testing.T, name string) int64 {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs(name, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Blocks) * s.Bsize //nolint:gosec // no disk is that large
}

// TestDocs keeps the page what the rows say.
func TestDocs(t *testing.T) {
	if os.Getenv(agenttest.DirEnv) != "" {
		t.Skip("the checkout is not here")
	}
	want := document(t)
	if *update {
		if err := os.WriteFile(docsFile, []byte(want), 0o644); err != nil { //nolint:gosec // documentation
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Fatalf("docs/compatibility.md is not what the rows say; run go test ./test/inside -run TestDocs -update (-want +got):\n%s", diff)
	}
}

func document(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# What programs find\n\n" +
		"Generated by `go test ./test/inside -run TestDocs -update`; do not edit. Each row is tried in a sandbox with the default limits, as root and as an ordinary user (`test/inside.TestCompatibility`).\n" +
		"What the tools of hosts say about processors, memory, disk and time is compared with the limits in cold, warm and living sandboxes (`test/inside.TestTools`).\n")
	table := func(title, first, second string, rows []row) {
		fmt.Fprintf(&b, "\n## %s\n\n| %s | %s |\n|---|---|\n", title, first, second)
		for _, r := range rows {
			fmt.Fprintf(&b, "| %s | %s |\n", r.what, r.says)
		}
	}
	table("What there is", "what", "what a program finds", found)
	table("What is refused", "what", "how a program notices, and what to do", refused)
	if machines, err := os.ReadFile(machinesFile); err == nil {
		b.WriteString("\n## Other hosts\n\n" + strings.TrimSpace(string(machines)) + "\n")
	} else if !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return b.String()
}
