//go:build linux

// Package memfd keeps programs in anonymous files, memfd_create(2).
package memfd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"pinfold/sandbox"
)

// Seals are what keeps a program as it is. F_SEAL_FUTURE_WRITE (Linux 5.1) refuses every
// write and every mapping that could write from now on, and there is none from before.
// F_SEAL_WRITE would also wait for the pages to be nobody's, and give up with EBUSY after
// 150 ms when the kernel, which moves pages about, still holds one.
const Seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE

// Sealed puts a program into an anonymous file that nobody can write to any more,
// and returns it open for reading, closed at an exec. That it cannot change keeps who
// executes it from reaching others who do (CVE-2019-5736). An error is of code
// setup_failed.
func Sealed(name string, program []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // MFD_EXEC is new in Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, sandbox.Errorf(sandbox.CodeSetupFailed, "cannot make an anonymous file for %s: %w", name, err)
	}
	w := os.NewFile(uintptr(fd), name)
	defer w.Close() //nolint:errcheck // a writer must not stay open: the exec would fail with ETXTBSY
	if _, err := w.Write(program); err != nil {
		return nil, sandbox.Errorf(sandbox.CodeSetupFailed, "cannot write %s: %w", name, err)
	}
	if _, err := unix.FcntlInt(w.Fd(), unix.F_ADD_SEALS, Seals); err != nil {
		return nil, sandbox.Errorf(sandbox.CodeSetupFailed, "cannot seal %s: %w", name, err)
	}
	r, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", w.Fd()))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.CodeSetupFailed, "cannot reopen %s through /proc/self/fd: %w", name, err).
			WithHint("mount /proc on this host")
	}
	return r, nil
}
