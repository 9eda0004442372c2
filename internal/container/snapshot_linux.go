package container

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/filetree"
	"pinfold/internal/linux/treeread"
)

// Snapshot writes what is on a machine's disk, of which root is a directory that holds its
// places. The machine stands still, until dead is closed.
func Snapshot(ctx context.Context, root int, plan driver.Plan, dead <-chan struct{}, files *filetree.Writer) error {
	var places []treeread.Place
	for _, p := range Places(plan.User.Home) {
		name := p.Path
		if name == "" || name == plan.User.Home {
			name = driver.PlaceHome
		}
		places = append(places, treeread.Place{Name: name, Root: root, Path: p.Dir})
	}
	l := treeread.Limits{Bytes: plan.Limits.DiskBytes, Entries: plan.Limits.Inodes}
	return treeread.WhileAlive(ctx, dead, driver.ErrEnded, func(ctx context.Context) error {
		return treeread.Read(ctx, places, l, files)
	})
}

// SnapshotOf is Snapshot of a disk by its name, which no guest can change.
func SnapshotOf(ctx context.Context, disk string, plan driver.Plan, dead <-chan struct{}, files *filetree.Writer) error {
	root, err := unix.Open(disk, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		select {
		case <-dead:
			return driver.ErrEnded
		default:
			return fmt.Errorf("opening the sandbox's disk: %w", err)
		}
	}
	defer unix.Close(root) //nolint:errcheck // O_PATH
	return Snapshot(ctx, root, plan, dead, files)
}
