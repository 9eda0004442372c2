package records

import (
	"context"
	"time"
)

// Snapshot is what is known of a sandbox's state that a driver has kept. No driver can
// make one yet, and nothing above the store asks for them.
type Snapshot struct {
	ID        string
	Tenant    string
	Sandbox   string // from which it was made, which may be long gone
	Driver    string // who made it, and alone can use it
	Template  string
	CreatedAt time.Time
	Bytes     int64  // on the host's disk
	Reference string // the driver's own words for where it is
}

// SnapshotStore keeps references to snapshots, which outlive their sandboxes and stay
// until they are removed.
type SnapshotStore interface {
	// SaveSnapshot keeps a new one. An ID that the tenant has is an error of code conflict.
	SaveSnapshot(ctx context.Context, s Snapshot) error
	LoadSnapshot(ctx context.Context, tenant, id string) (Snapshot, error)
	// ListSnapshots returns a tenant's, or all where that is empty, the oldest first.
	ListSnapshots(ctx context.Context, tenant string) ([]Snapshot, error)
	// RemoveSnapshot forgets one. What the driver keeps is not the store's.
	RemoveSnapshot(ctx context.Context, tenant, id string) error
}
