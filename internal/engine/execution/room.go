package execution

import (
	"fmt"
	"strings"

	"pinfold/internal/driver"
	"pinfold/internal/engine/verdict"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// RoomError names the limit behind an error of files that find no room.
func (s *Session) RoomError(err error) error {
	e := sandbox.AsError(err)
	if e == nil || e.Code != sandbox.CodeTooLarge {
		return err
	}
	if strings.HasSuffix(e.Message, wire.DiskFull) {
		return e.WithAdvice(s.larger(sandbox.CauseDisk))
	}
	inodes := s.Plan.Limits.Inodes
	name, ok := strings.CutSuffix(e.Message, wire.NoInodes)
	if !ok || inodes <= 0 {
		return err
	}
	c := *e
	c.Field, c.Message = "limits.inodes", fmt.Sprintf("%sthe limit of %d inodes (files and directories) is reached", name, inodes)
	return c.WithAdvice(s.larger(sandbox.CauseInodes))
}

// ProcessError names the limit behind a process that could not be made, where own, the
// counters since before it was asked for, says that the sandbox has as many as it may.
// Else the host has no room for more.
func (s *Session) ProcessError(err error, own driver.Usage) error {
	e := sandbox.AsError(err)
	if e == nil || own.ProcessesDenied == 0 && !own.ProcessesFull {
		return err
	}
	name, ok := strings.CutSuffix(e.Message, wire.NoProcesses)
	if !ok {
		return err
	}
	c := *e
	c.Code, c.Field, c.Message = sandbox.CodeTooLarge, "limits.processes", fmt.Sprintf("%sthe limit of %d processes (and threads) is reached", name, s.Plan.Limits.Processes)
	return c.WithAdvice(s.larger(sandbox.CauseProcesses))
}

// larger is advice for whoever finds a limit of the sandbox too small.
func (s *Session) larger(limit sandbox.CauseKind) sandbox.Advice {
	more, ok := verdict.Evidence{Limits: s.Plan.Limits}.LimitCause(limit, 0, "").Advice.Find(sandbox.FixSet)
	if !ok { // it is as large as can be
		return nil
	}
	return sandbox.Advise("make a larger sandbox: %s", more)
}
