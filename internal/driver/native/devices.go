//go:build linux

package native

import (
	"errors"
	"fmt"
	"os"

	"pinfold/internal/linux/mount"
)

// devices are the device files that every sandbox has; numbers as in
// Documentation/admin-guide/devices.txt. tty is whatever terminal the process that
// opens it has been given, and none without.
//
// They are on the sandbox's own tmpfs where root makes that, and otherwise views of
// the host's: an ordinary user can make none. They are in the only mount without
// nodev.
var devices = []mount.Device{
	{Name: "null", Major: 1, Minor: 3},
	{Name: "zero", Major: 1, Minor: 5},
	{Name: "full", Major: 1, Minor: 7},
	{Name: "random", Major: 1, Minor: 8},
	{Name: "urandom", Major: 1, Minor: 9},
	{Name: "tty", Major: 5, Minor: 0},
}

// deviceFiles says why sandboxes cannot have device files of their own, nil when they
// can, by making some.
func deviceFiles() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("only root can make device files: %w", errors.ErrUnsupported)
	}
	tmpfs, err := mount.TmpfsWithDevices(1<<12, int64(len(devices))+2, rootMode, mount.Owner{}, devices)
	if err != nil {
		return fmt.Errorf("this host lets nobody make device files: %w", err)
	}
	// Closing it waits for every CPU, and nobody needs to wait for that.
	go tmpfs.Close() //nolint:errcheck // nothing was written
	return nil
}

// openRoot makes the file system that will be the sandbox's root, where the sandbox
// cannot do so by itself because of its device files.
func (m *machine) openRoot(n *initSpec) (err error) {
	if !n.ownDevices {
		return nil
	}
	var owner mount.Owner // a zygote's is root's
	if m.block != nil && !m.isZygote() {
		owner = mount.Owner{UID: m.block.Base, GID: m.block.Base}
	}
	n.tmpfs, err = mount.TmpfsWithDevices(n.tmpfsBytes(), n.tmpfsInodes(), rootMode, owner, devices)
	if err != nil {
		return fmt.Errorf("make the sandbox's file system: %w", err)
	}
	return nil
}

// keepRoot adds the descriptor of what openRoot made.
func (n *initSpec) keepRoot(keep []int) []int {
	if n.tmpfs != nil {
		keep = append(keep, int(n.tmpfs.Fd()))
	}
	return keep
}

// layered says whether root's sandboxes see the host through layers of their own.
func (h *host) layered(state mountState) bool { return h.features.overlay == nil && state.file == "" }
