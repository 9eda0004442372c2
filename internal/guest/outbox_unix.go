//go:build unix

package guest

import (
	"net"
	"syscall"
)

// TryWriter is a connection that writes what it takes without waiting. A driver's
// may have something to do whenever it is written to, so nobody goes round it.
type TryWriter interface {
	// TryWrite says how much was written; why it was not all is learned by Write.
	TryWrite(b []byte) (written int)
}

// tryWriter returns what writes to a connection without waiting. Of a
// connection that cannot do that it writes nothing.
func tryWriter(conn Link) func([]byte) int {
	switch conn := conn.(type) {
	case TryWriter:
		return conn.TryWrite
	case *net.UnixConn:
		if raw, err := conn.SyscallConn(); err == nil {
			return func(b []byte) int { return tryWrite(raw, b) }
		}
	}
	return func([]byte) int { return 0 }
}

func tryWrite(raw syscall.RawConn, b []byte) (n int) {
	_ = raw.Write(func(fd uintptr) bool { // why it fails is learned by flush, which tries again
		var err error
		if n, err = syscall.Write(int(fd), b); err != nil { //nolint:gosec // a descriptor
			n = 0
		}
		return true
	})
	return n
}
