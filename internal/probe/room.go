//go:build linux

package probe

import (
	"fmt"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"pinfold/internal/linux/highfd"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// What an idle sandbox costs. Descriptors are the server's (package native holds
// itself to that); of the host's files an agent has some too. Memory is what the host
// has less of, with the kernel's structures, rounded up.
const (
	Descriptors = 3
	hostFiles   = Descriptors + 13
	idleMemory  = 2 << 20
)

// Demand is how many sandboxes are to live at once.
type Demand struct {
	Sandboxes int
	// Memory is the sum of the memory limits that they may have together, in
	// bytes, and Processes the limit of each one.
	Memory, Processes int64
}

// resource is a row of the table of what sandboxes need of a host.
type resource struct {
	code, name string
	each, base int64                                     // what each sandbox needs, and the server and the host without any
	have       func(h *host) (n int64, how string)       // unlimited for none, unknown for what cannot be read
	fix        func(h *host, need int64) string          // "" for what cannot be changed
	show       func(n int64) string                      // nil: a plain number
	only       func(h *host) bool                        // nil: everywhere
	extra      func(h *host, d Demand, have int64) *note // more to say where the idle ones fit
}

type note struct{ probed, means, fix string }

const (
	unlimited = math.MaxInt64
	unknown   = -1
)

// resources is everything of which a host can have too little for a number of
// sandboxes. Sources: proc(5), user_namespaces(7), cgroups(7), getrlimit(2), epoll(7).
func resources() []resource {
	all := []resource{
		{
			code: "descriptors", name: "open files of the server's process", each: Descriptors, base: 32, have: nofile, // what clients need is the reserve
			fix: func(_ *host, need int64) string {
				need += 2 * int64(highfd.Reserve(math.MaxUint64)) //nolint:gosec // a thousand
				return fmt.Sprintf("under systemd LimitNOFILE=%d in the unit; otherwise, as root: ulimit -n %d before the server is started", need, need)
			},
		},
		{code: "files", name: "open files of the whole host", each: hostFiles, base: 4096, have: number("proc/sys/fs/file-max"), fix: sysctl("fs.file-max")},
		{code: "pid_max", name: "process numbers", each: wire.MaxTasks, base: 512, have: number("proc/sys/kernel/pid_max"), fix: sysctl("kernel.pid_max"), extra: busyTasks},
		{code: "threads-max", name: "tasks of the whole host", each: wire.MaxTasks, base: 512, have: number("proc/sys/kernel/threads-max"), fix: sysctl("kernel.threads-max"), extra: busyTasks},
		{
			code: "pids.max", name: "tasks of the server's cgroup", each: wire.MaxTasks, base: 64, have: ownGroup("pids", "pids.max"), extra: busyTasks,
			fix: func(*host, int64) string { return "TasksMax=infinity in the unit" },
		},
		{
			code: "nproc", name: "tasks of this user", each: wire.MaxTasks, base: 64, have: nproc, only: func(h *host) bool { return h.uid != 0 },
			fix: func(_ *host, need int64) string {
				return fmt.Sprintf("under systemd LimitNPROC=%d in the unit; otherwise, as root: ulimit -u %d before the server is started", need, need)
			},
		},
		{
			code: "memory", name: "memory of the host", each: idleMemory, base: 512 << 20, have: memTotal, show: showBytes, extra: busyMemory,
		},
		{
			code: "memory.max", name: "memory of the server's cgroup", each: idleMemory, base: 256 << 20, have: ownGroup("memory", "memory.max"), show: showBytes,
			fix: func(_ *host, need int64) string { return fmt.Sprintf("MemoryMax=%d in the unit", need) },
		},
		{
			code: "ids", name: "blocks of host user ids, one for each sandbox", each: 1, only: func(h *host) bool { return h.uid == 0 },
			have: func(*host) (int64, string) {
				return idblock.Count, "what there is above the ids of people and containers"
			},
		},
		{code: "epoll", name: "descriptors that the server may wait for", each: Descriptors, base: 300, have: number("proc/sys/fs/epoll/max_user_watches"), fix: sysctl("fs.epoll.max_user_watches")},
	}
	for _, kind := range strings.Fields("user mnt pid net ipc uts cgroup time") {
		name := "max_" + kind + "_namespaces"
		// Prepared mounts are mount namespaces as well, one for dozens of sandboxes.
		all = append(all, resource{code: name, name: kind + " namespaces", each: 1, base: 256, have: number("proc/sys/user/" + name), fix: sysctl("user." + name)})
	}
	return all
}

// Room says whether this host can carry so many sandboxes at once: one finding for
// each resource of which there is too little or of which there may be, and one that
// says what is scarcest where all is well. Nothing in it is a Problem.
func Room(d Demand) []Finding {
	return (&host{root: "/", uid: os.Geteuid()}).room(d)
}

func (h *host) room(d Demand) []Finding {
	var found []Finding
	n := int64(d.Sandboxes)
	most, scarcest := int64(math.MaxInt64), ""
	for _, r := range resources() {
		if r.only != nil && !r.only(h) {
			continue
		}
		have, how := r.have(h)
		if have == unlimited || have == unknown {
			continue
		}
		fits := max(0, have-r.base) / r.each
		if fits < most {
			most, scarcest = fits, r.name
		}
		f := Finding{Code: "capacity." + r.code, Title: "there are enough for " + count(n) + ": " + r.name, Answer: Yes, Severity: OK}
		switch need := n*r.each + r.base; {
		case fits < n:
			f.Answer, f.Severity = No, Warning
			f.Probed = fmt.Sprintf("%s need %s; %s: %s", count(n), r.text(need), how, r.text(have))
			f.Means = fmt.Sprintf("at about %d, creating another one fails", fits)
			var fixes []string
			if r.fix != nil {
				fixes = append(fixes, r.fix(h, need))
			}
			if fits > 0 {
				fixes = append(fixes, fmt.Sprintf("capacity.sandboxes: %d in the server's configuration", fits))
			} else {
				f.Means = "creating the first one may fail"
			}
			f.Fix = strings.Join(fixes, ", or ")
		case r.extra != nil:
			if more := r.extra(h, d, have); more != nil {
				f.Title = "there are enough for " + count(n) + " that idle: " + r.name
				f.Severity, f.Probed, f.Means, f.Fix = Info, more.probed, more.means, more.fix
			}
		}
		if f.Severity != OK {
			found = append(found, f)
		}
	}
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Severity == Warning }) {
		found = append([]Finding{{
			Code: "capacity", Title: "the host carries " + count(n) + " at once", Answer: Yes, Severity: OK,
			Probed: fmt.Sprintf("idle ones, up to about %d; what is used up first: %s", most, scarcest),
		}}, found...)
	}
	return found
}

