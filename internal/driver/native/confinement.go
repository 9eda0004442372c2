//go:build linux

package native

import (
	"encoding/hex"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/linux/landlock"
	"pinfold/internal/linux/seccomp"
	"pinfold/sandbox"
)

// confinement is what a fork does to itself once it is in its machine's
// namespaces: what the table of system calls and the agent do to a program that is
// started. Bytes are in hexadecimal.
type confinement struct {
	Joins      int         `json:"joins"`      // how many files come with each request by which its machine's cgroup is entered
	Namespaces int         `json:"namespaces"` // of the machine, to enter before the fork
	TimeNS     int         `json:"time_ns"`    // to enter after it, 0 for none
	Home       string      `json:"home"`
	UID        int         `json:"uid"`
	GID        int         `json:"gid"`
	Rlimits    [][2]uint64 `json:"rlimits"`
	Landlock   *landlocked `json:"landlock"`
	Filter     *filtered   `json:"filter"`
}

type landlocked struct {
	Ruleset string     `json:"ruleset"` // struct landlock_ruleset_attr
	Trees   [][]string `json:"trees"`   // path, and landlock_path_beneath_attr without the descriptor
	Flags   uintptr    `json:"flags"`
}

type filtered struct {
	Program string  `json:"program"` // struct sock_filter, one behind the other
	Flags   uintptr `json:"flags"`
	Listens bool    `json:"listens"` // the call returns a listener, which is to be sent
}

// newConfinement describes the confinement of a plan's forks.
func newConfinement(h *host, plan driver.Plan, spec driver.ZygoteSpec, joins int) confinement {
	c := confinement{Joins: joins, Namespaces: namespaces | unix.CLONE_NEWCGROUP, Home: spec.Home, UID: spec.UID, GID: spec.GID}
	if plan.Enforces(sandbox.FeatureTimeNS) {
		c.TimeNS = unix.CLONE_NEWTIME
	}
	for _, l := range inheritedRlimits {
		c.Rlimits = append(c.Rlimits, [2]uint64{uint64(l.resource), l.value}) //nolint:gosec // a small number
	}
	for _, l := range spec.Limits {
		c.Rlimits = append(c.Rlimits, [2]uint64{uint64(l.Resource), l.Value}) //nolint:gosec // a small number
	}
	if l := h.features.landlock; l != nil && plan.Enforces(sandbox.FeatureLandlock) {
		c.Landlock = &landlocked{Ruleset: hex.EncodeToString(landlock.RulesetAttr(l.level)), Flags: landlock.RestrictFlags(l.level)}
		n := &initSpec{template: h.template}
		for _, t := range l.trees(n.writablePaths()) {
			attr := landlock.PathBeneathAttr(t.use.Rights(l.level), 0)[:landlock.PathBeneathFDOffset]
			c.Landlock.Trees = append(c.Landlock.Trees, []string{t.path, hex.EncodeToString(attr)})
		}
	}
	if f := h.features.filter; f != nil && plan.Enforces(sandbox.FeatureSeccomp) {
		c.Filter = &filtered{Program: encodeFilter(f.program), Flags: f.flags, Listens: f.listens}
	}
	return c
}

func encodeFilter(p seccomp.Program) string {
	var b strings.Builder
	for _, i := range p {
		b.WriteString(hex.EncodeToString(i.Bytes()))
	}
	return b.String()
}
