//go:build linux && (amd64 || arm64)

package walker

import (
	"bytes"
	"encoding/binary"
	"unsafe"
)

// Code is machine code for the C calling convention of this machine. It may be
// copied to any address.
type Code struct {
	// Walk walks a table: long walk(struct step *first, long failed[2]).
	Walk []byte
	// Alloc and Free are Python's allocator of arenas (PyObjectArenaAllocator). They
	// hand out a stretch of memory, { next address, end }, the allocator's context, from its
	// beginning, and mappings of their own where it is used up.
	Alloc, Free []byte
}

// Load returns the code.
func Load() Code {
	return Code{Walk: text(walkAt()), Alloc: text(allocAt()), Free: text(freeAt())}
}

// mark stands behind each piece of code.
const mark = 0x5ead_beef_0dd5_ca1e

// maxCode bounds a piece of code.
const maxCode = 1 << 10

// text returns what lies between p and the mark.
func text(p *byte) []byte {
	end := binary.NativeEndian.AppendUint64(nil, mark)
	for n := range maxCode {
		if code := unsafe.Slice(p, n+len(end)); bytes.HasSuffix(code, end) {
			return bytes.Clone(code[:n])
		}
	}
	panic("walker: the mark is missing")
}

func walkAt() *byte
func allocAt() *byte
func freeAt() *byte