func count(n int64) string { return fmt.Sprintf("%d sandboxes", n) }

func (r *resource) text(n int64) string {
	if r.show != nil {
		return r.show(n)
	}
	return strconv.FormatInt(n, 10)
}

func showBytes(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return sandbox.FormatQuantity(n>>20<<20, sandbox.UnitBytes)
}

// busyTasks is said where not all could use the processes that they may have.
func busyTasks(_ *host, d Demand, have int64) *note {
	need := int64(d.Sandboxes) * (wire.MaxTasks + d.Processes)
	if d.Processes == 0 || need <= have {
		return nil
	}
	return &note{
		probed: fmt.Sprintf("%s with %d processes each would be %d tasks, of %d", count(int64(d.Sandboxes)), d.Processes, need, have),
		means:  "that is well unless many use up their limit at once: forks then fail, inside and outside",
	}
}

// busyMemory is said where not all could use the memory that they may have.
func busyMemory(_ *host, d Demand, have int64) *note {
	if d.Memory <= have {
		return nil
	}
	return &note{
		probed: fmt.Sprintf("their limits may add up to %s, of %s", showBytes(d.Memory), showBytes(have)),
		means:  "that is well unless many use up their limit at once: the kernel then ends sandboxes for want of memory",
		fix:    fmt.Sprintf("where programs use what they may, capacity.memory: %dMiB in the server's configuration", have*9/10>>20),
	}
}

