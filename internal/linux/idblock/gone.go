//go:build linux

package idblock

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// NoProcess says whether no process of the host has a user id of the block
// that begins at base. It is the check for New. An unreadable /proc counts as
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
		var st unix.Stat_t
		if unix.Stat("/proc/"+e.Name()+"/task", &st) != nil {
			continue // it has ended meanwhile
		}
		if int(st.Uid) >= base && int(st.Uid) < base+Size || st.Uid == 0 && hiddenOwner(e.Name(), base) {
			return false
		}
	}
	return true
}

// hiddenOwner looks at the status file of a process whose directory belongs to
// root because the process is not dumpable.
func hiddenOwner(pid string, base int) bool {
	b, err := os.ReadFile("/proc/" + pid + "/status") // a kernel file of about 1.5 KiB
	if err != nil {
		return false
	}
	uid, ok := realUID(b)
	return ok && uid >= base && uid < base+Size
}

// realUID returns the first number of the "Uid:" line of a status file.
func realUID(status []byte) (int, bool) {
	for line := range bytes.SplitSeq(status, []byte("\n")) {
		rest, ok := bytes.CutPrefix(line, []byte("Uid:"))
		if !ok {
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) == 0 {
			return 0, false
		}
		uid, err := strconv.Atoi(string(fields[0]))
		return uid, err == nil
	}
	return 0, false
}
