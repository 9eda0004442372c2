//go:build linux

package native

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"pinfold/sandbox"
)

// sealedAgent puts the agent's executable into an anonymous file that nobody
// can write to any more, and returns it open for reading. All sandboxes execute
// this one file, so they share its pages; that it cannot change keeps a
// sandbox from reaching the next one or us through it (CVE-2019-5736).
func sealedAgent(load func() ([]byte, error)) (*os.File, error) {
	binary, err := load()
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("pinfold-agent", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // MFD_EXEC is new in Linux 6.3
		fd, err = unix.MemfdCreate("pinfold-agent", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, setupError("make an anonymous file for the agent", err)
	}
	w := os.NewFile(uintptr(fd), "pinfold-agent")
	defer w.Close() //nolint:errcheck // a writer must not stay open: the exec would fail with ETXTBSY
	if _, err := w.Write(binary); err != nil {
		return nil, setupError("write the agent", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(w.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, setupError("seal the agent", err)
	}
	r, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", w.Fd()))
	if err != nil {
		return nil, &sandbox.Error{
			Code: sandbox.CodeSetupFailed, Err: err,
			Message: "cannot reopen the agent through /proc/self/fd: " + err.Error(),
			Hint:    "mount /proc on this host",
		}
	}
	return r, nil
}
