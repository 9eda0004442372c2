//go:build linux

package library

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
)

// While a program gives a name to one file and another, whoever fetches it gets one
// of them whole, or an error that says why; not the end of a connection.
func TestFetchWhileFilesAreRenamed(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		ctx := t.Context()
		b := w.create(t, sandbox.Create{})
		sizes := map[int]bool{100_000: true, 1_000_000: true}
		p := w.start(t, b, sandbox.Command{Shell: `
head -c 100000 /dev/zero | tr '\0' a > a; head -c 1000000 /dev/zero | tr '\0' b > b
while true; do cp a f.new; mv f.new f; cp b f.new; mv f.new f; done`})
		_, err := b.Stat(ctx, "f")
		for late := time.Now().Add(time.Minute); err != nil && time.Now().Before(late); _, err = b.Stat(ctx, "f") {
			time.Sleep(5 * time.Millisecond)
		}
		ok(t, err)
		whole := 0
		for range 200 {
			var out bytes.Buffer
			_, err := b.ReadFile(ctx, "f", 0, -1, &out)
			var known *sandbox.Error
			switch {
			case err == nil && (!sizes[out.Len()] || bytes.Count(out.Bytes(), out.Bytes()[:1]) != out.Len()):
				t.Errorf("%d bytes of two files", out.Len())
			case err == nil:
				whole++
			case !errors.As(err, &known) || known.Code != sandbox.CodeConflict && known.Code != sandbox.CodeFileNotFound:
				t.Errorf("after %d bytes: %v", out.Len(), err)
			}
		}
		if whole == 0 {
			t.Error("nothing could be fetched")
		}
		ok(t, p.Signal(ctx, "SIGKILL"))
		_, err = p.Wait(ctx)
		ok(t, err)
		_, err = b.Exec(ctx, sandbox.Command{Shell: "true"}, client.ExecOptions{})
		ok(t, err)
	})
}
