//go:build linux

package initstub

import "encoding/binary"

// Sizes and values of ELF, see elf(5).
const (
	headerSize  = 64
	segmentSize = 56
	codeOffset  = headerSize + 2*segmentSize

	typeDyn    = 3          // may lie anywhere
	ptLoad     = 1          // a part of the file that is mapped
	ptGNUStack = 0x6474e551 // what may be done with the stack
	flagX      = 1
	flagW      = 2
	flagR      = 4

	pageSize = 64 << 10 // the largest that either architecture has
)

// Program returns the program as an executable file: one segment, which can be
// read and executed and holds all of it, and a stack.
func Program() []byte {
	code := code()
	size := uint64(codeOffset + len(code))
	b := append([]byte("\x7fELF"), 2, 1, 1) // 64 bits, little endian, version 1
	b = append(b, make([]byte, 16-len(b))...)
	le := binary.LittleEndian
	half := func(v ...uint16) {
		for _, v := range v {
			b = le.AppendUint16(b, v)
		}
	}
	word := func(v ...uint32) {
		for _, v := range v {
			b = le.AppendUint32(b, v)
		}
	}
	long := func(v ...uint64) {
		for _, v := range v {
			b = le.AppendUint64(b, v)
		}
	}
	half(typeDyn, machine)
	word(1)
	long(codeOffset, headerSize, 0) // where it begins, where the segments are described, no sections
	word(0)
	half(headerSize, segmentSize, 2, 0, 0, 0)
	word(ptLoad, flagR|flagX)
	long(0, 0, 0, size, size, pageSize)
	word(ptGNUStack, flagR|flagW)
	long(0, 0, 0, 0, 0, 16)
	return append(b, code...)
}
