package cli

import (
	"cmp"
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

// roomFor is the fix that makes room for so many bytes, if so much may be asked for.
func roomFor(bytes, most int64) (more sandbox.Fix, ok bool) {
	info, _ := limitOf(sandbox.CauseDisk)
	if bytes <= 0 || bytes > most {
		return more, false
	}
	return sandbox.Set("limits."+info.Field, min(max(enough(bytes), info.Min), most)), true
}

// most is the most of a limit that may be asked for: its range, or less where a server says
// so.
func (a *app) most(ctx context.Context, of sandbox.CauseKind) int64 {
	info, _ := limitOf(of)
	if !a.remote() {
		return info.Max
	}
	c, err := a.connect()
	if err != nil {
		return info.Max
	}
	defer c.Close() //nolint:errcheck // idle connections only
	who, err := c.WhoAmI(ctx)
	if err != nil {
		return info.Max
	}
	return cmp.Or(who.Most.Get(info.Field), info.Max)
}

// roomForInputs says an error of a run whose files did not fit with the flag that makes
// room for them.
func (a *app) roomForInputs(ctx context.Context, err error, req runs.Request) error {
	met, _ := noRoom(err)
	if met.Name != "limits.disk_bytes" {
		return err
	}
	most := a.most(ctx, sandbox.CauseDisk)
	if sandbox.AsError(err).Field == filesField {
		if bytesOf(met) > most {
			return sandbox.AsError(err).WithHint("a sandbox of this server has a disk of at most " + sandbox.FormatSize(most))
		}
		return err
	}
	more, ok := roomFor(req.Spec.Limits.WithDefaults().DiskBytes+sizeOf(req.Inputs), most)
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
func (a *app) roomInSandbox(ctx context.Context, box *client.Sandbox, err error, size int64) error {
	more, ok := noRoom(err)
	if ok && more.Name == "limits.disk_bytes" && size >= 0 {
		if info, iErr := box.Info(ctx); iErr == nil {
			more, ok = roomFor(info.Limits.DiskBytes+size, a.most(ctx, sandbox.CauseDisk))
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
