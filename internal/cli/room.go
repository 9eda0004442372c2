package cli

import (
	"context"
	"encoding/json"

	"pinfold/client"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// noRoom is the fix of an error of files for which the sandbox had no room: of which
// limit it needs more.
func noRoom(err error) (more sandbox.Fix, ok bool) {
	e := sandbox.AsError(err)
	if e == nil || e.Code != sandbox.CodeTooLarge {
		return more, false
	}
	return e.Advice.Find(sandbox.FixSet)
}

// roomFor is the fix that makes room for so many bytes, if there is such a limit.
func roomFor(bytes int64) (more sandbox.Fix, ok bool) {
	info, _ := limitOf(sandbox.CauseDisk)
	if bytes <= 0 || bytes > info.Max {
		return more, false
	}
	return sandbox.Set("limits."+info.Field, max(enough(bytes), info.Min)), true
}

// roomForInputs says an error of a run whose files did not fit with the flag that makes
// room for them.
func roomForInputs(err error, req runs.Request) error {
	met, _ := noRoom(err)
	if met.Name != "limits.disk_bytes" || sandbox.AsError(err).Field == filesField {
		return err
	}
	more, ok := roomFor(req.Spec.Limits.WithDefaults().DiskBytes + sizeOf(req.Inputs))
	if !ok {
		return err
	}
	if bytesOf(more) < bytesOf(met) { // it was not these files
		more = met
	}
	return sandbox.AsError(err).WithAdvice(sandbox.Advise("%s", more))
}

// bytesOf is the value of a fix that sets a number, 0 of another.
func bytesOf(f sandbox.Fix) (n int64) {
	if json.Unmarshal(f.Value, &n) != nil {
		return 0
	}
	return n
}

// roomInSandbox says an error of a copy that did not fit with the command that makes a
// sandbox with room for it. A size below zero is not known.
func roomInSandbox(ctx context.Context, box *client.Sandbox, err error, size int64) error {
	more, ok := noRoom(err)
	if ok && more.Name == "limits.disk_bytes" && size >= 0 {
		if info, iErr := box.Info(ctx); iErr == nil {
			more, ok = roomFor(info.Limits.DiskBytes + size)
		}
	}
	if !ok {
		return err
	}
	return sandbox.AsError(err).WithAdvice(sandbox.Advise("make room in it, or make another with %s", more))
}

func sizeOf(inputs []runs.Input) (total int64) {
	for _, in := range inputs {
		if !in.Dir {
			total += in.Size
		}
	}
	return total
}
