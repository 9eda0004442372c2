//go:build linux

package initstub

import (
	"bytes"
	"unsafe"
)

// programAddress returns where the program's code is. It is never called, and
// does not depend on where it lies.
func programAddress() unsafe.Pointer

// mark stands behind the code, and maxCode is more than there is of it.
const (
	mark    = "\x0b\x0bEND\x0b\x0b\x0b"
	maxCode = 1 << 10
)

// code returns a copy of the program's code.
func code() []byte {
	p := (*byte)(programAddress())
	for n := len(mark); n <= maxCode; n++ { // never beyond the mark: who knows what is mapped there
		if b := unsafe.Slice(p, n); string(b[n-len(mark):]) == mark {
			return bytes.Clone(b[:n-len(mark)])
		}
	}
	panic("initstub: the code has no end") // of a build that a test would have refused
}
