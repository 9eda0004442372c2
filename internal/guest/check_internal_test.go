package guest

import (
	"testing"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// What an agent most often reports has a hint, whatever else it says.
func TestFaultsHaveHints(t *testing.T) {
	for _, f := range []wire.Fault{
		{Code: sandbox.CodeFileNotFound, Message: "a: no such file or directory"},
		{Code: sandbox.CodeCommandNotFound, Message: "a: no such command in the sandbox"},
		{Code: sandbox.CodePathInvalid, Message: "a: " + wire.ReadOnly},
	} {
		if e := sandbox.AsError(faultError(&f)); e.Hint == "" || e.Code != f.Code || e.Message != f.Message {
			t.Errorf("%+v", e)
		}
	}
	if e := sandbox.AsError(faultError(&wire.Fault{Code: sandbox.CodeInternal, Message: "a"})); e.Hint != "" {
		t.Errorf("%+v", e)
	}
}
