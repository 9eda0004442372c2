//go:build linux

package native

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/filetree"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/linux/treeread"
)

// Snapshot implements driver.Snapshotter. It goes through the sandbox's root, which the host
// holds open. What is mounted in there is not on the sandbox's disk, and is passed over.
func (m *machine) Snapshot(ctx context.Context, files *filetree.Writer) error {
	root, err := m.meter.dupRoot()
	if err != nil {
		return driver.ErrEnded
	}
	defer unix.Close(root) //nolint:errcheck // O_PATH
	places := placesAt(root, m.plan)
	if !m.host.ids.root {
		namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", m.child.PID))
		if err != nil {
			return setupError("open the sandbox's user namespace", err)
		}
		defer namespace.Close() //nolint:errcheck // only entered
		for i := range places { // what its programs keep to themselves is theirs, or another user's on this host
			places[i].Open = func(dir int, name string, flags, resolve uint64) (int, error) {
				return spawn.OpenIn(int(namespace.Fd()), dir, name, flags, resolve)
			}
		}
	}
	l := m.plan.Limits
	return treeread.WhileAlive(ctx, m.dead, driver.ErrEnded, func(ctx context.Context) error {
		return treeread.Read(ctx, places, treeread.Limits{Bytes: l.DiskBytes, Entries: l.Inodes}, files)
	})
}

func placesAt(root int, plan driver.Plan) (places []treeread.Place) {
	for _, w := range plan.Writable() {
		places = append(places, treeread.Place{Name: w.Name, Root: root, Path: w.Path})
	}
	return places
}

// dupRoot returns a descriptor of the sandbox's root that stays when the sandbox ends.
func (t *meter) dupRoot() (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.root < 0 {
		return -1, unix.EBADF
	}
	return unix.FcntlInt(uintptr(t.root), unix.F_DUPFD_CLOEXEC, 0) //nolint:gosec // a descriptor
}
