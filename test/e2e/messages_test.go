//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What people read in text mode, where the engine's half and the command
// line's half could each say it, or neither.
func TestWhatPeopleAreTold(t *testing.T) {
	bin := pinfold(t)
	t.Run("a compiler's message, once", func(t *testing.T) {
		o := start(t, bin, "int main(void) { return undeclared; }\n", "run", "-l", "c", "-")
		if n := strings.Count(o.stderr, "first use in this function"); o.code != 1 || n != 1 {
			t.Errorf("exit status %d, said %d times:\n%s", o.code, n, o.stderr)
		}
		if !strings.HasSuffix(o.stderr, "\npinfold: compiling failed with exit status 1\n") {
			t.Errorf("%q", o.stderr)
		}
	})
	t.Run("what was cut", func(t *testing.T) {
		o := start(t, bin, "print('x' * 2999999)", "run", "-l", "python", "-")
		if o.code != 0 || len(o.stdout) != 1<<20 || o.stderr != "pinfold: stdout was cut at 1MiB of 2.9MiB; --output-limit 4MiB keeps it\n" {
			t.Errorf("exit status %d, %d bytes, %q", o.code, len(o.stdout), o.stderr)
		}
		if o = start(t, bin, "print('x' * 2999999)", "run", "-l", "python", "--output-limit", "4MiB", "-"); len(o.stdout) != 3000000 || o.stderr != "" {
			t.Errorf("with the hint: %d bytes, %q", len(o.stdout), o.stderr)
		}
	})
	t.Run("a requirement that nothing meets", func(t *testing.T) {
		o := start(t, bin, "print(1)", "run", "-l", "python", "--require", "io", "-")
		if o.code != 126 || !strings.Contains(o.stderr, "pinfold: --require: io cannot") || !strings.Contains(o.stderr, "hint: leave io out") {
			t.Errorf("%+v", o)
		}
	})
	t.Run("files that do not fit", func(t *testing.T) {
		big := filepath.Join(t.TempDir(), "big")
		write(t, big, strings.Repeat("x", 2<<20))
		args := []string{"run", "-l", "python", "--disk", "1MiB", "--file", big, "-"}
		o := start(t, bin, "print(1)", args...)
		if o.code != 125 || o.stderr != "pinfold: big: the sandbox's disk is full\nhint: --disk 4MiB\n" {
			t.Errorf("%+v", o)
		}
		if o = start(t, bin, "console.log(1)", "run", "-l", "typescript", "--disk", "64KiB", "-"); o.code != 125 || o.stderr != "pinfold: --disk: 64KiB is too small for the files that TypeScript itself needs\nhint: --disk 256MiB\n" {
			t.Errorf("the language's own: %+v", o)
		}
		args[4] = "4MiB"
		if o = start(t, bin, "print(1)", args...); o.code != 0 {
			t.Errorf("with the hint: %+v", o)
		}
	})
	t.Run("a mount of root's own", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "two words")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		o := start(t, bin, "open('/data/x', 'w').write('1')", "run", "-l", "python", "--mount", dir+":/data:rw", "-")
		if os.Geteuid() != 0 {
			if o.code != 0 {
				t.Errorf("a user's own directory: %+v", o)
			}
			return
		}
		fix := "install -d -o 1000 -g 1000 '" + dir + "/shared'"
		if o.code != 125 || !strings.Contains(o.stderr, "who then own on the host") || !strings.Contains(o.stderr, "\nhint: "+fix+"\n") {
			t.Fatalf("%+v", o)
		}
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", fix).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		dir += "/shared"
		if o = start(t, bin, "open('/data/x', 'w').write('1')", "run", "-l", "python", "--mount", dir+":/data:rw", "-"); o.code != 0 {
			t.Errorf("after the hint: %+v", o)
		}
	})
	again(t)
}
