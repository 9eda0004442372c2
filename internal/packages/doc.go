// Package packages fetches what programs import, once, and keeps it for the sandboxes of a
// tenant.
//
// A set is what one request asks for of one kind: names with versions, installed by the
// real installer of that kind, in a sandbox of ours that reaches nothing but the indexes
// that the operator names, and runs no script of a package. What comes out of it is an
// archive of regular files, which is as hostile as any: it is unpacked by the rules of
// package archive, whole or not at all, and shown to sandboxes read-only. So no guest ever
// writes to a set, and what a program may reach has nothing to do with what an installer
// reached.
//
// The package knows no engine: who asks for a set hands over how a program is run.
package packages

import (
	"context"
	"io"
	"sync"

	"pinfold/sandbox"
)

// Options say where sets are kept and where they come from. No index: no set of that kind
// can be fetched.
type Options struct {
	Dir     string           // is made when the first set comes
	Bytes   int64            // of all sets together, as the disk counts; 0: DefaultBytes
	Indexes map[string]Index // by kind
}

// Bounds.
const (
	DefaultBytes = 10 << 30
	maxSetBytes  = 1 << 30 // of one set's files
	maxSetFiles  = 200_000 // and directories
	maxLock      = 32 << 20
)

// Run runs a program and hands out its artifacts as they come.
type Run func(ctx context.Context, spec sandbox.Spec, artifact func(sandbox.Artifact, io.Reader) error) (*sandbox.Result, error)

// Store has the sets of all tenants. It is safe for concurrent use, also by several
// processes. A nil Store has none and refuses all.
type Store struct {
	o Options

	mu      sync.Mutex
	flights map[string]*flight // by key and owner
}

// flight is one set on its way here.
type flight struct {
	over chan struct{}
	err  error // when it is over
}

// New returns a store. It touches nothing yet.
func New(o Options) *Store {
	if o.Bytes == 0 {
		o.Bytes = DefaultBytes
	}
	return &Store{o: o, flights: map[string]*flight{}}
}
