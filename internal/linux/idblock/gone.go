//go:build linux

package idblock

import (
	"bytes"
	"os"
	"strconv"
)

// NoProcess says whether no living process of the host has a user id of the
// block that begins at base. It is the check for New. One that has ended and
// that nobody has waited for yet does not live. An unreadable /proc counts as
// "there may be one".
func NoProcess(base int) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		status, err := os.ReadFile("/proc/" + e.Name() + "/status") // a kernel file of about 1.5 KiB
		if err != nil {
			continue // it has ended meanwhile
		}
		uid, living := parseStatus(status)
		if living && uid >= base && uid < base+Size {
			return false
		}
	}
	return true
}

// parseStatus reads the real user id and the state from a status file. Where it
// cannot tell, the process lives.
func parseStatus(status []byte) (uid int, living bool) {
	uid, living = -1, true
	for line := range bytes.SplitSeq(status, []byte("\n")) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch string(fields[0]) {
		case "State:":
			living = fields[1][0] != 'Z' && fields[1][0] != 'X'
		case "Uid:":
			if n, err := strconv.Atoi(string(fields[1])); err == nil {
				uid = n
			}
		}
	}
	return uid, living
}
