//go:build linux

package idblock

import (
	"bytes"
	"os"
	"strconv"
)

// NoProcess says whether no living process of the host has a user id of the
// block that begins at base. It is the check for New. One that has ended and
// that nobody has waited for yet does not live, nor does one that only waits for
// that of others: the first process of a pid namespace. An unreadable /proc counts
// as "there may be one".
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
		if living && uid >= base && uid < base+Size && !ending(e.Name()) {
			return false
		}
	}
	return true
}

// pfExiting is the kernel's flag of a process that runs no more code of its own
// (PF_EXITING).
const pfExiting = 1 << 2

// ending says whether a process is on its way out of the kernel for the last time.
func ending(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return true
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	return err == nil && flags&pfExiting != 0
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
