package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxAttempts bounds how often New starts again because another process
// removed the empty "pinfold" directory in between.
const maxAttempts = 50

// Group is one control group. It is safe for concurrent use.
type Group struct {
	name      string
	version   int
	hierarchy *Hierarchy // nil of a group that somebody else made
	dirs      []string   // one for each tree
	where     map[Controller]string

	freezer  string // of a group that somebody else made: where that is; "": it cannot be seen
	swapFile bool   // version 1: memory and swap are limited together

	freezing sync.Mutex // held by Freeze and Thaw, before mu

	mu      sync.Mutex // guards what follows
	memory  int64      // the limit in force, 0 = none
	files   [numOpen]int
	began   bool  // BeginPeak was called: its open file knows since when
	before  int64 // the memory peak at BeginPeak, where the kernel cannot forget it
	removed bool
	ending  bool // it is being killed: nothing stops what has to run to end
	// version 1: its directory in the freezer may be there
	inFreezer bool
}

// New makes a group and sets its limits. The name is 1 to 64 bytes of [a-z0-9-]
// and must be unused. On error nothing of the group is left; the error names
// the file that the kernel refused.
func (h *Hierarchy) New(name string, l Limits) (*Group, error) {
	if !validName(name) {
		return nil, fmt.Errorf("%q is no name for a cgroup", name)
	}
	if !h.Usable() {
		return nil, fmt.Errorf("no cgroup can be made: %s", h.support[Memory].Because)
	}
	if err := h.check(l); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		g, err := h.make(name, l)
		if err == nil || attempt == maxAttempts || !Gone(err) {
			return g, err
		}
		// The directory above is not there, or does not pass on a controller.
		if err := h.prepare(); err != nil && !Gone(err) {
			return nil, err
		}
	}
}

func validName(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// make makes the group once, or fails and leaves nothing.
func (h *Hierarchy) make(name string, l Limits) (g *Group, err error) {
	g = &Group{name: name, version: h.version, hierarchy: h, where: map[Controller]string{}, swapFile: h.swapFile, memory: l.Memory}
	for i := range g.files {
		g.files[i] = -1
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.undo())
			g = nil
		}
	}()
	for _, t := range h.trees {
		dir := path.Join(t.groups(), name)
		if err := mkdir(dir); err != nil {
			return g, err
		}
		g.dirs = append(g.dirs, dir)
		for _, c := range t.controllers {
			g.where[c] = dir
		}
	}
	for _, s := range h.settings(l) {
		err := writeFile(path.Join(g.where[s.controller], s.file), s.value)
		if s.optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return g, err
		}
	}
	return g, nil
}

// undo removes the directories of a group in which nothing ran yet.
func (g *Group) undo() error {
	var errs []error
	for _, dir := range slices.Backward(g.dirs) {
		errs = append(errs, rmdir(dir))
	}
	return errors.Join(errs...)
}

// prepare makes the directory that holds the groups and, on version 2, passes
// the controllers down to it.
func (h *Hierarchy) prepare() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.trees {
		if err := mkdir(t.groups()); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if h.version != 2 {
		return nil
	}
	base := h.trees[0].root
	if missing := h.notEnabled(base); missing != "" {
		if h.moveIn {
			if err := moveSelf(path.Join(base, hostLeaf)); err != nil {
				return err
			}
		}
		if err := writeFile(path.Join(base, "cgroup.subtree_control"), missing); err != nil {
			return err
		}
	}
	if missing := h.notEnabled(h.trees[0].groups()); missing != "" {
		return writeFile(path.Join(h.trees[0].groups(), "cgroup.subtree_control"), missing)
	}
	return nil
}

// notEnabled is what must be written to dir/cgroup.subtree_control, "" when
// it has everything: "+memory +pids".
func (h *Hierarchy) notEnabled(dir string) string {
	enabled := words(dir, "cgroup.subtree_control")
	var missing []string
	for _, c := range h.enable {
		if !slices.Contains(enabled, string(c)) {
			missing = append(missing, "+"+string(c))
		}
	}
	return strings.Join(missing, " ")
}

// moveSelf moves all threads of this process into a leaf. The kernel stops
// every fork of the machine for it, which may take some milliseconds.
func moveSelf(leaf string) error {
	if err := mkdir(leaf); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return writeFile(path.Join(leaf, "cgroup.procs"), "0")
}

