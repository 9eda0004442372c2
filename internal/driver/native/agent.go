//go:build linux

package native

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/mount"
	"pinfold/sandbox"
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
	return sealed("pinfold-agent", binary)
}

// sealed puts a program into an anonymous file that nobody can write to any more,
// and returns it open for reading. That it cannot change keeps a sandbox from
// reaching the next one or us through it (CVE-2019-5736).
func sealed(name string, program []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // MFD_EXEC is new in Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, setupError("make an anonymous file for "+name, err)
	}
	w := os.NewFile(uintptr(fd), name)
	defer w.Close() //nolint:errcheck // a writer must not stay open: the exec would fail with ETXTBSY
	if _, err := w.Write(program); err != nil {
		return nil, setupError("write "+name, err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(w.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, setupError("seal "+name, err)
	}
	r, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", w.Fd()))
	if err != nil {
		return nil, &sandbox.Error{
			Code: sandbox.CodeSetupFailed, Err: err,
			Message: "cannot reopen " + name + " through /proc/self/fd: " + err.Error(),
			Hint:    "mount /proc on this host",
		}
	}
	return r, nil
}
