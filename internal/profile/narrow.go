package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pinfold/internal/language"
	"pinfold/sandbox"
)

// narrowing holds wishes against a profile.
type narrowing struct{ p sandbox.Profile }

// machine is the part of a request that runs and living sandboxes have in common.
type machine struct {
	template, driver, isolation *string
	require                     *[]string
	limits                      *sandbox.Limits
	network                     *sandbox.Network
	packages                    *sandbox.Packages
	mounts                      []sandbox.Mount
}

// refuse says what the profile fixes, and what to do.
func (n narrowing) refuse(field, asked, fixed string, fix sandbox.Fix) error {
	return (&sandbox.Error{
		Code: sandbox.CodeProfileDenied, Field: field,
		Message: fmt.Sprintf("%s is wider than the profile %s, which has %s", sandbox.SafeText(asked, 120), n.p.Name, sandbox.SafeText(fixed, 200)),
	}).WithAdvice(sandbox.Advise("%s, or ask without the profile", fix))
}

func (n narrowing) machine(m machine) (err error) {
	if len(m.mounts) > 0 {
		return n.refuse("mounts", "a directory of the host", "none", sandbox.Copy(m.mounts[0].Host))
	}
	if err := n.fixed("template", m.template, n.p.Template); err != nil {
		return err
	}
	if n.p.Driver != "" && *m.driver != sandbox.DriverAuto {
		if err := n.fixed("driver", m.driver, n.p.Driver); err != nil {
			return err
		}
	}
	*m.driver = cmp.Or(n.p.Driver, *m.driver)
	if *m.isolation, err = n.isolation(*m.isolation); err != nil {
		return err
	}
	*m.require = append(slices.Clone(n.p.Require), slices.DeleteFunc(slices.Clone(*m.require), func(f string) bool { return slices.Contains(n.p.Require, f) })...)
	if *m.limits, err = n.limits(*m.limits); err != nil {
		return err
	}
	if *m.packages, err = n.packages(*m.packages); err != nil {
		return err
	}
	*m.network, err = n.network(*m.network)
	return err
}

// fixed is for what a request can leave out or repeat.
func (n narrowing) fixed(field string, asked *string, is string) error {
	if *asked != "" && *asked != is {
		return n.refuse(field, *asked, is, sandbox.Omit(field))
	}
	*asked = is
	return nil
}

func (n narrowing) language(asked string) (string, error) {
	if asked != "" {
		l, err := language.Find(asked)
		if err != nil {
			return "", err
		}
		asked = l.Name
	}
	err := n.fixed("language", &asked, n.p.Language)
	return asked, err
}

func (n narrowing) warm(asked []string, cold bool) ([]string, error) {
	if len(asked) == 0 && !cold {
		return n.p.Warm, nil
	}
	for i, module := range asked {
		if !slices.Contains(n.p.Warm, module) {
			return nil, n.refuse(fmt.Sprintf("warm[%d]", i), module, orNothing(n.p.Warm), sandbox.Omit("warm"))
		}
	}
	return asked, nil
}

// packages are some of the profile's, or all where the request names none.
func (n narrowing) packages(asked sandbox.Packages) (sandbox.Packages, error) {
	if asked.Empty() {
		return n.p.Packages, nil
	}
	asked, err := asked.Canonical()
	if err != nil {
		return asked, err
	}
	for _, kind := range sandbox.PackageKinds() {
		for _, one := range asked.Of(kind) {
			if !slices.Contains(n.p.Packages.Of(kind), one) {
				return asked, n.refuse("packages."+kind, one, orNothing(n.p.Packages.Of(kind)), sandbox.Omit("packages"))
			}
		}
	}
	return asked, nil
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// weakest is the least level that a machine of a profile has; "" is what its driver has.
func weakest(p sandbox.Profile) string {
	if p.Isolation == "" && p.Driver == "" {
		return sandbox.LevelNamespace
	}
	return p.Isolation
}

func (n narrowing) isolation(asked string) (string, error) {
	least := weakest(n.p)
	if slices.Contains(sandbox.IsolationLevels(), asked) && !sandbox.LevelAtLeast(asked, least) {
		return "", n.refuse("isolation", asked, least+" or stronger", sandbox.Omit("isolation"))
	}
	return cmp.Or(asked, least), nil
}

func (n narrowing) limits(asked sandbox.Limits) (sandbox.Limits, error) {
	for _, info := range sandbox.LimitTable() {
		v, most := asked.Get(info.Field), n.p.Limits.Get(info.Field)
		if v > most {
			return asked, n.refuse("limits."+info.Field, sandbox.FormatQuantity(v, info.Unit), sandbox.FormatQuantity(most, info.Unit), sandbox.Set("limits."+info.Field, most))
		}
		asked.Set(info.Field, cmp.Or(v, most))
	}
	if most := n.p.Limits.CPUs; asked.CPUs > most {
		return asked, n.refuse("limits.cpus", fmt.Sprint(asked.CPUs), fmt.Sprint(most), sandbox.Set("limits.cpus", most))
	}
	asked.CPUs = cmp.Or(asked.CPUs, n.p.Limits.CPUs)
	return asked, nil
}

// gate is what both check. A check that asks for less than the profile's is refused: who
// asks believes in it.
func (n narrowing) gate(asked *sandbox.Gate) (*sandbox.Gate, error) {
	if asked != nil && len(asked.Validators) > 0 { // programs of any language, which cost what no profile says
		return nil, n.refuse("gate.validators", strconv.Itoa(len(asked.Validators))+" of a request's own", "none", sandbox.Omit("gate.validators"))
	}
	if asked == nil || n.p.Gate == nil {
		return asked.Merge(n.p.Gate), nil
	}
	if err := asked.Validate(); err != nil {
		return nil, err
	}
	fixed := n.p.Gate.Checks()
	for i, c := range asked.Checks() {
		least := *fixed[i].Action
		if *c.Action != "" && sandbox.StrongerAction(least, *c.Action) != *c.Action {
			return nil, n.refuse("gate."+c.Name, string(*c.Action), string(least), sandbox.Omit("gate."+c.Name))
		}
	}
	if err := n.artifacts(asked.Artifacts, n.p.Gate.Artifacts); err != nil {
		return nil, err
	}
	return asked.Merge(n.p.Gate), nil
}

func (n narrowing) artifacts(asked, fixed *sandbox.GateArtifacts) error {
	if asked == nil || fixed == nil {
		return nil
	}
	const at = "gate.artifacts."
	for _, l := range []struct {
		field       string
		asked, most int64
	}{{"max", asked.Max, fixed.Max}, {"max_bytes", asked.MaxBytes, fixed.MaxBytes}, {"max_total_bytes", asked.MaxTotalBytes, fixed.MaxTotalBytes}} {
		if l.most != 0 && l.asked > l.most {
			return n.refuse(at+l.field, fmt.Sprint(l.asked), fmt.Sprint(l.most), sandbox.Set(at+l.field, l.most))
		}
	}
	if asked.Action == sandbox.GateFlag && fixed.Action != sandbox.GateFlag {
		return n.refuse(at+"action", string(asked.Action), string(sandbox.GateWithhold), sandbox.Omit(at+"action"))
	}
	for i, media := range asked.MediaTypes {
		if fixed.MediaTypes != nil && !slices.ContainsFunc(fixed.MediaTypes, func(p string) bool { return sandbox.MatchMediaType(p, media) }) {
			return n.refuse(fmt.Sprintf("%smedia_types[%d]", at, i), media, orNothing(fixed.MediaTypes), sandbox.Set(at+"media_types", fixed.MediaTypes))
		}
	}
	return nil
}
