package cgroup

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// maxControlFile bounds the control files that we read whole.
const maxControlFile = 1 << 20

// enabledV2 are the controllers that groups get on version 2, where there are
// any. CPU time is counted in every group without a controller.
var enabledV2 = []Controller{Memory, Pids, CPU, IO}

// detectV2 takes the first place where memory and pids can be used; when there
// is none, the first place says why.
func (h host) detectV2(mount mountPoint, own string) *Hierarchy {
	var first *Hierarchy
	for _, base := range h.candidates(mount, own) {
		found := h.examine(base)
		if found.can(Memory) && found.can(Pids) {
			return found
		}
		if first == nil {
			first = found
		}
	}
	return first
}

// candidates lists the cgroups that may hold our groups, best first: what
// systemd or a person delegated to us, then the whole machine for root.
func (h host) candidates(mount mountPoint, own string) []string {
	var bases []string
	dir, ok := mount.visible(own)
	if ok && path.Base(dir) == hostLeaf { // an ancestor of ours moved there
		bases = append(bases, path.Dir(dir))
		ok = false
	}
	if ok && (!h.root || h.delegated(dir)) {
		bases = append(bases, dir)
	}
	if ok && dir != mount.dir && h.delegated(path.Dir(dir)) { // DelegateSubgroup=
		bases = append(bases, path.Dir(dir))
	}
	if h.root || len(bases) == 0 {
		bases = append(bases, mount.dir)
	}
	return bases
}

// examine answers for each controller whether groups below base can have it.
func (h host) examine(base string) *Hierarchy {
	found := &Hierarchy{version: 2, support: map[Controller]Support{}}
	for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if err := h.writable(path.Join(base, f)); err != nil {
			for _, c := range Controllers() {
				found.support[c] = h.denied(c, path.Join(base, f), err)
			}
			return found
		}
	}
	found.trees = []tree{{root: base, controllers: []Controller{CPUAcct}}}
	found.support[CPUAcct] = Support{Answer: Yes, Because: "every group counts CPU time"}
	available, enabled := words(base, "cgroup.controllers"), words(base, "cgroup.subtree_control")
	self, obstacle := h.obstacle(base)
	for _, c := range enabledV2 {
		s := Support{Answer: Yes, Because: "enabled in " + base}
		switch {
		case !slices.Contains(available, string(c)):
			s = h.missing(c, base)
		case slices.Contains(enabled, string(c)):
		case obstacle != nil:
			s = obstacle(c)
		default:
			s.Because = "can be enabled in " + base
			found.moveIn = self
		}
		found.support[c] = s
		if s.Answer == Yes {
			found.enable = append(found.enable, c)
			found.trees[0].controllers = append(found.trees[0].controllers, c)
		}
	}
	found.support[Swap] = h.swapV2(found)
	return found
}

// obstacle says what keeps us from passing more controllers on from base, if
// anything, and whether this process itself sits in base. The root of the
// whole hierarchy, which has no cgroup.type, may hold processes.
func (h host) obstacle(base string) (self bool, because func(Controller) Support) {
	kind, err := readFile(path.Join(base, "cgroup.type"), maxControlFile)
	if err != nil {
		return false, nil
	}
	if k := strings.TrimSpace(string(kind)); k != "domain" {
		return false, func(c Controller) Support {
			return h.no(c, threaded, fmt.Sprintf("%s is of type %q", base, k))
		}
	}
	procs, err := readFile(path.Join(base, "cgroup.procs"), maxControlFile)
	if err != nil {
		return false, func(c Controller) Support {
			return h.no(c, occupied, fmt.Sprintf("cannot tell who is in %s: %v", base, cause(err)))
		}
	}
	ids := pids(procs)
	others := slices.DeleteFunc(slices.Clone(ids), func(id int) bool { return id == h.pid })
	if len(others) == 0 {
		return len(ids) > 0, nil
	}
	return false, func(c Controller) Support {
		return h.no(c, occupied, fmt.Sprintf("%s also holds %s, and a cgroup with processes cannot pass controllers on",
			base, describe(others)))
	}
}

// missing explains a controller that the kernel or the cgroups above do not
// offer to base.
func (h host) missing(c Controller, base string) Support {
	because := fmt.Sprintf("%s/cgroup.controllers has no %s", base, c)
	if exists(path.Join(base, "cgroup.type")) {
		return h.no(c, notDelegated, because)
	}
	s := h.no(c, notInKernel, because)
	if c != Memory {
		s.Command, s.Fix = false, fmt.Sprintf("use a kernel that has the %s controller", c)
	}
	return s
}

// swapV2 looks for the file in a cgroup that has the memory controller; the
// root cgroup has no such file itself.
func (h host) swapV2(found *Hierarchy) Support {
	memory := found.support[Memory]
	if memory.Answer != Yes {
		return memory
	}
	base := found.trees[0].root
	for _, dir := range []string{"", groupsDir, "system.slice", "user.slice", "init.scope"} {
		if file := path.Join(base, dir, swapFileV2); exists(file) {
			found.swapFile = true
			return Support{Answer: Yes, Because: file + " is there"}
		}
	}
	return h.swapByHost(swapFileV2)
}

// swapByHost answers where the control file was not seen: without swap space
// there is nothing to control.
func (h host) swapByHost(file string) Support {
	text, err := readFile(path.Join(h.proc, "swaps"), maxControlFile)
	if err == nil && strings.Count(string(text), "\n") <= 1 {
		return Support{Answer: Yes, Because: "this host has no swap"}
	}
	s := h.no(Swap, noSwapControl, "saw swap space on this host and no "+file)
	s.Answer = Unknown
	return s
}

// words reads a list of controllers; an unreadable file has none.
func words(dir, file string) []string {
	text, err := readFile(path.Join(dir, file), maxControlFile)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// describe names a few of the processes.
func describe(ids []int) string {
	if len(ids) == 1 {
		return fmt.Sprintf("process %d", ids[0])
	}
	if len(ids) > 3 {
		return fmt.Sprintf("%d processes (%d, %d, …)", len(ids), ids[0], ids[1])
	}
	return "processes " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ", "), "[]")
}
