package scan

import "unsafe"

// offsetIn is where part lies in whole, or -1 where it is no part of it. The parser of
// JavaScript has no places in its tree, but its texts are parts of the source. The
// addresses are compared and never followed.
func offsetIn(whole, part []byte) int {
	if len(part) == 0 || len(whole) == 0 {
		return -1
	}
	begin, at := uintptr(unsafe.Pointer(unsafe.SliceData(whole))), uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	if at < begin || at-begin > uintptr(len(whole)-len(part)) || len(part) > len(whole) {
		return -1
	}
	return int(at - begin)
}