// Close removes the directory that holds the groups when no group is in it,
// ours or another process's. Groups must have been removed before.
func (h *Hierarchy) Close() error {
	var errs []error
	trees := h.trees
	if h.froze.Load() {
		trees = append(slices.Clone(trees), h.freezer)
	}
	for _, t := range trees {
		err := rmdir(t.groups())
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrPermission) {
			continue // in use, or an administrator made it for us
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Name is the name that New was given.
func (g *Group) Name() string { return g.name }

// Dirs lists the group's directories: one on version 2, one for each
// hierarchy on version 1.
func (g *Group) Dirs() []string { return slices.Clone(g.dirs) }

// OpenDir opens the directory for clone3's CLONE_INTO_CGROUP, on version 2; nil
// on version 1. The caller closes it.
func (g *Group) OpenDir() (*os.File, error) {
	if g.version != 2 {
		return nil, nil
	}
	fd, err := openFile(g.dirs[0], unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), g.dirs[0]), nil
}

// JoinFiles opens the files into which a new, single-threaded process of
// version 1 writes "0" to enter the group, one for each hierarchy. The caller
// closes them. On version 2 there are none.
func (g *Group) JoinFiles() ([]int, error) {
	if g.version != 1 {
		return nil, nil
	}
	return g.openAll("tasks")
}

// EntryFiles opens the files into which any other process writes "0" to enter
// the group, on both versions. Who opened them is who moves it, so the process
// itself needs no right. The caller closes them. On version 1 those of JoinFiles
// do as well.
func (g *Group) EntryFiles() ([]int, error) {
	if g.version != 1 {
		return g.openAll("cgroup.procs")
	}
	return g.JoinFiles()
}

// Entries returns how many EntryFiles there are.
func (g *Group) Entries() int { return len(g.dirs) }

// openAll opens a file of each of the group's directories for writing.
func (g *Group) openAll(file string) ([]int, error) {
	files := make([]int, 0, len(g.dirs))
	for _, dir := range g.dirs {
		fd, err := openFile(path.Join(dir, file), unix.O_WRONLY)
		if err != nil {
			for _, f := range files {
				_ = unix.Close(f)
			}
			return nil, err
		}
		files = append(files, fd)
	}
	return files, nil
}

// SetMemoryLimit raises or lowers the memory limit of a group that has one, in
// bytes. Lowering it below what is in use makes the kernel reclaim first; if
// that is not enough, version 1 refuses with EBUSY and version 2 calls the OOM
// killer. The limit that is already in force costs nothing.
func (g *Group) SetMemoryLimit(bytes int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.removed:
		return fmt.Errorf("cgroup %s: %w", g.name, os.ErrClosed)
	case bytes <= 0 || g.memory == 0:
		return fmt.Errorf("cgroup %s: cannot change the memory limit from %d to %d", g.name, g.memory, bytes)
	case bytes == g.memory:
		return nil
	}
	files := []string{memoryFileV2}
	if g.version == 1 {
		files = []string{memoryFileV1}
		if g.swapFile { // never below the other one
			files = []string{memoryFileV1, swapFileV1}
		}
		if bytes > g.memory {
			slices.Reverse(files)
		}
	}
	for _, f := range files {
		if err := writeFile(path.Join(g.where[Memory], f), fmt.Sprint(bytes)); err != nil {
			return err
		}
	}
	g.memory = bytes
	return nil
}

// SetPidsLimit raises or lowers the limit on tasks of a group. Tasks that are
// there already stay.
func (g *Group) SetPidsLimit(tasks int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.removed:
		return fmt.Errorf("cgroup %s: %w", g.name, os.ErrClosed)
	case tasks <= 0 || g.where[Pids] == "":
		return fmt.Errorf("cgroup %s: cannot change the limit on tasks to %d", g.name, tasks)
	}
	return writeFile(path.Join(g.where[Pids], pidsFile), fmt.Sprint(tasks))
}

// SetCPUQuota sets how much processor time a group gets in each period, in microseconds.
func (g *Group) SetCPUQuota(quotaUS, periodUS int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.removed:
		return fmt.Errorf("cgroup %s: %w", g.name, os.ErrClosed)
	case quotaUS <= 0 || periodUS <= 0 || g.where[CPU] == "":
		return fmt.Errorf("cgroup %s: cannot set a CPU quota of %d in %d", g.name, quotaUS, periodUS)
	}
	h := Hierarchy{version: g.version}
	for _, s := range h.settings(Limits{CPUQuotaUS: quotaUS, CPUPeriodUS: periodUS}) {
		if err := writeFile(path.Join(g.where[CPU], s.file), s.value); err != nil {
			return err
		}
	}
	return nil
}
