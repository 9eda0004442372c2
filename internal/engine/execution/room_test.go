package execution

import (
	"errors"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// A disk without inodes is not called full: the limit is named, with what raises it.
func TestNoInodesIsNotAFullDisk(t *testing.T) {
	s := &Session{Plan: driver.Plan{Limits: sandbox.Limits{Inodes: 16384}}}
	s.Plan.Limits.DiskBytes = 1 << 20
	noBlocks := &sandbox.Error{Code: sandbox.CodeTooLarge, Message: "a: " + wire.DiskFull}
	if e := sandbox.AsError(s.RoomError(noBlocks)); e.Message != noBlocks.Message || e.Hint != `make a larger sandbox: "limits": {"disk_bytes": 2097152}` {
		t.Errorf("%+v", e)
	}
	full := &sandbox.Error{Code: sandbox.CodeTooLarge, Message: "a/b: " + wire.NoInodes}
	e := sandbox.AsError(s.RoomError(full))
	if e.Field != "limits.inodes" || e.Message != "a/b: the limit of 16384 inodes (files and directories) is reached" || e.Hint != `make a larger sandbox: "limits": {"inodes": 32768}` {
		t.Errorf("%+v", e)
	}
	for _, other := range []error{nil, errors.New("x")} {
		if got := s.RoomError(other); !errors.Is(got, other) {
			t.Errorf("%v became %v", other, got)
		}
	}
}

// A sandbox that has as many processes as it may is not the host's want of room.
func TestNoProcessesNameTheLimit(t *testing.T) {
	s := &Session{Plan: driver.Plan{Limits: sandbox.Limits{Processes: 3}}}
	full := &sandbox.Error{Code: sandbox.CodeResourceUnavailable, Message: "starting ls: " + wire.NoProcesses}
	for name, own := range map[string]driver.Usage{"counted": {ProcessesDenied: 1}, "seen": {ProcessesFull: true}} {
		e := sandbox.AsError(s.ProcessError(full, own))
		if e.Code != sandbox.CodeTooLarge || e.Field != "limits.processes" || e.Message != "starting ls: the limit of 3 processes (and threads) is reached" ||
			e.Hint != `make a larger sandbox: "limits": {"processes": 6}` {
			t.Errorf("%s: %+v", name, e)
		}
		other := &sandbox.Error{Code: sandbox.CodeCommandNotFound, Message: "ls: not found"}
		if got := s.ProcessError(other, own); !errors.Is(got, other) {
			t.Errorf("%s: %v became %v", name, other, got)
		}
	}
	if got := s.ProcessError(full, driver.Usage{Processes: 2}); !errors.Is(got, full) {
		t.Errorf("the host's want became %v", got)
	}
}
