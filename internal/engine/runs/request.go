package runs

import (
	"io"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/replay"
	"pinfold/sandbox"
)

// Input is one file or directory tree that is copied into the sandbox before
// the program starts, for content too large for Spec.Files.
type Input struct {
	Path string                        // relative to the working directory
	Mode uint32                        // permission bits
	Size int64                         // bytes
	Dir  bool                          // make a directory; Open is not called
	Open func() (io.ReadCloser, error) // called once for each sandbox: compiled programs have two
}

// Request is one run: the spec and what does not fit in it.
type Request struct {
	Spec    sandbox.Spec
	Streams execution.Streams
	Inputs  []Input
	// Artifact receives each artifact as it comes out, in path order. It is
	// called from one goroutine; the hash is known only later, in the result.
	// nil keeps the content of declared artifacts in Result.Artifacts.
	Artifact func(a sandbox.Artifact, content io.Reader) error
	// NoArtifacts says that nobody wants files that were not declared.
	NoArtifacts bool
	// NoResults says that nobody wants the values that the program leaves.
	NoResults bool

	// OpenStdin says that the program's standard input comes through
	// WriteRunStdin, while the run goes on. Streams.Stdin is not used then. It
	// needs a store.
	OpenStdin bool

	// Again is the run that this one repeats, with which its result is compared; nil: none.
	Again *replay.Original

	// Profile is one of the caller's own, which Spec, without a name, is already as: rules
	// look at it, and the result names it. nil: what Spec names.
	Profile *sandbox.ProfileRef

	// Own says that the server itself asks: the operator's gate is not for its answers, and
	// what it may reach the operator has said.
	Own bool

	// Tenant owns the run; records.LocalTenant when empty.
	Tenant string
	// IdempotencyKey, when set, makes the run happen once for each tenant and
	// key: a second request gets the first one's result. Such a run goes on
	// when ctx ends.
	IdempotencyKey string
	// Started is called with the run's id before anything is made for it. May
	// be nil. It is not called when an earlier result is given.
	Started func(id string)
	// Pending is called after Started when the run waits for a person's approval, at most
	// once. May be nil.
	Pending func(sandbox.Approval)
	// Released, for Start, is called when the request is not needed any more.
	Released func()
}
