package cgroup

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Bounds on what we read from /proc; a host with a hundred thousand mounts
// stays below them.
const (
	maxMountinfo  = 16 << 20
	maxSelfCgroup = 256 << 10
)

// mountPoint is one mounted cgroup hierarchy.
type mountPoint struct {
	version int
	root    string   // the cgroup that is visible at dir, "/" outside containers
	dir     string   // where it is mounted
	options []string // version 1: the controllers are among them
}

// parseMountinfo finds the cgroup mounts in /proc/self/mountinfo; see proc(5).
//
//	35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
func parseMountinfo(text string) []mountPoint {
	var found []mountPoint
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - cgroup")
		if !ok {
			continue
		}
		left, right := strings.Fields(before), strings.Fields(after)
		m := mountPoint{version: 1}
		if strings.HasPrefix(after, "2 ") {
			m.version, right = 2, right[1:]
		} else if !strings.HasPrefix(after, " ") {
			continue
		}
		if len(left) < 6 || len(right) < 2 {
			continue
		}
		m.root, m.dir = unescape(left[3]), unescape(left[4])
		m.options = strings.Split(right[1], ",")
		found = append(found, m)
	}
	return found
}

// unescape undoes the kernel's octal escapes of space, tab, newline and
// backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// pick returns the mount that has the controller (version 1), or the version 2
// mount when controller is empty. Of several, one below /sys/fs/cgroup wins.
func pick(mounts []mountPoint, controller string) (mountPoint, bool) {
	var found mountPoint
	for _, m := range mounts {
		if controller == "" && m.version != 2 || controller != "" && (m.version != 1 || !slices.Contains(m.options, controller)) {
			continue
		}
		if strings.HasPrefix(m.dir, "/sys/fs/cgroup") {
			return m, true
		}
		if found.dir == "" {
			found = m
		}
	}
	return found, found.dir != ""
}

// ownCgroup finds our version 2 cgroup in /proc/self/cgroup ("0::/user.slice").
func ownCgroup(text string) (string, error) {
	for line := range strings.Lines(text) {
		if p, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSuffix(p, "\n"), nil
		}
	}
	return "", fmt.Errorf("no version 2 line in /proc/self/cgroup")
}

// visible translates a cgroup path to a directory below the mount. It is not
// ok when the cgroup lies outside what is mounted.
func (m mountPoint) visible(cgroup string) (string, bool) {
	if strings.Contains(cgroup+"/", "/../") {
		return "", false
	}
	if m.root == "/" {
		return path.Join(m.dir, cgroup), true
	}
	rest, ok := strings.CutPrefix(cgroup, m.root)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return path.Join(m.dir, rest), true
}
