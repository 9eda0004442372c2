//go:build linux

// Package native makes sandboxes with the kernel's own means: namespaces,
// a root of its own, cgroups, Landlock and a system-call filter. It needs no
// daemon, no image and no privilege, and takes what privilege there is to
// enforce more.
//
// The new process is built from outside: package spawn walks it through a table
// of system calls (initspec.go) until the machine is complete, and only then it becomes
// the agent, which is thus born inside with nothing left to set up. What was
// enforced is known before: a step that fails fails the machine.
//
// It runs no guest code by itself, and knows nothing of languages or results.
package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/hostlock"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/linux/userns"
	"pinfold/sandbox"
)

// Name is the driver's name in requests and results.
const Name = "native"

// Options configure the driver. The zero value is ready for use.
type Options struct {
	// StateDir holds locks, nothing else; its content does not survive a
	// reboot and need not. Default: /run/pinfold as root, otherwise
	// $XDG_RUNTIME_DIR/pinfold or /tmp/pinfold-UID.
	StateDir string
	// Agent returns the agent's executable.
	Agent func() ([]byte, error)
	// AgentFile may return the same executable as an open file, or nil; the
	// driver closes it. It saves root a copy. May be nil.
	AgentFile func() *os.File
	// AgentDoors has the agents open what is declared, and not this process: whoever is to
	// accept it is on another machine.
	AgentDoors bool
}

// Driver makes native sandboxes. It is safe for concurrent use.
type Driver struct {
	options Options

	once    sync.Once
	host    *host
	hostErr error
}

// host is what the driver has found out and holds open, once.
type host struct {
	hierarchy *cgroup.Hierarchy
	ids       identity
	agent     *os.File // cannot be written to
	features  kernelFeatures
	shown     shownTemplates
	copies    copies
	meters    openMeters
	ticks     sync.Mutex // held while a machine reads its counters by itself, before its meter's lock
	facts     image.HostFacts
	computers computers
	turn      turn

	agentOnDisk bool // not in memory
	agentDoors  bool // Options.AgentDoors

	undestroyed sync.Map // of *machine: those that could not be destroyed in time, and are still there

	initStubOnce sync.Once
	initStub     *os.File // what is process 1 until the agent is needed; nil before the first machine of a zygote's child
	initStubErr  error

	claimOnce sync.Once
	claimErr  error
	lock      *hostlock.Lock // held while this process lives; nil before the claim
}

// identity is how sandboxes get their user ids here.
type identity struct {
	root bool                // a block of the host's ids for each sandbox
	pool *idblock.Pool       // the blocks; nil before the claim
	sub  *userns.Subordinate // as an ordinary user with subordinate ids
	why  string              // why neither: one id only
}

// New returns the driver. Nothing is touched until it is first used.
func New(o Options) *Driver {
	return &Driver{options: o}
}

// Name returns "native".
func (d *Driver) Name() string { return Name }

// prepare finds out about the host and opens what every sandbox needs.
func (d *Driver) prepare() (*host, error) {
	d.once.Do(func() { d.host, d.hostErr = d.open() })
	return d.host, d.hostErr
}

