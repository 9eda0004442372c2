//go:build !linux

package probe

import (
	"context"
	"io"
	"runtime"
)

// Run has one thing to say where there is no Linux.
func Run(context.Context, string) []Finding {
	return []Finding{{
		Code: "kernel.linux", Title: "the kernel is Linux", Severity: Problem, Answer: No,
		Probed: "this program was built for " + runtime.GOOS,
		Means:  "sandboxes are made of Linux's own means",
		Fix:    "run pinfold on Linux, in a virtual machine for example",
	}}
}

// Demand is how many sandboxes are to live at once.
type Demand struct {
	Sandboxes         int
	Memory, Processes int64
}

// Room has nothing to say where there is no Linux.
func Room(Demand) []Finding { return nil }

// Child is never started here.
func Child([]string, io.Writer) int { return 1 }
