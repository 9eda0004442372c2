package engine

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// Options are what an Engine needs.
type Options struct {
	// Drivers are the ways to make sandboxes, strongest first. "auto" takes
	// the first that is not blocked.
	Drivers []driver.Driver
	// Template describes what the sandboxes of a template hold.
	Template func(name string) (image.Template, error)
	// Host is the host's file tree, in which a template's programs are looked up.
	Host fs.FS
}

// Engine runs programs. It is safe for concurrent use.
type Engine struct {
	options Options
}

// New returns an engine. It owns the drivers from now on.
func New(o Options) *Engine { return &Engine{options: o} }

// Warm finds out beforehand what the first run will need: it looks at the host
// from all sides at once and leaves nothing there. Errors come back with the run.
func (e *Engine) Warm(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = e.options.Template(sandbox.TemplateHost) })
	for _, d := range e.options.Drivers {
		wg.Go(func() { _, _ = d.Probe(ctx) })
	}
	wg.Wait()
}

// Close releases the drivers. Runs must have ended.
func (e *Engine) Close() error {
	var errs []error
	for _, d := range e.options.Drivers {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// Leftovers removes what earlier, dead processes left behind.
func (e *Engine) Leftovers(ctx context.Context) ([]driver.Leftover, error) {
	var all []driver.Leftover
	var errs []error
	for _, d := range e.options.Drivers {
		found, err := d.Leftovers(ctx)
		all = append(all, found...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Reports returns what each driver can do on this host.
func (e *Engine) Reports(ctx context.Context) ([]driver.Report, error) {
	var reports []driver.Report
	for _, d := range e.options.Drivers {
		r, err := d.Probe(ctx)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// choose finds the driver for a spec and its report.
func (e *Engine) choose(ctx context.Context, name string) (driver.Driver, driver.Report, error) {
	var names []string
	var blocked error
	for _, d := range e.options.Drivers {
		names = append(names, d.Name())
		if name != sandbox.DriverAuto && name != d.Name() {
			continue
		}
		r, err := d.Probe(ctx)
		if err != nil {
			return nil, r, err
		}
		if r.Blocked == nil {
			return d, r, nil
		}
		blocked = r.Blocked
	}
	if blocked != nil {
		return nil, driver.Report{}, blocked
	}
	return nil, driver.Report{}, &sandbox.Error{
		Code: sandbox.CodeDriverUnknown, Field: "driver",
		Message: fmt.Sprintf("no driver \"%s\"", sandbox.SafeText(name, 60)),
		Hint:    "the drivers are auto, " + strings.Join(names, ", "),
	}
}

// newID returns a run's id: "run_" and 26 characters of [a-z2-7].
func newID() string {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		panic("engine: no random numbers: " + err.Error()) // crypto/rand never fails on Linux
	}
	return "run_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

// machineID is the part of a run's id that may name things on the host.
func machineID(runID string) string { return strings.TrimPrefix(runID, "run_") }
