//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/config/defaults"
	"pinfold/sandbox"
	"pinfold/test/ledger"
	"pinfold/test/smallimage"
)

// imported makes a template that the programs of this test find, and returns its name.
func imported(t *testing.T) string {
	t.Helper()
	state := t.TempDir()
	t.Setenv(defaults.StateEnv, state)
	smallimage.Import(t, filepath.Join(state, "templates"), "tiny:1", "of the image")
	return "tiny:1"
}

// Programs run in an image as they do among the host's programs, and see nothing of those.
func TestImage(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	in := []string{"--template", imported(t)}
	r, _ := run(t, bin, "python", `
import os, sys, json
print(sys.version_info.major, open("/etc/said").read(), os.getuid(), os.getcwd(), os.path.exists("/usr/bin/tar"), os.path.exists("/usr/bin/python3"))
open("made.txt", "w").write("made")
{"answer": 42}
`, append(in, "--artifact", "*.txt")...)
	if want := "3 of the image\n 1000 /home/user False True\n"; r.Status != sandbox.StatusSucceeded || r.Stdout != want {
		t.Errorf("%s by %+v, %q, want %q\n%s", r.Status, r.Cause, r.Stdout, want, r.Stderr)
	}
	if len(r.Artifacts) != 1 || r.Artifacts[0].Path != "made.txt" || len(r.Results) != 1 {
		t.Errorf("artifacts %+v, results %+v", r.Artifacts, r.Results)
	}
	host, _ := run(t, bin, "sh", "test -x /usr/bin/tar")
	if host.Status != sandbox.StatusSucceeded {
		t.Errorf("control: the host's programs are not seen without a template either: %+v", host.Cause)
	}
	if r, _ = run(t, bin, "sh", "echo $((6 * 7)); echo > /etc/said", in...); r.Stdout != "42\n" || r.Status != sandbox.StatusFailed {
		t.Errorf("%+v", r)
	}
	if r, _ = run(t, bin, "python", "x = bytearray(1 << 30)", append(in, "--memory", "128MiB")...); r.Cause.Kind != sandbox.CauseMemory {
		t.Errorf("beyond its memory it is ended by %+v", r.Cause)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "shown"), []byte("shown\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, _ = run(t, bin, "sh", "read x < /data/shown; echo $x; echo > /data/shown", append(in, "--mount", dir+":/data")...); r.Stdout != "shown\n" || r.Status != sandbox.StatusFailed {
		t.Errorf("%+v", r)
	}
	for name, c := range map[string]struct {
		args []string
		says string
		code int
	}{
		"a language that it lacks":   {append(in, "--language", "ruby"), "build the image with it", 125},
		"a driver that cannot":       {append(in, "--language", "sh", "--driver", "process"), "take the native driver", 126},
		"a template that is not one": {[]string{"--template", "tiny:2", "--language", "sh"}, "pinfold template list names", 125},
	} {
		if o := start(t, bin, "x", append([]string{"run", "-"}, c.args...)...); o.code != c.code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	again(t)
}
