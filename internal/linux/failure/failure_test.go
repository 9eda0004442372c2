//go:build linux

package failure

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/idblock"
	"pinfold/sandbox"
)

func TestOf(t *testing.T) {
	known := &sandbox.Error{Code: sandbox.CodeConflict, Message: "you went away", Hint: "come again"}
	for _, c := range []struct {
		err        error
		code, hint string
	}{
		{fmt.Errorf("open x: %w", unix.EMFILE), sandbox.CodeResourceUnavailable, HintDescriptors},
		{&os.PathError{Op: "write", Path: "x", Err: unix.ENOSPC}, sandbox.CodeResourceUnavailable, "try again"},
		{errors.Join(errors.New("x"), idblock.ErrNone), sandbox.CodeResourceUnavailable, "try again"},
		{unix.EPERM, sandbox.CodeSetupFailed, "pinfold doctor"},
		{fmt.Errorf("a step: %w", known), known.Code, known.Hint},
	} {
		e := Of("make it", c.err)
		if e.Code != c.code || !strings.Contains(e.Hint, c.hint) || !errors.Is(e, c.err) && e != known {
			t.Errorf("%v: %+v", c.err, e)
		}
		if e != known && e.Message != "cannot make it: "+c.err.Error() {
			t.Errorf("%v: %q", c.err, e.Message)
		}
	}
}

// The last descriptors are not for new machines.
func TestNoDescriptors(t *testing.T) {
	if err := NoDescriptors(); err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	err := NoDescriptors()
	if back := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); back != nil {
		t.Fatal(back)
	}
	if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeResourceUnavailable || e.Hint != HintDescriptors || !strings.Contains(e.Message, "of the 3 ") {
		t.Errorf("%+v", err)
	}
}
