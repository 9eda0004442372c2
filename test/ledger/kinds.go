//go:build linux

package ledger

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/idblock"
)

// Kinds that are named elsewhere.
const (
	kindDescriptor = "descriptor"
	kindGoroutines = "goroutines"
	kindThreads    = "threads"
	kindProcess    = "process"
)

// kinds are the things that are counted.
func kinds(dirs []string) map[string]func() map[string]int {
	return map[string]func() map[string]int{
		kindDescriptor:      descriptors,
		kindGoroutines:      func() map[string]int { return map[string]int{"of this process": runtime.NumGoroutine()} },
		kindThreads:         func() map[string]int { return map[string]int{"of this process": len(names("/proc/self/task"))} },
		kindProcess:         processes,
		"mount":             mounts,
		"cgroup":            cgroups,
		"network namespace": networks,
		"loop device":       loops,
		"state":             func() map[string]int { return state(dirs) },
		"temporary file":    temporary,
		"kernel":            tainted,
	}
}

// inode is the part of a descriptor's target that differs each time.
var inode = regexp.MustCompile(`\[\d+\]$`)

// descriptors counts this process's open files by what they show.
func descriptors() map[string]int {
	count := map[string]int{}
	for _, fd := range names("/proc/self/fd") {
		target, err := os.Readlink("/proc/self/fd/" + fd)
		if err != nil || target == "/proc/"+strconv.Itoa(os.Getpid())+"/fd" {
			continue // the descriptor through which we look
		}
		count[inode.ReplaceAllString(target, "")]++
	}
	return count
}

// sockets says what this process's sockets are, as /proc/net has them.
func sockets() (said []string) {
	for _, fd := range names("/proc/self/fd") {
		target, _ := os.Readlink("/proc/self/fd/" + fd)
		id, is := strings.CutPrefix(target, "socket:[")
		if !is {
			continue
		}
		id = strings.TrimSuffix(id, "]")
		line := "  " + fd + ": " + elsewhere(fd)
		for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "unix"} {
			text, _ := os.ReadFile("/proc/self/net/" + table)
			for l := range strings.Lines(string(text)) {
				if slices.Contains(strings.Fields(l), id) {
					line = "  " + fd + ": " + table + " " + strings.Join(strings.Fields(l), " ")
				}
			}
		}
		said = append(said, line)
	}
	slices.Sort(said)
	return said
}

// elsewhere says what a socket is that /proc/net does not have: of another network namespace, or
// of another family.
func elsewhere(name string) string {
	fd, _ := strconv.Atoi(name)
	family, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	kind, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	address, _ := unix.Getsockname(fd)
	return fmt.Sprintf("family %d, type %d, at %+v", family, kind, address)
}

// process is one line of /proc, as far as it matters here.
type process struct {
	pid, parent, uid int
	born, name, exe  string
	dead             bool // it has ended, and nobody has waited for it yet
}

// String names a process so that nobody else has the name, also later.
func (p process) String() string {
	return fmt.Sprintf("%d %s, user %d, born %s, parent %d", p.pid, p.name, p.uid, p.born, p.parent)
}

// processes lists what sandboxed finds.
func processes() map[string]int {
	found := map[string]int{}
	for _, p := range sandboxed() {
		found[p.String()]++
	}
	return found
}

// sandboxed lists sandboxes' processes, by their ids or their program, and
// everything below this process, the dead that nobody waited for included.
func sandboxed() []process {
	all := allProcesses()
	ours := below(all, os.Getpid())
	return slices.DeleteFunc(all, func(p process) bool {
		inRange := p.uid >= idblock.First && p.uid < idblock.First+idblock.Count*idblock.Size
		return !ours[p.pid] && !inRange && !strings.HasPrefix(p.exe, "/memfd:pinfold-agent")
	})
}

// Below lists the processes below one: children, their children, and so on.
// The names stay the same until a process has ended, but for its parent's
// number.
func Below(pid int) []string {
	all := allProcesses()
	ours := below(all, pid)
	var found []string
	for _, p := range all {
		if ours[p.pid] {
			p.parent, p.uid = 0, 0
			found = append(found, p.String())
		}
	}
	return found
}

// Living keeps those of the named processes (see Below) that have not ended.
func Living(processes []string) []string {
	living := map[string]bool{}
	for _, p := range allProcesses() {
		p.parent, p.uid = 0, 0
		living[p.String()] = !p.dead
	}
	return slices.DeleteFunc(slices.Clone(processes), func(p string) bool { return !living[p] })
}

