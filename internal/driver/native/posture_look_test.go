//go:build linux

package native

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/image"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/linux/mount"
)

// posture is what /proc tells about one process, without what differs from run
// to run or from host to host.
type posture struct {
	Args        []string
	Env         []string
	Executable  string
	Root, Dir   string
	Status      map[string]string // proc_pid_status(5)
	Threads     string            // whether all have the same status
	Limits      map[string]string // proc_pid_limits(5)
	Descriptors []string
	Namespaces  map[string]string
	UIDMap      string
	GIDMap      string
	Setgroups   string
	Cgroups     map[string]string
	OOMScoreAdj string
	Session     string
	Dumpable    string
}

// looker looks at the processes of one sandbox.
type looker struct {
	t     *testing.T
	block *idblock.Block
	agent int
}

func (l looker) posture(pid int) posture {
	dir := "/proc/" + strconv.Itoa(pid)
	p := posture{
		Args: list(l.read(dir + "/cmdline")), Env: list(l.read(dir + "/environ")),
		Executable: anyNumber.ReplaceAllString(l.link(dir+"/exe"), "N"), Root: l.link(dir + "/root"), Dir: l.link(dir + "/cwd"),
		Limits: l.limits(dir), Descriptors: l.descriptors(dir),
		Namespaces: l.namespaces(dir), UIDMap: l.ids(l.read(dir + "/uid_map")), GIDMap: l.ids(l.read(dir + "/gid_map")),
		Setgroups: strings.TrimSpace(l.read(dir + "/setgroups")), Cgroups: l.cgroups(dir),
		OOMScoreAdj: strings.TrimSpace(l.read(dir + "/oom_score_adj")),
	}
	for range 50 { // while Go makes a thread, the new one and its maker block all signals
		p.Status, p.Threads = l.threads(dir)
		if p.Threads == "equal" && !strings.HasPrefix(p.Status["SigBlk"], "f") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	stat := l.read(dir + "/stat")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	p.Session = "somebody else's"
	if fields[3] == strconv.Itoa(pid) {
		p.Session = "own"
	}
	p.Dumpable = l.dumpable(dir)
	return p
}

// threads returns a process's status, and whether all of its threads have the same.
func (l looker) threads(dir string) (status map[string]string, equal string) {
	status, equal = l.status(dir), "equal"
	tasks, _ := filepath.Glob(dir + "/task/*")
	for _, task := range tasks {
		if other := l.status(task); !maps.Equal(other, status) {
			equal = fmt.Sprintf("%s has %v", filepath.Base(task), other)
		}
	}
	return status, equal
}

// dumpable goes by the files below the process's directory: the kernel gives
// those of an undumpable process to the root of its user namespace, or to the
// host's where that has none.
func (l looker) dumpable(dir string) string {
	process, files := l.owner(dir), l.owner(dir+"/environ")
	switch {
	case l.block != nil && process == files && int(process) == l.block.Base:
		return "cannot be seen from outside"
	case process == files:
		return "yes"
	}
	return "no"
}

var (
	anyNumber = regexp.MustCompile(`\d+`)
	inBrace   = regexp.MustCompile(`\[\d+\]`)
)

// refused stands for what cannot be seen from outside.
const refused = "(refused)"

// list splits a file of strings that end in NUL.
func list(s string) []string {
	return slices.DeleteFunc(strings.Split(s, "\x00"), func(s string) bool { return s == "" })
}

func (l looker) read(name string) string {
	l.t.Helper()
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrPermission) {
		return refused // an ordinary user may not look into an undumpable process
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text)
}

