package guest

import (
	"slices"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// agentCodes are the error codes that an agent may report.
var agentCodes = []string{
	sandbox.CodeSpecInvalid, sandbox.CodePathInvalid, sandbox.CodeNotRegularFile, sandbox.CodeFileNotFound,
	sandbox.CodeTooLarge, sandbox.CodeSetupFailed, sandbox.CodeInternal, sandbox.CodeCommandNotFound,
	sandbox.CodeCommandNotRunnable, sandbox.CodeResourceUnavailable,
}

var fileTypes = []string{wire.TypeFile, wire.TypeDir, wire.TypeSymlink, wire.TypeOther}

// maxSignal is the highest signal number of Linux.
const maxSignal = 64

// checkOutcome checks what any close frame may carry.
func checkOutcome(o wire.Outcome) error {
	if f := o.Error; f != nil {
		if !slices.Contains(agentCodes, f.Code) || len(f.Message) > wire.MaxText || len(f.Step) > 100 {
			return broken("an error that cannot be")
		}
	}
	if s := o.Stat; s != nil && (!slices.Contains(fileTypes, s.Type) || s.Size < 0 || s.Mode > 0o7777 || s.UID < 0 || s.GID < 0) {
		return broken("a file that cannot be")
	}
	if o.Size < 0 || o.Unprintable < 0 || o.Unprintable > wire.MaxWalk {
		return broken("a count that cannot be")
	}
	return nil
}

// checkExit checks how a process is said to have ended.
func checkExit(e *wire.Exit) error {
	switch {
	case e == nil:
		return broken("an exit that says nothing")
	case e.Code < 0 || e.Code > 255 || e.Signal < 0 || e.Signal > maxSignal || (e.Signal != 0 && e.Code != 0):
		return broken("an exit that cannot be")
	case e.WallNS < 0 || e.CPUNS < 0:
		return broken("an exit with negative times")
	}
	return nil
}

// checkEntry checks one match of a glob.
func checkEntry(e wire.FileEntry) error {
	if sandbox.CheckGuestPath("", e.Path) != nil || !slices.Contains(fileTypes, e.Type) || e.Size < 0 {
		return broken("a file that cannot be")
	}
	return nil
}

// faultError returns an agent's fault as the error that callers see.
func faultError(f *wire.Fault) error {
	if f == nil {
		return nil
	}
	return &sandbox.Error{Code: f.Code, Message: sandbox.SafeText(f.Message, wire.MaxText)}
}