func (d *Driver) open() (*host, error) {
	h := &host{agentDoors: d.options.AgentDoors}
	// None of these depends on another, and a single run waits for all of them.
	err := together(
		func() error {
			h.features = kernelSupport()
			return nil
		},
		h.lookAround,
		h.lookAtHost,
		// Where the agent must be copied, this takes the longest. Go starts what
		// comes last first.
		func() (err error) {
			h.agent, h.agentOnDisk, err = agentProgram(d.options)
			return err
		},
	)
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// together runs functions at once and returns the first one's error that has one.
func together(functions ...func() error) error {
	errs := make([]error, len(functions))
	var wg sync.WaitGroup
	for i, f := range functions {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// lookAround finds out about cgroups and user ids.
func (h *host) lookAround() (err error) {
	if h.hierarchy, err = cgroup.Detect(cgroup.Options{}); err != nil {
		return setupError("look for cgroups", err)
	}
	if h.ids.root = os.Geteuid() == 0; h.ids.root {
		return nil
	}
	if h.ids.sub, err = userns.FindSubordinate(); err != nil {
		h.ids.why = err.Error()
	}
	return nil
}

// claim says on this host that this process lives and makes sandboxes. It comes
// before the first trace that a sandbox leaves.
func (h *host) claim(d *Driver) error {
	h.claimOnce.Do(func() {
		dir := cmp.Or(d.options.StateDir, defaultStateDir())
		if h.lock, h.claimErr = hostlock.Take(dir); h.claimErr != nil || !h.ids.root {
			return
		}
		var err error
		if h.ids.pool, err = idblock.New(filepath.Join(dir, "blocks"), idblock.NoProcess); err != nil {
			h.claimErr = setupError("open the file of id blocks", err)
		}
	})
	return h.claimErr
}

func (h *host) close() {
	h.turn.close()
	h.shown.close()
	for _, f := range []*os.File{h.agent, h.initStub} {
		if f != nil {
			_ = f.Close()
		}
	}
	if h.ids.pool != nil {
		_ = h.ids.pool.Close() // at worst an empty file stays
	}
	if h.lock != nil {
		stay := false // the next process must see that we have died
		h.undestroyed.Range(func(any, any) bool { stay = true; return false })
		h.lock.Release(stay)
	}
}

// destroyAgain tries to destroy what could not be destroyed before, all at once.
func (h *host) destroyAgain() {
	var all sync.WaitGroup
	h.undestroyed.Range(func(m, _ any) bool {
		all.Go(func() { _ = m.(*machine).Destroy(context.Background()) }) //nolint:errcheck // all are machines; Destroy is bounded, and what fails stays undestroyed
		return true
	})
	all.Wait()
}

func defaultStateDir() string {
	if os.Geteuid() == 0 {
		return "/run/pinfold"
	}
	if run := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
		if info, err := os.Stat(run); err == nil && info.IsDir() {
			return filepath.Join(run, "pinfold")
		}
	}
	return fmt.Sprintf("/tmp/pinfold-%d", os.Geteuid())
}

// Close gives back what the driver holds, and removes what a process that was
// killed had left behind, if there is such. Machines must be gone before; those
// that could not be destroyed are tried once more, since nobody looks after them from
// now on, and then left as if this process had been killed.
func (d *Driver) Close() error {
	d.once.Do(func() { d.hostErr = errors.New("closed") })
	if d.host == nil {
		return nil
	}
	h := d.host
	h.destroyAgain()
	if h.lock != nil && h.lock.AnyDead() {
		ctx, cancel := context.WithTimeout(context.Background(), destroyTimeout)
		defer cancel()
		if _, err := d.Leftovers(ctx); err != nil {
			return err
		}
	}
	d.host, d.hostErr = nil, errors.New("the native driver is closed")
	err := h.hierarchy.Close()
	h.close()
	return err
}

// endTimeout is for processes that are still ending when their cgroup is gone:
// first processes of pid namespaces leave it, and then wait for the others.
const endTimeout = 3 * time.Second

// Leftovers removes the cgroups and locks of host processes that have died.
// Their processes have died with them (PR_SET_PDEATHSIG), their mounts and
// namespaces with the processes.
func (d *Driver) Leftovers(ctx context.Context) ([]driver.Leftover, error) {
	h, err := d.prepare()
	if err != nil {
		return nil, err
	}
	if err := h.claim(d); err != nil {
		return nil, err
	}
	swept, err := h.hierarchy.Sweep(ctx, h.lock.OwnerLives)
	var found []driver.Leftover
	for _, s := range swept {
		found = append(found, driver.Leftover{Kind: "cgroup", Name: s.Name, Err: s.Err})
	}
	for _, name := range h.lock.RemoveDead() {
		found = append(found, driver.Leftover{Kind: "lock", Name: name})
	}
	if h.ids.pool == nil {
		return found, err
	}
	blocks, sweepErr := h.ids.pool.Sweep(endTimeout)
	for _, name := range blocks {
		found = append(found, driver.Leftover{Kind: "lease", Name: name})
	}
	return found, errors.Join(err, sweepErr)
}

func setupError(step string, err error) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: fmt.Sprintf("cannot %s: %v", step, err), Err: err}
}
