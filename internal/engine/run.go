// Package engine owns every sandbox from admission to destruction. Edges ask
// it for runs; it chooses the driver, decides from the driver's counters what
// ended a program, and puts the result together. It imports no edge and no
// driver implementation: those are handed in.
package engine

import (
	"context"
	"io"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// Options are what an Engine needs.
type Options struct {
	// Drivers are the ways to make sandboxes, strongest first. "auto" takes
	// the first that is not blocked.
	Drivers []driver.Driver
}

// Engine runs programs. It is safe for concurrent use.
type Engine struct {
	drivers []driver.Driver
}

// Streams are the live ends of a run. Every field may be nil. Writers are
// called from one goroutine each and see the same bytes that the result
// keeps, cut at limits.output_bytes.
type Streams struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Input is one file or directory tree that is copied into the sandbox before
// the program starts, for content too large for Spec.Files.
type Input struct {
	Path string                        // relative to the working directory
	Mode uint32                        // permission bits
	Size int64                         // bytes
	Dir  bool                          // make a directory; Open is not called
	Open func() (io.ReadCloser, error) // called once, when the file is copied
}

// Request is one run: the spec and what does not fit in it.
type Request struct {
	Spec    sandbox.Spec
	Streams Streams
	Inputs  []Input
	// Artifact receives each artifact as it comes out, in path order. It is
	// called from one goroutine. nil keeps the content in Result.Artifacts.
	Artifact func(a sandbox.Artifact, content io.Reader) error
}

// Run makes a sandbox, runs the program in it, destroys the sandbox and says
// what happened.
//
// The error is nil whenever the program was started: what became of it is in
// the Result. Otherwise the error is a *sandbox.Error, and nothing was run. When ctx
// ends, the sandbox is destroyed at once and the result's cause is "cancelled".
// When Run returns, nothing of the sandbox is left on the host.
func (e *Engine) Run(ctx context.Context, req Request) (*sandbox.Result, error) {
	return nil, sandbox.Errorf(sandbox.CodeInternal, "not there yet")
}
