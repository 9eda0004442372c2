package cgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// timeout bounds Kill and Remove when the context does not.
const timeout = 10 * time.Second

// Procs lists the processes in the group, as ids of our own pid namespace; a
// process outside it is listed as 0. A removed group has none.
func (g *Group) Procs() ([]int, error) {
	var all []int
	for _, dir := range g.dirs {
		text, err := readFile(path.Join(dir, "cgroup.procs"), maxControlFile)
		if Gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, pids(text)...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Kill ends every process in the group and waits until none is left. Version 2
// does it in one step (cgroup.kill, since Linux 5.14). Otherwise we forbid new
// tasks first, so that the loop over the processes comes to an end.
//
// When all have been killed, what limits the group's memory and CPU time is
// lifted: a process must still run to end, and one that is at its limits gets
// neither the memory nor the time for it. Thirty of them were seen to search for
// pages to take back for 40 s. Nothing of the guest's runs any more that could
// use what is given; and nothing that ends needs a new task.
func (g *Group) Kill(ctx context.Context) error {
	atOnce := g.version == 2 && writeFile(path.Join(g.dirs[0], "cgroup.kill"), "1") == nil
	return g.kill(ctx, atOnce)
}

// kill waits until the group is empty and, unless that was started at once for
// all, kills whatever it finds.
func (g *Group) kill(ctx context.Context, atOnce bool) error {
	if dir, ok := g.where[Pids]; ok && !atOnce {
		if err := writeFile(path.Join(dir, pidsFile), "0"); err != nil && !Gone(err) {
			return err
		}
	}
	killed, lifted := map[int]bool{}, false
	return wait(ctx, func() error {
		ids, err := g.Procs()
		if err != nil || len(ids) == 0 {
			return err
		}
		all := atOnce
		if !atOnce {
			// One that was listed twice had no child that we did not see: it was
			// killed before, and forks no more.
			all = !slices.ContainsFunc(ids, func(id int) bool { return !killed[id] })
			if err := g.killEach(ids); err != nil {
				return err
			}
			for _, id := range ids {
				killed[id] = true
			}
		}
		if all && !lifted {
			lifted = true
			if err := g.lift(); err != nil {
				return err
			}
		}
		return fmt.Errorf("cannot end the processes %v of cgroup %s: %w", first(ids), g.name, errAgain)
	})
}

// lift takes the limits on memory and CPU time off the group, and has it stand still no
// more.
func (g *Group) lift() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	type file struct {
		controller  Controller
		name, value string
	}
	files := []file{{CPU, "cpu.max", "max"}, {Memory, memoryFileV2, "max"}}
	if g.version == 1 { // memory and swap together are never below memory
		files = []file{{CPU, "cpu.cfs_quota_us", "-1"}, {Memory, swapFileV1, "-1"}, {Memory, memoryFileV1, "-1"}}
	}
	for _, f := range files {
		dir, ok := g.where[f.controller]
		if !ok {
			continue
		}
		if err := writeFile(path.Join(dir, f.name), f.value); err != nil && !Gone(err) {
			return err
		}
	}
	g.ending = true
	if g.version == 1 { // where what is frozen does not end
		if err := g.thawLocked(); err != nil {
			return err
		}
	}
	g.memory = 0 // SetMemoryLimit has nothing to move any more
	return nil
}

// killEach kills processes by id without ever hitting a stranger that got a
// dead one's id: what is still listed after its pidfd was opened is ours.
func (g *Group) killEach(ids []int) error {
	for chunk := range slices.Chunk(ids, 64) {
		fds := map[int]int{}
		for _, id := range chunk {
			if fd, err := pidfdOpen(id); err == nil {
				fds[id] = fd
			}
		}
		listed, err := g.Procs()
		for id, fd := range fds {
			if err == nil && slices.Contains(listed, id) {
				_ = pidfdKill(fd) // dead already
			}
			_ = unix.Close(fd)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Remove removes the group, waiting until dead processes have left it. The
// processes must have been ended before. It may be called again: nil means that
// nothing is left.
func (g *Group) Remove(ctx context.Context) error {
	g.Close()
	return wait(ctx, func() error {
		var errs []error
		dirs := g.dirs
		if g.inFreezer { // first: who finds a part of the group finds all that is left
			dirs = slices.Concat([]string{g.frozenDir()}, dirs)
		}
		for _, dir := range dirs {
			err := rmdir(dir)
			if errors.Is(err, unix.EBUSY) {
				ids, _ := g.Procs()
				err = fmt.Errorf("%w: %w; processes in it: %v", errAgain, err, first(ids))
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// Close releases the group's descriptors; counters cannot be read afterwards. Remove does
// so, too: it is for who did not make the group.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, fd := range g.files {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		g.files[i] = absent
	}
	g.removed = true
}

// Swept is one group that a dead owner had left behind. Err is nil when it was removed.
type Swept struct {
	Name string
	Err  error
}

// Sweep removes every group whose owner is dead, with all processes in it. It
// asks alive for each name; what is made while it runs must be alive before it
// is made. Directories whose names New would refuse are not ours.
func (h *Hierarchy) Sweep(ctx context.Context, alive func(name string) bool) ([]Swept, error) {
	names := map[string]bool{}
	for _, t := range h.trees {
		entries, err := os.ReadDir(t.groups())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot look for old cgroups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && validName(e.Name()) {
				names[e.Name()] = true
			}
		}
	}
	var swept []Swept
	for name := range names {
		if alive(name) {
			continue
		}
		g := h.adopt(name)
		err := g.Kill(ctx)
		if err == nil {
			err = g.Remove(ctx)
		}
		swept = append(swept, Swept{name, err})
	}
	if h.version == 1 && h.freezer.root != "" && exists(h.freezer.groups()) { // a dead owner's perhaps, for us to remove
		h.froze.Store(true)
	}
	slices.SortFunc(swept, func(a, b Swept) int { return cmp.Compare(a.Name, b.Name) })
	return swept, nil
}

// adopt stands for a group that an earlier process made.
func (h *Hierarchy) adopt(name string) *Group {
	g := &Group{name: name, version: h.version, hierarchy: h, where: map[Controller]string{}}
	g.inFreezer = h.version == 1 && h.freezer.root != "" && exists(g.frozenDir())
	for i := range g.files {
		g.files[i] = absent
	}
	for _, t := range h.trees {
		dir := path.Join(t.groups(), name)
		g.dirs = append(g.dirs, dir)
		for _, c := range t.controllers {
			g.where[c] = dir
		}
	}
	return g
}

// errAgain marks what time may heal.
var errAgain = errors.New("still in use")

// wait repeats a step until it succeeds, fails for good, or time is up; then
// it returns the last error.
func wait(ctx context.Context, step func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := step()
		if !errors.Is(err, errAgain) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// Gone says that a cgroup was removed, before or after its file was opened.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// first keeps lists in messages short.
func first(ids []int) []int { return ids[:min(len(ids), 8)] }
