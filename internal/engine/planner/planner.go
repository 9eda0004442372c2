// Package planner says what a machine will be before it is made: by which driver, from
// which template, where the programs in it lie. It remembers for a moment what was seen
// of the host: a server looks for each run otherwise, hundreds of times a second.
package planner

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/language"
	"pinfold/sandbox"
)

// Planner plans machines. It is safe for concurrent use.
type Planner struct {
	drivers  []driver.Driver
	template func(name string) (image.Template, error)
	host     fs.FS

	reports  ttlCache[string, driver.Report] // by driver and template
	programs ttlCache[string, string]        // by template and candidates
}

// New returns a planner for drivers, in the order in which they are taken. Programs of a
// template are looked up in the host's file tree.
func New(drivers []driver.Driver, template func(name string) (image.Template, error), host fs.FS) *Planner {
	return &Planner{drivers: drivers, template: template, host: host}
}

// Forget has the next request look at the drivers anew.
func (p *Planner) Forget() { p.reports.forget() }

// Template describes what the sandboxes of a template hold.
func (p *Planner) Template(name string) (image.Template, error) { return p.template(name) }

// Shown describes what the sandboxes of a template hold that a driver makes.
func (p *Planner) Shown(ctx context.Context, d driver.Driver, name string) (image.Template, error) {
	t, err := p.template(name)
	if err != nil {
		return t, err
	}
	r, err := p.report(ctx, d, t)
	if err == nil && r.Template != nil {
		t = *r.Template
	}
	return t, err
}

// Lookup looks for programs in a template.
func (p *Planner) Lookup(t image.Template) language.Lookup {
	return func(candidates []string) (string, bool) {
		return p.programs.get(t.ID+"\x00"+strings.Join(candidates, "\x00"), func() (string, bool) {
			return t.Lookup(p.host, candidates)
		})
	}
}

// Explain puts into words for an image what is said of the host: err, or what replaces it.
func Explain(t image.Template, err error) error {
	if e := sandbox.AsError(err); err != nil && e.Code == sandbox.CodeLanguageMissing && len(t.Layers.Dirs) > 0 {
		return e.WithHint("build the image with it, or take another template: pinfold template list")
	}
	return err
}

// Plan chooses the driver of a machine and plans it, under the id. A driver is asked about
// this host only where those before it cannot make the machine, and where it is strong
// enough: to ask may mean to boot a machine.
func (p *Planner) Plan(ctx context.Context, spec sandbox.MachineSpec, id string) (driver.Driver, driver.Plan, error) {
	var names []string
	var reports, weak []driver.Report
	var refusal error
	template, err := p.template(spec.Template)
	if err != nil {
		return nil, driver.Plan{}, err
	}
	for _, d := range p.drivers {
		names = append(names, d.Name())
		if spec.Driver != sandbox.DriverAuto && spec.Driver != d.Name() {
			continue
		}
		if level := d.Abilities().Level; !sandbox.LevelAtLeast(level, spec.Least()) {
			if spec.Isolation != "" {
				weak = append(weak, driver.Report{Driver: d.Name(), Level: level})
			}
			continue // nobody has asked for so little
		}
		r, err := p.report(ctx, d, template)
		if err != nil {
			return nil, driver.Plan{}, err
		}
		if r.Blocked == nil {
			r.Blocked = fewerFiles(d, spec.Limits.OpenFiles)
		}
		reports = append(reports, r)
		var plan driver.Plan
		if plan, refusal = driver.Choose(spec, template, reports, id); refusal == nil {
			return d, plan, nil
		}
	}
	if len(reports) == 0 && len(weak) > 0 {
		_, refusal = driver.Choose(spec, template, weak, id)
	}
	if refusal != nil {
		return nil, driver.Plan{}, required(refusal, spec, len(weak) > 0)
	}
	return nil, driver.Plan{}, &sandbox.Error{
		Code: sandbox.CodeDriverUnknown, Field: "driver",
		Message: fmt.Sprintf("no driver \"%s\"", sandbox.SafeText(spec.Driver, 60)),
		Hint:    "the drivers here are auto, " + strings.Join(names, ", ") + "; others are a server's whose settings name them (docs/isolation.md)",
	}
}

// required says of a refusal which part of the request it is for: the isolation, where there
// are drivers that make the machine for who accepts less, or the driver that it names.
func required(refusal error, spec sandbox.MachineSpec, weaker bool) error {
	e := *sandbox.AsError(refusal)
	switch {
	case e.Code == sandbox.CodeLimitInvalid:
		return refusal // those are no help
	case weaker:
		e.Field = "isolation"
	case spec.Driver != sandbox.DriverAuto && e.Code == sandbox.CodeDriverUnavailable:
		e.Field = "driver"
	default:
		return refusal
	}
	e.Code = sandbox.CodeRequirementUnmet
	return &e
}

// fewerFiles refuses more open files than a machine's processes can have: those that descend
// from this one no more than it, since none of them may raise it, whoever it is inside.
func fewerFiles(d driver.Driver, asked int64) *sandbox.Error {
	switch d.Abilities().Level {
	case sandbox.LevelContainer, sandbox.LevelKernel, sandbox.LevelVM:
		return nil // an engine starts it, or its kernel keeps the limit
	}
	var l syscall.Rlimit
	known := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil
	if !known || asked <= 0 || uint64(asked) <= l.Max {
		return nil
	}
	return (&sandbox.Error{
		Code: sandbox.CodeLimitInvalid, Field: "limits.open_files",
		Message: fmt.Sprintf("%d is more than this host allows (the hard limit of open files of the process that makes sandboxes)", asked),
	}).WithAdvice(sandbox.Advise("ask for at most %s; or raise it where Pinfold is started: LimitNOFILE in the unit, ulimit -n elsewhere", sandbox.Set("limits.open_files", l.Max)))
}

// PlanOn plans a machine of a driver, under the id.
func (p *Planner) PlanOn(ctx context.Context, d driver.Driver, spec sandbox.MachineSpec, id string) (driver.Plan, error) {
	template, err := p.template(spec.Template)
	if err != nil {
		return driver.Plan{}, err
	}
	r, err := p.report(ctx, d, template)
	if err != nil {
		return driver.Plan{}, err
	}
	return driver.MakePlan(spec, template, r, id)
}

// report says what a driver can do here, in sandboxes of a template.
func (p *Planner) report(ctx context.Context, d driver.Driver, t image.Template) (r driver.Report, err error) {
	r, _ = p.reports.get(d.Name()+"\x00"+t.ID, func() (driver.Report, bool) {
		var found driver.Report
		found, err = d.Probe(ctx, t)
		return found, err == nil && found.Blocked == nil
	})
	return r, err
}
