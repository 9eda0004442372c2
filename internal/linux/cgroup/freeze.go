package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The freezer's files and words.
const (
	freezeV2  = "cgroup.freeze"
	stateV1   = "freezer.state"
	frozenV1  = "FROZEN"
	thawedV1  = "THAWED"
	frozenV2  = "frozen 1"
	freezerV1 = "freezer" // the controller; version 2 needs none
)

// CanFreeze says whether Freeze can stop the group's processes: the freezer of version 1
// is mounted and can be written to, or the kernel is Linux 5.2 or later. It looks once
// for all groups.
func (g *Group) CanFreeze() bool {
	if g.hierarchy == nil {
		return false
	}
	h := g.hierarchy
	h.freezerOnce.Do(func() {
		if h.version == 2 {
			h.canFreeze = exists(path.Join(g.dirs[0], freezeV2))
			return
		}
		h.canFreeze = h.freezer.root != "" && h.freezerPlace() == nil
	})
	return h.canFreeze
}

func (h *Hierarchy) freezerPlace() error {
	_, err := realHost().placeV1(h.freezer.root)
	return err
}

// frozenDir is the group's directory with the freezer's files.
func (g *Group) frozenDir() string {
	if g.version == 2 {
		return g.dirs[0]
	}
	return path.Join(g.hierarchy.freezer.groups(), g.name)
}

// Freeze stops every process of the group and returns when all stand still. It is
// idempotent. When that is not so before the context ends (a process may be in an
// uninterruptible call of the kernel), all go on, and it fails. It fails with
// os.ErrClosed when the group is being killed or has been removed.
//
// On version 1 a group joins the freezer only here, so that no other group pays for it:
// the tasks are moved into a group that is frozen already, and stop as they arrive. Each
// that has stopped forks no more and counts against the limit on tasks, so that a fork
// bomb comes to an end, too.
func (g *Group) Freeze(ctx context.Context) error {
	if !g.CanFreeze() {
		return fmt.Errorf("cgroup %s: %w: there is no freezer", g.name, errors.ErrUnsupported)
	}
	g.freezing.Lock()
	defer g.freezing.Unlock()
	err := g.beginFreeze()
	if err == nil {
		err = wait(ctx, g.freezeStep)
	}
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return errors.Join(err, g.thaw())
	}
	return err
}

// beginFreeze tells the kernel to stop what is in the group, or comes to be.
func (g *Group) beginFreeze() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.removed || g.ending {
		return fmt.Errorf("cgroup %s: %w", g.name, os.ErrClosed)
	}
	if g.version == 2 {
		return writeFile(path.Join(g.dirs[0], freezeV2), "1")
	}
	h := g.hierarchy
	for _, dir := range []string{h.freezer.groups(), g.frozenDir()} {
		if err := mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	g.inFreezer = true
	h.froze.Store(true)
	return writeFile(path.Join(g.frozenDir(), stateV1), frozenV1)
}

// freezeStep looks whether all stand still, and moves those that have not been told to.
func (g *Group) freezeStep() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.removed || g.ending {
		return fmt.Errorf("cgroup %s: %w", g.name, os.ErrClosed)
	}
	if g.version == 1 {
		if err := g.moveToFreezer(); err != nil {
			return err
		}
	}
	stands, err := g.standStill(g.frozenDir())
	if err != nil {
		return err
	}
	if !stands {
		return fmt.Errorf("not all processes of cgroup %s stand still: %w", g.name, errAgain)
	}
	return nil
}

// standStill says whether the kernel has stopped all that is in a directory.
func (g *Group) standStill(dir string) (bool, error) {
	file, want := stateV1, frozenV1
	if g.version == 2 {
		file, want = "cgroup.events", frozenV2
	}
	text, err := readFile(path.Join(dir, file), maxControlFile)
	return slices.Contains(strings.Split(string(text), "\n"), want), err
}

// moveToFreezer moves the tasks that are not in the freezer's group yet; until there is
// none it fails with errAgain. A task's number may have become a stranger's while we
// moved it: what is in the freezer and not among the group's tasks afterwards goes back
// to where everybody is. Tasks are moved one by one: a process whose first thread has
// ended is in the list of processes for as long as the others run, but cannot be moved.
func (g *Group) moveToFreezer() error {
	frozen, err := tasks(g.frozenDir())
	if err != nil {
		return err
	}
	ours, err := tasks(g.dirs[0])
	if err != nil {
		return err
	}
	for id := range frozen {
		if !ours[id] {
			if err := moveTask(g.hierarchy.freezer.root, id); err != nil {
				return err
			}
		}
	}
	moved := 0
	for id := range ours {
		if frozen[id] {
			continue
		}
		moved++
		if err := moveTask(g.frozenDir(), id); err != nil {
			return err
		}
	}
	if moved > 0 {
		return fmt.Errorf("the processes of cgroup %s do not stop forking: %w", g.name, errAgain)
	}
	return nil
}

// tasks lists the threads in a group's directory.
func tasks(dir string) (map[int]bool, error) {
	text, err := readFile(path.Join(dir, "tasks"), maxControlFile)
	if err != nil {
		return nil, err
	}
	all := map[int]bool{}
	for _, id := range pids(text) {
		if id != 0 { // not of our pid namespace
			all[id] = true
		}
	}
	return all, nil
}

// moveTask moves a thread, unless it has ended.
func moveTask(dir string, id int) error {
	err := writeFile(path.Join(dir, "tasks"), fmt.Sprint(id))
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// Thaw lets the group's processes go on. It is idempotent.
func (g *Group) Thaw() error {
	g.freezing.Lock()
	defer g.freezing.Unlock()
	return g.thaw()
}

func (g *Group) thaw() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.thawLocked()
}

// thawLocked is Thaw by who holds mu. A group that is gone, or never was frozen, needs none.
func (g *Group) thawLocked() error {
	file, value := freezeV2, "0"
	switch {
	case g.version == 1 && !g.inFreezer:
		return nil
	case g.version == 1:
		file, value = stateV1, thawedV1
	}
	err := writeFile(path.Join(g.frozenDir(), file), value)
	if Gone(err) {
		return nil
	}
	return err
}