func (l looker) link(name string) string {
	l.t.Helper()
	target, err := os.Readlink(name)
	if errors.Is(err, os.ErrPermission) {
		return refused
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return target
}

func (l looker) owner(name string) uint32 {
	l.t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		l.t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// recorded are the lines of status that say something about isolation.
var recorded = []string{
	"Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
	"NoNewPrivs", "Seccomp", "Seccomp_filters", "SigBlk", "ShdBlk", "SigIgn", "CoreDumping", "NSpid",
}

func (l looker) status(dir string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(l.read(dir + "/status")) {
		k, v, _ := strings.Cut(line, ":")
		v = strings.Join(strings.Fields(v), " ")
		switch {
		case !slices.Contains(recorded, k):
			continue
		case k == "Uid" || k == "Gid" || k == "Groups":
			v = l.ids(v)
		case k == "NSpid": // how many pid namespaces deep
			v = fmt.Sprintf("%d deep", len(strings.Fields(v)))
		}
		found[k] = v
	}
	return found
}

// ids writes host ids relative to the sandbox's block, or to the user's own id.
func (l looker) ids(text string) string {
	fields := strings.Fields(text)
	for i, f := range fields {
		n, _ := strconv.Atoi(f)
		switch {
		case l.block != nil && n >= l.block.Base && n < l.block.Base+idblock.Size:
			fields[i] = fmt.Sprintf("block+%d", n-l.block.Base)
		case l.block == nil && n == os.Getuid():
			fields[i] = "user"
		}
	}
	return strings.Join(fields, " ")
}

// limits records what is not simply as on the host.
func (l looker) limits(dir string) map[string]string {
	found, host := parseLimits(l.read(dir+"/limits")), parseLimits(l.read("/proc/self/limits"))
	for name, value := range found {
		if value == host[name] && host[name] != "0 0" {
			found[name] = "as outside"
		}
	}
	return found
}

func parseLimits(text string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		if name, rest, ok := strings.Cut(line, "  "); ok && strings.HasPrefix(line, "Max") {
			if fields := strings.Fields(rest); len(fields) >= 2 {
				found[name] = fields[0] + " " + fields[1]
			}
		}
	}
	return found
}

func (l looker) descriptors(dir string) []string {
	entries, err := os.ReadDir(dir + "/fd")
	if errors.Is(err, os.ErrPermission) {
		return []string{refused}
	}
	if err != nil {
		l.t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		found = append(found, inBrace.ReplaceAllString(l.link(dir+"/fd/"+e.Name()), ""))
	}
	slices.Sort(found)
	return found
}

func (l looker) namespaces(dir string) map[string]string {
	found := map[string]string{}
	for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts"} {
		mine := l.link(dir + "/ns/" + kind)
		found[kind] = "own"
		if mine != l.link(fmt.Sprintf("/proc/%d/ns/%s", l.agent, kind)) {
			found[kind] = "not the agent's"
		}
		if mine == l.link("/proc/self/ns/"+kind) {
			found[kind] = "the host's"
		}
	}
	return found
}

// cgroups says of each controller that limits sandboxes whether the process is
// in a group of its own.
func (l looker) cgroups(dir string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(l.read(dir + "/cgroup")) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		names, path, _ := strings.Cut(rest, ":")
		for name := range strings.SplitSeq(names, ",") {
			if !slices.Contains([]string{"memory", "pids", "cpu", "cpuacct", ""}, name) {
				continue
			}
			if name == "" && len(found) > 0 {
				continue // version 2 beside version 1 holds nothing of ours
			}
			whose := "shared"
			if strings.HasPrefix(filepath.Dir(path), "/pinfold") || strings.HasSuffix(filepath.Dir(path), "/pinfold") {
				whose = "own"
			}
			found[name] = whose
			if name == "" { // all of them are in one
				found = map[string]string{"cpu": whose, "cpuacct": whose, "memory": whose, "pids": whose}
			}
		}
	}
	return found
}

// mountSet is a mount namespace. What is the sandbox's own is recorded whole; views
// of the host only by their flags, because hosts differ.
type mountSet struct {
	Own     []string // "target type flags options"
	Views   []string // type and flags of views of host directories
	Devices []string // the flags of device files
	Missing []string // of the template's views
}

// mounts reads mountinfo: see proc_pid_mountinfo(5).
func (l looker) mounts(pid int, binds []image.Bind) mountSet {
	var s mountSet
	seen := map[string]bool{}
	for line := range strings.Lines(l.read(fmt.Sprintf("/proc/%d/mountinfo", pid))) {
		before, after, _ := strings.Cut(line, " - ")
		fields, more := strings.Fields(before), strings.Fields(after)
		target, options := fields[4], strings.Split(fields[5], ",")
		optional := strings.Join(fields[6:], " ")
		flags := strings.Join(slices.DeleteFunc(options, func(o string) bool { return strings.HasSuffix(o, "atime") }), ",")
		if optional != "" {
			flags += " propagates: " + anyNumber.ReplaceAllString(optional, "N")
		}
		seen[target] = true
		view := slices.ContainsFunc(binds, func(b image.Bind) bool { return target == b.Target || strings.HasPrefix(target, b.Target+"/") })
		switch {
		case view:
			s.Views = append(s.Views, more[0]+" "+flags)
		case slices.ContainsFunc(devices, func(d mount.Device) bool { return target == "/dev/"+d.Name }):
			s.Devices = append(s.Devices, flags)
		default:
			s.Own = append(s.Own, fmt.Sprintf("%s %s %s %s", target, more[0], flags, superOptions(more[2])))
		}
	}
	for _, b := range binds {
		if b.Dir && !seen[b.Target] {
			s.Missing = append(s.Missing, b.Target)
		}
	}
	for _, list := range []*[]string{&s.Own, &s.Views, &s.Devices} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return s
}

// superOptions drops what differs: owners, and how tmpfs is built into the kernel.
func superOptions(text string) string {
	options := slices.DeleteFunc(strings.Split(text, ","), func(o string) bool {
		return strings.HasPrefix(o, "uid=") || strings.HasPrefix(o, "gid=") || o == "inode64" || o == "inode32" || strings.HasPrefix(o, "huge=")
	})
	for i, o := range options {
		if strings.HasPrefix(o, "size=") || strings.HasPrefix(o, "nr_inodes=") {
			options[i] = anyNumber.ReplaceAllString(o, "N")
		}
	}
	return strings.Join(options, ",")
}
