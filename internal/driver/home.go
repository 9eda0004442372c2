package driver

import (
	"fmt"

	"pinfold/internal/image"
	"pinfold/sandbox"
)

// fitsHome refuses limits in which the sandbox's copy of what the image has in its user's
// home cannot lie.
func fitsHome(t image.Template, l sandbox.Limits) error {
	refuse := func(field, has string, least int64) error {
		return (&sandbox.Error{
			Code: sandbox.CodeLimitInvalid, Field: field, Message: fmt.Sprintf("the template %s has %s in the home of its user, of which the sandbox gets a copy", sandbox.SafeText(t.Name, 60), has),
		}).WithAdvice(sandbox.Advise("ask for more: %s", sandbox.Set(field, least)))
	}
	switch {
	case t.Home.Bytes > l.DiskBytes && l.DiskBytes > 0:
		return refuse("limits.disk_bytes", sandbox.FormatSize(t.Home.Bytes), roomFor(t.Home.Bytes, l.DiskBytes))
	case t.Home.Entries >= l.Inodes && l.Inodes > 0:
		return refuse("limits.inodes", fmt.Sprintf("%d files and directories", t.Home.Entries), roomFor(t.Home.Entries, l.Inodes))
	}
	return nil
}

// roomFor is the least power of two times a limit that leaves as much again as is there.
func roomFor(there, limit int64) int64 {
	for limit < 2*there {
		limit *= 2
	}
	return limit
}
