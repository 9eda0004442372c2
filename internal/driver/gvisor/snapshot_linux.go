package gvisor

import (
	"context"

	"golang.org/x/sys/unix"
	"pinfold/internal/container"
	"pinfold/internal/driver"
	"pinfold/internal/filetree"
)

// Snapshot implements driver.Snapshotter. The sandbox's kernel has nothing of its files that
// is not on the disk, which is a file system of the host's: while it is stopped it writes
// nothing there.
func (m *machine) Snapshot(ctx context.Context, files *filetree.Writer) error {
	disk := -1
	c, err := m.disk.SyscallConn()
	if err == nil {
		err = c.Control(func(fd uintptr) { disk, _ = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	}
	if err != nil || disk < 0 {
		return driver.ErrEnded
	}
	defer unix.Close(disk) //nolint:errcheck // O_PATH
	return container.Snapshot(ctx, disk, m.plan, m.dead, files)
}
