package cli

import (
	"context"
	"strings"

	"pinfold/client"
	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// diskFull is how the error of a copy ends for which the sandbox had no room.
const diskFull = "the sandbox's disk is full"

func isDiskFull(err error) bool {
	e := sandbox.AsError(err)
	return e != nil && e.Code == sandbox.CodeTooLarge && strings.HasSuffix(e.Message, diskFull)
}

// diskFlag is the flag that makes room for so many bytes, "" where there is no
// such limit.
func diskFlag(bytes int64) string {
	for _, info := range sandbox.LimitTable() {
		if info.Cause == sandbox.CauseDisk && bytes > 0 && bytes <= info.Max {
			return "--" + info.Flag + " " + sandbox.FormatSize(max(enough(bytes), info.Min))
		}
	}
	return ""
}

// roomForInputs says an error of a run whose files did not fit with the flag that makes
// room for them.
func roomForInputs(err error, req engine.Request) error {
	if !isDiskFull(err) {
		return err
	}
	return sandbox.AsError(err).WithHint(diskFlag(req.Spec.Limits.WithDefaults().DiskBytes + sizeOf(req.Inputs)))
}

// roomInSandbox says an error of a copy that did not fit with the command that makes a
// sandbox with room for it. A size below zero is not known.
func roomInSandbox(ctx context.Context, box *client.Sandbox, err error, size int64) error {
	if e := sandbox.AsError(err); e != nil && e.Field == "limits.inodes" { // the advice is one about making it
		if larger, ok := e.Advice.Find(sandbox.FixSet); ok {
			return e.WithAdvice(sandbox.Advise("make room in it, or make another with %s", larger))
		}
	}
	if !isDiskFull(err) {
		return err
	}
	info, iErr := box.Info(ctx)
	if iErr != nil {
		return err
	}
	disk := info.Limits.DiskBytes
	if size < 0 {
		size = disk
	}
	flag := diskFlag(disk + size)
	if flag == "" {
		return err
	}
	return sandbox.AsError(err).WithHint("make room in it, or make another with pinfold create " + flag)
}

func sizeOf(inputs []engine.Input) (total int64) {
	for _, in := range inputs {
		if !in.Dir {
			total += in.Size
		}
	}
	return total
}
