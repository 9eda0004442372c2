//go:build linux

package native

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/landlock"
	"pinfold/internal/linux/spawn"
)

// landlockRules is how Landlock is applied on this kernel.
type landlockRules struct{ level int }

// newLandlockRules asks the kernel for its level. A level below the lowest that
// is of use counts as none.
func newLandlockRules() (*landlockRules, error) {
	level, _, err := landlock.ABI()
	if err != nil {
		return nil, err
	}
	if level < landlock.MinLevel {
		return nil, fmt.Errorf("the kernel's Landlock has level %d, %d is needed: %w", level, landlock.MinLevel, errors.ErrUnsupported)
	}
	return &landlockRules{level: min(level, landlock.MaxLevel)}, nil
}

// tree is a part of the sandbox's files and what it may be used for.
type tree struct {
	path string
	use  landlock.Use
}

// apply restricts the process, and all that it will start, to the rules: the
// second layer below the mounts. It comes after the last mount.
//
// The agent needs a rule of its own when it is a file of the host's; one in
// memory belongs to no file tree and is beyond Landlock.
//
// signalsOut lets signals out of the domain: a zygote's child has one of its own beside
// the agent's, which must be able to end it.
func (l *landlockRules) apply(p *spawn.Program, writable []string, agentFile int, signalsOut bool) {
	attr := landlock.RulesetAttr(l.level)
	if signalsOut {
		attr = landlock.RulesetAttrWithSignals(l.level)
	}
	rules := p.Result("make Landlock rules", unix.SYS_LANDLOCK_CREATE_RULESET, attr, len(attr), 0)
	for _, t := range l.trees(writable) {
		l.allow(p, rules, t)
	}
	if agentFile >= 0 {
		rule := landlock.PathBeneathAttr(landlock.ReadExecute.FileRights(l.level), agentFile)
		p.Call("add Landlock rule for the agent", unix.SYS_LANDLOCK_ADD_RULE, rules.Ref(), landlock.RulePathBeneath, rule, 0)
	}
	p.Call("apply Landlock rules", unix.SYS_LANDLOCK_RESTRICT_SELF, rules.Ref(), landlock.RestrictFlags(l.level))
	p.Call("close Landlock rules", unix.SYS_CLOSE, rules.Ref())
}

// trees are the rules, but for the agent's own.
func (l *landlockRules) trees(writable []string) []tree {
	trees := []tree{{"/", landlock.ReadExecute}, {"/dev", landlock.Devices}, {"/proc", landlock.Proc}}
	for _, w := range writable {
		trees = append(trees, tree{w, landlock.Write})
	}
	return trees
}

// allow adds one rule. Only directories are given.
func (l *landlockRules) allow(p *spawn.Program, rules spawn.Cell, t tree) {
	rule := append(landlock.PathBeneathAttr(t.use.Rights(l.level), 0), 0, 0, 0, 0) // a Cell is eight bytes
	fd := p.CellAt(rule, landlock.PathBeneathFDOffset)
	p.Call("open "+t.path, unix.SYS_OPENAT, unix.AT_FDCWD, t.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	p.SaveTo(fd)
	p.Call("add Landlock rule for "+t.path, unix.SYS_LANDLOCK_ADD_RULE, rules.Ref(), landlock.RulePathBeneath, rule, 0)
	p.Call("close "+t.path, unix.SYS_CLOSE, fd.Ref())
}
