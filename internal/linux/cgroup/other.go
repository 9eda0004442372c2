package cgroup

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Of returns the groups of a process that somebody else has made, such as a container
// engine, and also removes: Kill and Remove are not for them. name is for messages. What a hierarchy
// counts in which the process is in everybody's group, or in one that cannot be seen from
// here, is not known. It fails when that is so for all, and for a process that is gone.
func Of(pid int, name string) (*Group, error) { return realHost().of(pid, name) }

// MemoryLimit is the limit in force, in bytes; 0: there is none.
func (g *Group) MemoryLimit() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.memory
}

// StandsStill says whether the kernel has stopped every process of a group that Of has
// returned; known is false where that cannot be seen from here.
func (g *Group) StandsStill() (is, known bool, err error) {
	if g.freezer == "" {
		return false, false, nil
	}
	is, err = g.standStill(g.freezer)
	return is, true, err
}

func (h host) of(pid int, name string) (*Group, error) {
	info, err := readFile(path.Join(h.proc, "self/mountinfo"), maxMountinfo)
	if err != nil {
		return nil, fmt.Errorf("cannot find cgroup mounts: %w", err)
	}
	text, err := readFile(path.Join(h.proc, fmt.Sprint(pid), "cgroup"), maxSelfCgroup)
	if err != nil {
		return nil, fmt.Errorf("cannot find the cgroups of process %d: %w", pid, err)
	}
	mounts := parseMountinfo(string(info))
	g := &Group{name: name, version: 2, where: map[Controller]string{}}
	for i := range g.files {
		g.files[i] = -1
	}
	if _, ok := pick(mounts, kernelName(Memory)); ok {
		g.version = 1
	}
	for _, c := range Controllers() {
		if c == Swap {
			continue // is memory's
		}
		controller := ""
		if g.version == 1 {
			controller = kernelName(c)
		}
		m, ok := pick(mounts, controller)
		if !ok {
			continue
		}
		dir, ok := m.visible(groupOf(string(text), controller))
		if !ok || dir == m.dir { // everybody's
			continue
		}
		g.where[c] = dir
		if !slices.Contains(g.dirs, dir) {
			g.dirs = append(g.dirs, dir)
		}
	}
	if len(g.dirs) == 0 {
		return nil, fmt.Errorf("process %d is in no cgroup of its own that can be seen here", pid)
	}
	g.freezer = g.dirs[0]
	if g.version == 1 {
		g.freezer = othersFreezer(mounts, string(text))
	}
	limit := memoryFileV2
	if g.version == 1 {
		limit = memoryFileV1
	}
	if text, err := g.read(Memory, limit); err == nil { // "max" is none
		g.memory, _ = number(text)
	}
	g.swapFile = g.version == 1 && exists(path.Join(g.where[Memory], swapFileV1))
	return g, nil
}

// othersFreezer is where the freezer of version 1 has the processes of a group that somebody
// else has made; "": nowhere that can be seen, or with everybody.
func othersFreezer(mounts []mountPoint, groups string) string {
	m, ok := pick(mounts, freezerV1)
	if !ok {
		return ""
	}
	dir, ok := m.visible(groupOf(groups, freezerV1))
	if !ok || dir == m.dir {
		return ""
	}
	return dir
}

// groupOf finds a cgroup in /proc/PID/cgroup, of a controller of version 1, or of version
// 2 where that is empty; "/../" when there is none, which is nowhere visible.
//
//	4:memory:/docker/1f2e
//	0::/system.slice/docker-1f2e.scope
func groupOf(text, controller string) string {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) == 3 && (fields[1] == controller || controller != "" && slices.Contains(strings.Split(fields[1], ","), controller)) &&
			(controller != "" || fields[0] == "0") {
			return fields[2]
		}
	}
	return "/../"
}
