//go:build linux

package agent

import (
	"bytes"
	"encoding/binary"
)

// entry is one name in a directory.
type entry struct {
	name string
	kind uint8 // unix.DT_DIR, …; unix.DT_UNKNOWN on some file systems
}

// readEntries reads the next entries of a directory, without "." and "..".
// An empty result is the end.
func readEntries(fd int, buf []byte) ([]entry, error) {
	for {
		n, err := sysGetdents(fd, buf)
		if err != nil || n <= 0 {
			return nil, err
		}
		if list := parseEntries(buf[:n]); len(list) > 0 {
			return list, nil
		}
	}
}

// parseEntries reads an array of struct linux_dirent64 (getdents64(2)).
func parseEntries(b []byte) []entry {
	const reclenAt, typeAt, nameAt = 16, 18, 19
	var list []entry
	for len(b) > nameAt {
		length := int(binary.NativeEndian.Uint16(b[reclenAt:]))
		if length <= nameAt || length > len(b) {
			break
		}
		name, _, _ := bytes.Cut(b[nameAt:length], []byte{0})
		if s := string(name); s != "." && s != ".." {
			list = append(list, entry{s, b[typeAt]})
		}
		b = b[length:]
	}
	return list
}