// number is a setting of the kernel.
func number(name string) func(*host) (int64, string) {
	return func(h *host) (int64, string) {
		text, err := h.read(name)
		if err != nil {
			return unknown, ""
		}
		return parseMax(text), "/" + name
	}
}

// parseMax reads a limit, which may be "max".
func parseMax(text string) int64 {
	if text == "max" {
		return unlimited
	}
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil:
		return unknown
	case n >= 1<<62: // how version 1 of cgroups, and file-max, say "none"
		return unlimited
	}
	return int64(n)
}

func sysctl(key string) func(*host, int64) string {
	return func(_ *host, need int64) string {
		return setSysctl(key, strconv.FormatInt(need, 10))
	}
}

// setSysctl is the command that sets a kernel's setting for good. It leaves what others
// like it have set; of a setting that is there twice the last one holds.
func setSysctl(key, value string) string {
	return "echo " + key + "=" + value + " | sudo tee -a /etc/sysctl.d/92-pinfold.conf && sudo sysctl --system"
}

// nofile is the limit to which Go's runtime has raised ours, the hard one, without
// what is kept from new sandboxes.
func nofile(h *host) (int64, string) {
	const how = "the hard limit of this process, without a reserve"
	hard := h.rlimit(syscall.RLIMIT_NOFILE)
	if hard >= 1<<62 {
		return unlimited, how
	}
	return max(0, int64(hard)-2*int64(highfd.Reserve(hard))), how //nolint:gosec // checked
}

// rlimitNPROC is RLIMIT_NPROC, which package syscall does not name.
const rlimitNPROC = 6

func nproc(h *host) (int64, string) {
	hard := h.rlimit(rlimitNPROC)
	if hard >= 1<<62 {
		return unlimited, ""
	}
	return int64(hard), "the hard limit of this user" //nolint:gosec // checked
}

// rlimit is a hard limit of this process. Tests have limits of their own.
func (h *host) rlimit(which int) uint64 {
	if h.limits != nil {
		return h.limits(which)
	}
	var l syscall.Rlimit
	if syscall.Getrlimit(which, &l) != nil {
		return math.MaxUint64
	}
	return l.Max
}

func memTotal(h *host) (int64, string) {
	text, err := h.read("proc/meminfo")
	if err != nil {
		return unknown, ""
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(f[1], 10, 50); err == nil {
				return kib << 10, "/proc/meminfo"
			}
		}
	}
	return unknown, ""
}

// ownGroup is the lowest limit of the server's own cgroup and those above it, as
// far as they are seen. On version 1 the file of memory has another name.
func ownGroup(controller, file string) func(*host) (int64, string) {
	return func(h *host) (int64, string) {
		text, err := h.read("proc/self/cgroup")
		if err != nil {
			return unknown, ""
		}
		lowest, how := int64(unlimited), ""
		for line := range strings.Lines(text) {
			f := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(f) != 3 {
				continue
			}
			base, name := "sys/fs/cgroup", file
			switch {
			case f[0] == "0" && f[1] == "":
			case slices.Contains(strings.Split(f[1], ","), controller):
				base = path.Join(base, controller)
				if controller == "memory" {
					name = "memory.limit_in_bytes"
				}
			default:
				continue
			}
			for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
				if n, at := number(path.Join(base, dir, name))(h); n != unknown && n < lowest {
					lowest, how = n, at
				}
				if dir == "/" {
					break
				}
			}
		}
		return lowest, how
	}
}
