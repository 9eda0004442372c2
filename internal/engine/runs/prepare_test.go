package runs

import (
	"errors"
	"testing"

	"pinfold/internal/language"
	"pinfold/sandbox"
)

// TestLanguageFilesThatDoNotFit: the error was once the path of a file that nobody has
// asked for, without a word of the limit.
func TestLanguageFilesThatDoNotFit(t *testing.T) {
	ts, err := language.Find("typescript")
	if err != nil {
		t.Fatal(err)
	}
	j := &job{language: ts, spec: sandbox.Spec{Limits: sandbox.Limits{DiskBytes: 64 << 10, Inodes: 1 << 20}}}
	full := (&sandbox.Error{Code: sandbox.CodeTooLarge, Field: ownFiles, Message: "/tmp/.pinfold/sucrase.cjs: the sandbox's disk is full"}).
		WithAdvice(sandbox.Advise("make the sandbox with %s", sandbox.Set("limits.disk_bytes", 128<<10)))
	e := sandbox.AsError(j.ownRoom(full))
	if e.Field != "limits.disk_bytes" || e.Message != "64KiB is too small for the files that TypeScript itself needs" || e.Hint != `"limits": {"disk_bytes": 268435456}` {
		t.Errorf("%+v", e)
	}
	if e = sandbox.AsError(j.ownRoom(full.WithAdvice(sandbox.Advise("%s", sandbox.Set("limits.inodes", 1))))); e.Field != "limits.inodes" || e.Hint != `"limits": {"inodes": 2097152}` {
		t.Errorf("%+v", e)
	}
	for _, other := range []error{nil, errors.New("x"), full.WithField("files[0]"), full.WithAdvice(nil)} {
		if got := j.ownRoom(other); !errors.Is(got, other) {
			t.Errorf("%v became %v", other, got)
		}
	}
}
