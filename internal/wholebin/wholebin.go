//go:build lean

// Package wholebin starts the whole program in place of the lean one.
//
// What users start a thousand times, a run or a command to a server, is a program
// without what only a server, a benchmark or a page of help needs (build tag "lean"):
// it starts sooner (docs/architecture.md says by how much). The whole program, which has everything, lies beside it
// or, in a release (build tag "embedagent", see the Makefile), inside it, so that one
// file is enough.
package wholebin

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"pinfold/internal/linux/memfd"
	"pinfold/sandbox"
)

// name is the file of the whole program, beside this one.
const name = "pinfold-whole"

// headerBytes is how much of the two is compared to tell whether the file is the
// program that this one carries: it holds the linker's build ID, a hash of the content.
const headerBytes = 4096

// Exec puts the whole program in this one's place, with the same arguments and
// environment. It returns only when that fails. The file beside this program is
// preferred: the kernel shares its pages, and gives them back when memory is short.
func Exec(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return failed(err)
	}
	args[0] = self // which the whole program says, and starts, as its own: see Program
	file := filepath.Join(filepath.Dir(self), name)
	if len(embedded) == 0 || same(file) {
		return failed(syscall.Exec(file, args, os.Environ())) //nolint:gosec // beside this program
	}
	f, err := memfd.Sealed(name, embedded)
	if err != nil {
		return err
	}
	return failed(syscall.Exec("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), args, os.Environ())) //nolint:gosec // our own
}

// same says whether a file is the program that this one carries, and nobody but us and
// root can make another of it: only its beginning is compared.
func same(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only read
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Size != int64(len(embedded)) {
		return false
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return false
	}
	header := make([]byte, min(headerBytes, len(embedded)))
	_, err = io.ReadFull(f, header)
	return err == nil && bytes.Equal(header, embedded[:len(header)])
}

func failed(err error) error {
	return sandbox.Errorf(sandbox.CodeResourceUnavailable, "the whole of pinfold cannot be started: %w", err).
		WithHint("make build")
}
