package driver

import (
	"fmt"
	"strings"

	"pinfold/internal/image"
	"pinfold/sandbox"
)

// Answer is a probe's answer about one feature.
type Answer int

// A probe has three answers. Unknown is not cached and never counts as yes.
const (
	Unknown Answer = iota // could not tell
	Yes
	No
)

func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "could not tell"
}

// Finding is what a probe found about one feature.
type Finding struct {
	Feature string // a sandbox feature name, with its level ("landlock:7")
	Answer  Answer
	Because string      // what was tried and what the kernel said
	Fix     sandbox.Fix // the command or setting that would change a no; zero when nothing would
}

// Report is everything a driver found out about this host. Blocked, when set,
// says why the driver cannot work here at all.
type Report struct {
	Driver   string
	Level    string // of isolation, as Abilities says
	Blocked  *sandbox.Error
	Findings []Finding
	// SwitchUser is copied into every plan, but not into one with mounts when
	// MountsAsSelf says that only the caller's own id can use them.
	SwitchUser   bool
	MountsAsSelf bool
	// Processors are the host's that sandboxes may use, the first to be used first. It is
	// copied into every plan. Empty: nobody knows.
	Processors []int
	// Places is copied into every plan.
	Places string
	// Template is what machines show in place of the template that was asked for; nil:
	// that one.
	Template *image.Template
}

// Choose plans a machine by the first report whose driver can make it as it is asked
// for, or refuses: it says of each driver why not, with the first fix that there is. It
// is pure: the same arguments give the same answer, and it touches nothing. The spec
// must be valid and have its defaults; there is at least one report.
func Choose(spec sandbox.MachineSpec, template image.Template, reports []Report, id string) (Plan, error) {
	refusals := make([]*sandbox.Error, 0, len(reports))
	for _, r := range reports {
		plan, err := MakePlan(spec, template, r, id)
		if err == nil {
			return plan, nil
		}
		refusals = append(refusals, sandbox.AsError(err))
	}
	if len(refusals) == 1 {
		return Plan{}, refusals[0]
	}
	e := &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: "no driver can make this sandbox here"}
	for i, r := range refusals {
		if r.Code == sandbox.CodeRequirementUnmet || r.Code == sandbox.CodeNetworkUnsupported || r.Code == sandbox.CodeLimitInvalid { // without that there would be one
			e.Code, e.Field = r.Code, r.Field
		}
		e.Message += "; " + reports[i].Driver + ": " + r.Message
		if e.Hint == "" {
			e.Hint, e.Advice = r.Hint, r.Advice
		}
	}
	return Plan{}, e
}

// MakePlan is Choose with one driver's report.
//
// A required feature that the report does not answer with yes refuses the
// whole plan with code requirement_unmet. A feature that nobody required and
// the host cannot give goes into Posture.NotEnforced.
func MakePlan(spec sandbox.MachineSpec, template image.Template, report Report, id string) (Plan, error) {
	if least := spec.Least(); least != "" && !sandbox.LevelAtLeast(report.Level, least) {
		return Plan{}, tooWeak(report, least, spec.Driver)
	}
	if report.Blocked != nil {
		return Plan{}, report.Blocked
	}
	var err error
	if spec.Network, err = spec.Network.Canonical(); err != nil {
		return Plan{}, err
	}
	doors, err := doorsOf(spec, report)
	if err != nil {
		return Plan{}, err
	}
	if report.Template != nil {
		template = *report.Template
	}
	if err := fitsHome(template, spec.Limits); err != nil {
		return Plan{}, err
	}
	plan := Plan{
		Network: spec.Network, Doors: doors,
		Template: template, User: template.User, Limits: spec.Limits, Mounts: spec.Mounts, Kept: spec.Kept, Places: report.Places,
		Hostname: "sandbox", Processors: report.Processors, SwitchUser: report.SwitchUser && (!report.MountsAsSelf || len(spec.Mounts) == 0),
		Posture: sandbox.Isolation{Driver: report.Driver, Enforced: []string{}, NotEnforced: []sandbox.Gap{}},
	}
	for _, f := range report.Findings {
		if f.Feature == notThis(spec.Network) {
			continue
		}
		f = withMounts(f, spec.Mounts)
		if f.Answer == Yes {
			plan.Posture.Enforced = append(plan.Posture.Enforced, f.Feature)
			continue
		}
		why := f.Because
		if f.Answer == Unknown {
			why = "could not tell: " + why
		}
		gap := sandbox.Gap{What: f.Feature, Why: why}
		if f.Fix.Kind != "" {
			gap = gap.WithAdvice(sandbox.Advice{f.Fix})
		}
		plan.Posture.NotEnforced = append(plan.Posture.NotEnforced, gap)
	}
	if err := plan.Meets(spec.Require); err != nil {
		return Plan{}, err
	}
	return plan.Named(id), nil
}

// Meets returns nil when the plan's posture has every required feature, or the
// refusal for the first that it lacks.
func (p Plan) Meets(require []string) error {
	for i, r := range require {
		if !p.Enforces(r) {
			return unmet(p, r, i)
		}
	}
	return nil
}

// withMounts takes back what a writable view of the host undoes: what a program
// writes there is on the host's disk.
func withMounts(f Finding, mounts []sandbox.Mount) Finding {
	if f.Feature != sandbox.FeatureDisk && f.Feature != sandbox.FeatureInodes {
		return f
	}
	for _, m := range mounts {
		if m.Writable {
			f.Answer = No
			f.Because = m.Guest + " is a writable view of the host, and what is written there is not counted"
			f.Fix = sandbox.Text("show it read-only, and take results out as artifacts")
		}
	}
	return f
}

func tooWeak(report Report, least, asked string) *sandbox.Error {
	e := &sandbox.Error{
		Code: sandbox.CodeRequirementUnmet, Field: "isolation",
		Message: fmt.Sprintf("the %s driver's level of isolation is %s, and at least %s is asked for", report.Driver, report.Level, least),
	}
	if asked != "" && asked != sandbox.DriverAuto {
		return e.WithAdvice(sandbox.Advise("%s, or accept %s", sandbox.Omit("driver"), sandbox.Set("isolation", report.Level)))
	}
	return e.WithAdvice(sandbox.Advise("accept %s, or ask a server whose settings name a stronger driver", sandbox.Set("isolation", report.Level)))
}

func unmet(plan Plan, required string, index int) *sandbox.Error {
	e := &sandbox.Error{
		Code: sandbox.CodeRequirementUnmet, Field: fmt.Sprintf("require[%d]", index),
		Message: fmt.Sprintf("%s cannot be enforced by the %s driver on this host", required, plan.Posture.Driver),
		Hint:    "run pinfold doctor to see what this host lacks",
	}
	for _, gap := range plan.Posture.NotEnforced {
		if sandbox.Satisfies(gap.What, required) || gap.What == required {
			e.Message += ": " + gap.Why
			if gap.Fix == "" {
				return e.WithHint("leave " + gap.What + " out: nothing on this host changes that")
			}
			e.Hint, e.Advice = gap.Fix, gap.Advice
			return e
		}
	}
	family, _, _ := strings.Cut(required, ":")
	for _, have := range plan.Posture.Enforced {
		if strings.HasPrefix(have, family+":") {
			e.Message += "; it can enforce " + have
		}
	}
	return e
}
