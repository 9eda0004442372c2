package guest

import (
	"slices"
	"strings"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// agentCodes are the error codes that an agent may report.
var agentCodes = []string{
	sandbox.CodeSpecInvalid, sandbox.CodePathInvalid, sandbox.CodeNotRegularFile, sandbox.CodeFileNotFound,
	sandbox.CodeTooLarge, sandbox.CodeSetupFailed, sandbox.CodeInternal, sandbox.CodeCommandNotFound,
	sandbox.CodeCommandNotRunnable, sandbox.CodeResourceUnavailable, sandbox.CodePortClosed, sandbox.CodeConflict,
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
	if s := o.Stat; s != nil {
		if err := checkFile(s.Type, s.Size, s.Mode, s.UID, s.GID, s.Target); err != nil {
			return err
		}
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

// checkFile checks what is said of a file.
func checkFile(kind string, size int64, mode uint32, uid, gid int, target string) error {
	switch {
	case !slices.Contains(fileTypes, kind) || size < 0 || mode > 0o7777 || uid < 0 || gid < 0:
		return broken("a file that cannot be")
	case target != "" && kind != wire.TypeSymlink || len(target) > wire.MaxPath:
		return broken("a link that cannot be")
	}
	return nil
}

// checkListed checks one entry of a listing.
func checkListed(e wire.Entry) error {
	if sandbox.CheckGuestPath("", e.Path) != nil {
		return broken("a file that cannot be")
	}
	return checkFile(e.Type, e.Size, e.Mode, e.UID, e.GID, e.Target)
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
	e := &sandbox.Error{Code: f.Code, Message: sandbox.SafeText(f.Message, wire.MaxText)}
	if f.Step == wire.StepOpenDir {
		e.Field = "dir"
	}
	e.Hint = faultHint(e)
	return e
}

// faultHint is what helps against what an agent most often reports, or "".
func faultHint(e *sandbox.Error) string {
	switch {
	case e.Code == sandbox.CodeFileNotFound:
		return "list the directory to see what is there; relative paths begin at the home directory"
	case e.Code == sandbox.CodeCommandNotFound:
		return "see whether the sandbox's template has it; a line of several words is for a shell"
	case strings.HasSuffix(e.Message, wire.ReadOnly):
		return "write below the home directory, or in /tmp"
	}
	return ""
}
