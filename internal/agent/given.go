//go:build linux

package agent

import (
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// Given is the agent's argument where it is given its connection, as otherwise, but nobody
// could put the filter of system calls in force for it: a kernel of the sandbox's own makes
// it. Before anything else the host sends the filter's program, after its length in bytes
// (four of them, the lowest first; 0: there is none). The agent answers with FetchDone when
// it is in force for it and all that it starts.
const Given = "given"

// RunGiven takes the filter, and runs as Run does.
func RunGiven(conn int, build string, o Options) error {
	oneThread()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	if err := takeFilter(conn); err != nil {
		return errors.New("take the filter from the host: " + err.Error())
	}
	return Run(conn, build, o)
}

func takeFilter(conn int) error {
	length := make([]byte, 4)
	if err := readAll(conn, length); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(length)
	if n > maxFilter || n%filterInstruction != 0 {
		return errors.New("that is no filter")
	}
	program := make([]byte, n)
	if err := readAll(conn, program); err != nil {
		return err
	}
	if n > 0 {
		if err := installFilter(program); err != nil {
			return errors.New("install the filter of system calls: " + err.Error())
		}
	}
	if _, errno := rawIO(unix.SYS_WRITE, uintptr(conn), []byte{FetchDone}); errno != 0 { //nolint:gosec // a descriptor
		return errno
	}
	return nil
}

// readAll fills b.
func readAll(fd int, b []byte) error {
	for len(b) > 0 {
		if err := sysWait(fd); err != nil {
			return err
		}
		n, errno := rawIO(unix.SYS_READ, uintptr(fd), b) //nolint:gosec // a descriptor
		switch {
		case errno != 0:
			return errno
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		b = b[n:]
	}
	return nil
}
