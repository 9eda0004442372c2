package pinfold

import (
	"context"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// Snapshot keeps what the sandbox holds at this moment, until it expires or is removed: in
// Options.StateDir, or without one as long as this process lives. Its Holds say what that is.
// sandbox.Create's Snapshot makes a sandbox of it.
func (s *Sandbox) Snapshot(ctx context.Context, t sandbox.TakeSnapshot) (sandbox.Snapshot, error) {
	return s.box.Snapshot(ctx, t)
}

// Fork makes sandboxes that begin with what this one holds at this moment: all that are
// asked for, or none.
func (s *Sandbox) Fork(ctx context.Context, f sandbox.ForkSandbox) ([]*Sandbox, error) {
	made, err := s.local.engine.Fork(ctx, s.box, f)
	var forks []*Sandbox
	for _, box := range made {
		forks = append(forks, &Sandbox{s.local, box})
	}
	return forks, err
}

// Snapshots lists the snapshots, the oldest first.
func (l *Local) Snapshots(ctx context.Context) ([]sandbox.Snapshot, error) {
	return l.engine.Snapshots(ctx, records.LocalTenant)
}

// Snapshot describes the snapshot of that id.
func (l *Local) Snapshot(ctx context.Context, id string) (sandbox.Snapshot, error) {
	return l.engine.Snapshot(ctx, records.LocalTenant, id)
}

// RemoveSnapshot removes the snapshot of that id. Sandboxes that were made of it live on.
func (l *Local) RemoveSnapshot(ctx context.Context, id string) error {
	return l.engine.RemoveSnapshot(ctx, records.LocalTenant, id)
}
