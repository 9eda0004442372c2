//go:build linux

package agent

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// The host tells whose limit it was, by these words.
func TestNoProcessIsSaidInTheWordsOfTheProtocol(t *testing.T) {
	f := startFault("ls", &spawn.StepError{Step: spawn.StepClone, Errno: unix.EAGAIN})
	if f.Code != sandbox.CodeResourceUnavailable || f.Message != "starting ls: "+wire.NoProcesses {
		t.Errorf("%+v", f)
	}
	f = startFault("ls", &spawn.StepError{Step: spawn.StepClone, Errno: unix.ENOMEM})
	if f.Code != sandbox.CodeResourceUnavailable || strings.HasSuffix(f.Message, wire.NoProcesses) {
		t.Errorf("%+v", f)
	}
}
