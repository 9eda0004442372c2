package docker

import (
	"context"

	"pinfold/internal/container"
	"pinfold/internal/filetree"
)

// Snapshot implements driver.Snapshotter. The disk is a file system of ours in the machine's
// directory, into which no guest can look but through its places.
func (m *machine) Snapshot(ctx context.Context, files *filetree.Writer) error {
	return container.SnapshotOf(ctx, m.disk(), m.Plan, m.dead, files)
}
