//go:build unix

package guest

import (
	"net"
	"syscall"
)

// tryWriter returns what writes to a connection without waiting. Of a
// connection that cannot do that it writes nothing.
func tryWriter(conn net.Conn) func([]byte) int {
	nothing := func([]byte) int { return 0 }
	file, ok := conn.(syscall.Conn)
	if !ok {
		return nothing
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nothing
	}
	return func(b []byte) (n int) {
		_ = raw.Write(func(fd uintptr) bool { // why it fails is learned by flush, which tries again
			n, err = syscall.Write(int(fd), b) //nolint:gosec // a descriptor
			if err != nil {
				n = 0
			}
			return true
		})
		return n
	}
}