func allProcesses() []process {
	var all []process
	for _, n := range names("/proc") {
		if pid, err := strconv.Atoi(n); err == nil {
			if p, ok := readProcess(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// below says which processes have pid above them.
func below(all []process, pid int) map[int]bool {
	found := map[int]bool{pid: true}
	for n := 0; n < len(found); { // parents may come later in the list
		n = len(found)
		for _, p := range all {
			if found[p.parent] {
				found[p.pid] = true
			}
		}
	}
	delete(found, pid)
	return found
}

func readProcess(pid int) (p process, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return p, false
	}
	name, fields, ok := statFields(stat)
	if !ok {
		return p, false
	}
	p = process{pid: pid, name: name, born: fields[19], uid: realUID(dir)}
	p.parent, _ = strconv.Atoi(fields[1])
	p.dead = fields[0] == "Z" || fields[0] == "X"
	p.exe, _ = os.Readlink(dir + "/exe")
	return p, true
}

// statFields takes a stat file of /proc apart: the name in its brackets, and what
// comes after it, the state first.
func statFields(stat []byte) (name string, fields []string, ok bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", nil, false
	}
	fields = strings.Fields(string(stat[end+1:]))
	return string(stat[open : end+1]), fields, len(fields) >= 20
}

// realUID is -1 for a process that has just ended.
func realUID(dir string) int {
	status, _ := os.ReadFile(dir + "/status")
	_, rest, _ := strings.Cut(string(status), "\nUid:")
	if fields := strings.Fields(rest); len(fields) > 0 {
		if uid, err := strconv.Atoi(fields[0]); err == nil {
			return uid
		}
	}
	return -1
}

// mounts lists this process's mounts, without their numbers.
func mounts() map[string]int {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			count[strings.Join(fields[3:], " ")]++
		}
	}
	return count
}

// cgroups lists the directories that sandboxes lie in.
func cgroups() map[string]int {
	found := map[string]int{}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // removed meanwhile
		}
		if d.IsDir() && strings.Contains(path, "/pinfold") && !strings.HasSuffix(path, "/pinfold-host") {
			found[path]++
		}
		return nil
	})
	return found
}

// networks lists the network namespaces that a process lives in.
func networks() map[string]int {
	found := map[string]int{}
	for _, n := range names("/proc") {
		if target, err := os.Readlink("/proc/" + n + "/ns/net"); err == nil {
			found[target] = 1
		}
	}
	return found
}

func loops() map[string]int {
	found := map[string]int{}
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		backing, _ := os.ReadFile(f)
		found[f+" shows "+strings.TrimSpace(string(backing))]++
	}
	return found
}

// state lists the locks and the leased ids, and not what is remembered of the host: that
// KVM does not work, and the directory that holds this.
func state(dirs []string) map[string]int {
	found := map[string]int{}
	own := []string{"/run/pinfold", fmt.Sprintf("/tmp/pinfold-%d", os.Getuid())}
	for _, dir := range slices.Concat(own, dirs) {
		note := filepath.Join(dir, "qemu-no-kvm")
		_, err := os.Lstat(note)
		noted := err == nil
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return fs.SkipDir
			}
			if path != note && (path != dir || !noted) {
				found[path]++
			}
			return nil
		})
	}
	return found
}

// temporary lists what bears our name, or belongs to a sandbox's user, in the
// places for temporary files.
func temporary() map[string]int {
	found := map[string]int{}
	for _, dir := range []string{os.TempDir(), "/dev/shm", "/var/tmp"} {
		for _, n := range names(dir) {
			path := filepath.Join(dir, n)
			info, err := os.Lstat(path)
			if err != nil {
				continue
			}
			st, ok := info.Sys().(*syscall.Stat_t)
			if strings.HasPrefix(n, "pinfold") || ok && int(st.Uid) >= idblock.First && int(st.Uid) < idblock.First+idblock.Count*idblock.Size {
				found[path]++
			}
		}
	}
	return found
}

func tainted() map[string]int {
	text, _ := os.ReadFile("/proc/sys/kernel/tainted")
	return map[string]int{"tainted " + strings.TrimSpace(string(text)): 1}
}

// names lists a directory, empty if it cannot be read.
func names(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close() //nolint:errcheck // only read
	all, _ := d.Readdirnames(-1)
	return all
}
