//go:build linux

package template

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"pinfold/sandbox"
)

const fullEnv = "PINFOLD_TEST_TEMPLATE_FULL"

// A disk that becomes full while an image is unpacked, or kept before that, is said, and
// nothing of the image stays on it: there is room for a smaller one.
func TestDiskFull(t *testing.T) {
	dir := os.Getenv(fullEnv)
	if dir == "" {
		// In namespaces of its own every user may mount a small disk.
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDiskFull$", "-test.v") //nolint:gosec // this test
		cmd.Env = append(os.Environ(), fullEnv+"="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS: TestDiskFull")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	s, err := Open(filepath.Join(dir, "templates"), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 4<<20)
	_, _ = rand.Read(large)
	archive := tarOf(t, entry{name: "small", content: "x"}, entry{name: "large", content: string(large)})
	for _, f := range []Format{Auto, Root} {
		_, err = s.Import(t.Context(), bytes.NewReader(archive), Import{Name: "app", Format: f})
		if codeOf(err) != sandbox.CodeInsufficient {
			t.Errorf("%q: %v", f, err)
		}
		empty(t, s)
	}
	add(t, s, "app", tarOf(t, bottom...))
}
