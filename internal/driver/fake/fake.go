// Package fake is a driver whose machines are made of memory: no process, no
// kernel, no isolation. An agent of its own speaks the real protocol over a pipe, and
// what programs do, what the counters say and what goes wrong is scripted by the
// test. It lets the engine be tested in milliseconds, also where a real
// sandbox would have to be very unlucky.
//
// It is for tests only. It enforces nothing, whatever its report says.
package fake

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Options script a driver. The zero value makes machines on which everything
// works.
type Options struct {
	// Name is "fake" by default.
	Name string
	// NoMounts says that its machines show no directories of the host's.
	NoMounts bool
	// Level is its level of isolation, sandbox.LevelNamespace by default: a claim, for
	// tests which choose among drivers.
	Level string
	// Report changes the default report, which says yes to everything.
	Report func(r *driver.Report)
	// Zygote is called by NewZygote, and may wait or fail; nil: the driver has no zygotes.
	Zygote func(ctx context.Context) error
	// Script says how each machine behaves.
	Script func(p driver.Plan) Script
}

// Script is the behaviour of one machine. Every field may be nil. Functions are
// called from goroutines of the machine's.
type Script struct {
	// Create is called by Create, and may wait or fail.
	Create func(ctx context.Context) error
	// Program is what every started program does; Builtin by default.
	Program func(p *Process) Exit
	// Starting is called before the agent says that a program has started.
	Starting func(m *Machine)
	// Usage are the counters at a moment of the machine's life.
	Usage func(life time.Duration) driver.Usage
	// Destroy is called by each Destroy until it returns nil.
	Destroy func() error
	// Agent takes the place of the agent; it must return when the connection
	// ends.
	Agent func(conn net.Conn)
	// KillAll is called before all programs are killed; it may wait for stop,
	// which is closed with the machine.
	KillAll func(stop <-chan struct{})
	// NoPause says that the machine cannot be paused. Pause may wait or fail.
	NoPause bool
	Pause   func(ctx context.Context) error
	// AddDoors is called when the machine is to have doors late, and may fail; NoLateDoors
	// says that it cannot.
	AddDoors    func() error
	NoLateDoors bool
	// Snapshot is called while a snapshot is made, and may wait or fail; NoSnapshot says
	// that none can be.
	Snapshot   func(ctx context.Context) error
	NoSnapshot bool
	// Glob and Read change what the agent says about files.
	Glob func(found []wire.FileEntry) []wire.FileEntry
	Read func(path string, content []byte) []byte
	// Ports are the servers inside: each function serves one connection, and
	// returns once that is closed. Without any, port 80 answers HTTP.
	Ports map[int]func(conn net.Conn)
}

// Driver makes machines of memory. It is safe for concurrent use.
type Driver struct {
	o Options

	mu       sync.Mutex
	machines []*Machine
	zygotes  []*Zygote
}

// New returns a driver.
func New(o Options) *Driver {
	o.Name, o.Level = cmp.Or(o.Name, "fake"), cmp.Or(o.Level, sandbox.LevelNamespace)
	return &Driver{o: o}
}

// Name returns the driver's name.
func (d *Driver) Name() string { return d.o.Name }

// Probe says yes to everything, unless it is scripted otherwise.
func (d *Driver) Probe(context.Context, image.Template) (driver.Report, error) {
	r := driver.Report{Driver: d.o.Name, Level: d.o.Level, SwitchUser: true}
	for _, f := range sandbox.Features() {
		r.Findings = append(r.Findings, driver.Finding{Feature: f.Name, Answer: driver.Yes, Because: "the script says so"})
	}
	if d.o.Report != nil {
		d.o.Report(&r)
	}
	return r, nil
}

// Create makes a machine.
func (d *Driver) Create(ctx context.Context, plan driver.Plan) (driver.Machine, error) {
	var s Script
	if d.o.Script != nil {
		s = d.o.Script(plan)
	}
	if s.Create != nil {
		if err := s.Create(ctx); err != nil {
			return nil, createError(err)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, createError(err)
	}
	m := newMachine(plan, s)
	d.mu.Lock()
	d.machines = append(d.machines, m)
	d.mu.Unlock()
	return m, nil
}

func createError(err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return known
	}
	return &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "cannot make the sandbox: " + err.Error(), Hint: "change the script", Err: err}
}

// Leftovers finds nothing: memory ends with its process.
func (d *Driver) Leftovers(context.Context) ([]driver.Leftover, error) { return nil, nil }

// Abilities implements driver.Driver.
func (d *Driver) Abilities() driver.Abilities {
	a := driver.Abilities{Level: d.o.Level, Shows: !d.o.NoMounts, Pauses: true, Snapshots: []string{sandbox.SnapshotFiles}, LateDoors: true}
	if d.o.Zygote != nil {
		a.Zygoter = d
	}
	return a
}

// Close does nothing.
func (d *Driver) Close() error { return nil }

// Machines lists all machines that were made, the destroyed ones included.
func (d *Driver) Machines() []*Machine {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.machines)
}

// Living counts the machines that have not been destroyed.
func (d *Driver) Living() int {
	n := 0
	for _, m := range d.Machines() {
		if !m.gone() {
			n++
		}
	}
	return n
}
