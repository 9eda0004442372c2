package records

import (
	"context"

	"pinfold/sandbox"
)

// Snapshot is what is known of what a sandbox held at one moment, whose content is kept
// elsewhere.
type Snapshot struct {
	Tenant  string           `json:"-"`
	Info    sandbox.Snapshot `json:"info"`
	Request sandbox.Create   `json:"request"` // for the sandbox of which it was made
	Image   string           `json:"image"`   // the ID of what its template was then
	// Packages are those that it had, with versions and digests.
	Packages sandbox.Packages `json:"packages,omitzero"`
	// Secrets are the names of those that can be in it.
	Secrets []string `json:"secrets,omitempty"`
	SHA256  []byte   `json:"sha256"` // of the content
}

// SnapshotStore keeps what is known of snapshots, which outlive their sandboxes and stay
// until they are removed.
type SnapshotStore interface {
	// SaveSnapshot keeps a new one. An ID that the tenant has is an error of code conflict.
	SaveSnapshot(ctx context.Context, s Snapshot) error
	LoadSnapshot(ctx context.Context, tenant, id string) (Snapshot, error)
	// ListSnapshots returns a tenant's, or all where that is empty, the oldest first, without
	// their requests and packages, of which each may be megabytes.
	ListSnapshots(ctx context.Context, tenant string) ([]Snapshot, error)
	// RemoveSnapshot forgets one. Its content is not the store's.
	RemoveSnapshot(ctx context.Context, tenant, id string) error
}
