//go:build linux

package native

import (
	"os"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/memfd"
	"pinfold/internal/linux/mount"
)

// agentProgram returns the agent, open so that sandboxes can execute it and
// nobody can write to it through them (CVE-2019-5736): as root the file beside
// this program, where there is one that only root may change, through a
// read-only mount; otherwise a sealed copy in memory.
func agentProgram(o Options) (program *os.File, onDisk bool, err error) {
	if o.AgentFile != nil && os.Geteuid() == 0 {
		if f := o.AgentFile(); f != nil {
			defer f.Close() //nolint:errcheck // the view has its own reference
			if view, err := readOnlyView(f); err == nil {
				return view, true, nil
			}
		}
	}
	program, err = sealedAgent(o.Agent)
	return program, false, err
}

// readOnlyView returns the file as seen through a read-only mount of its own,
// which is attached nowhere.
func readOnlyView(f *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 {
		return nil, os.ErrPermission
	}
	fd, err := unix.OpenTree(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, err
	}
	view := os.NewFile(uintptr(fd), "pinfold-agent")
	attr := &unix.MountAttr{Attr_set: mount.ReadOnly | mount.NoSuid | mount.NoDev}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attr); err != nil {
		_ = view.Close()
		return nil, err
	}
	return view, nil
}

// sealedAgent returns the agent from memory. All sandboxes execute this one file,
// so they share its pages.
func sealedAgent(load func() ([]byte, error)) (*os.File, error) {
	binary, err := load()
	if err != nil {
		return nil, err
	}
	return memfd.Sealed("pinfold-agent", binary)
}
