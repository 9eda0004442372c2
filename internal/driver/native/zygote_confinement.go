//go:build linux

package native

import (
	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/linux/landlock"
	"pinfold/internal/linux/seccomp"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// newConfinement describes the confinement of a zygote's children by the plan.
func newConfinement(h *host, plan driver.Plan, spec zygote.Spec, joins int) zygote.Confinement {
	c := zygote.Confinement{Joins: joins, Namespaces: namespaces | unix.CLONE_NEWCGROUP, Home: spec.Home, UID: spec.UID, GID: spec.GID}
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
		c.Landlock = &zygote.Landlock{Ruleset: landlock.RulesetAttr(l.level), Flags: landlock.RestrictFlags(l.level)}
		n := &initSpec{template: plan.Template}
		for _, t := range l.trees(n.writablePaths()) {
			attr := landlock.PathBeneathAttr(t.use.Rights(l.level), 0)[:landlock.PathBeneathFDOffset]
			c.Landlock.Trees = append(c.Landlock.Trees, zygote.LandlockTree{Path: t.path, Rights: attr})
		}
	}
	if f := h.features.filter; f != nil && plan.Enforces(sandbox.FeatureSeccomp) {
		c.Filter = &zygote.Filter{Program: encodeFilter(f.program), Flags: f.flags, Listens: f.listens}
	}
	return c
}

func encodeFilter(p seccomp.Program) (b zygote.Hex) {
	for _, i := range p {
		b = append(b, i.Bytes()...)
	}
	return b
}
