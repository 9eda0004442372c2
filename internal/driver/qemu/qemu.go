//go:build linux

// Package qemu makes each sandbox a virtual machine: QEMU with a kernel of the
// distribution's, and nothing of the host's in it but the template, as a read-only disk.
//
// # The machine
//
// It has memory, processors, a disk and two serial ports, no network card and no shared
// directory. Its first process is our warden (package warden), which makes a sandbox in
// there with the kernel's own means, as the native driver does on a host, and passes the
// agent's connection on. So what is enforced is what that sandbox enforces, by the kernel
// of the machine, and all of it once more by the machine's walls.
//
// # Around the machine
//
// QEMU is itself in a pinfold (jail.go): a user id that nobody else has, namespaces of its
// own with an empty network, a root with nothing in it but the host's /usr, no
// capabilities, no_new_privs, two system-call filters (ours and its own), a cgroup. It is
// handed descriptors and no names: one socket for what it prints, two for the ports, one
// for its monitor, one for the disk, which this process serves (packages erofs and nbd), the
// kernel and what it starts with. Who breaks out of the machine stands there.
//
// # What is believed
//
// Counters and the causes that follow from them come from the machine's kernel. Who breaks
// that kernel can lie about them; the time, and what QEMU may take of the host's memory and
// processors, are the host's to say.
package qemu

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/hostlock"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/linux/seccomp"
	"pinfold/sandbox"
)

// Name is the driver's name in requests and results.
const Name = "qemu"

// Options configure the driver.
type Options struct {
	// Program is QEMU's, by its absolute path. Default: /usr/bin/qemu-system-x86_64.
	Program string
	// Kernel is a compressed kernel image, and Modules its directory of modules, which has
	// the kernel's release as its name. Default: the newest in /boot, and /lib/modules.
	Kernel, Modules string
	// StateDir holds locks, nothing else. Default: /run/pinfold/qemu.
	StateDir string
	// CacheDir is where machines that were booted are kept for other processes, at most 1 GiB.
	// Empty: nowhere.
	CacheDir string
	// Agent and Warden return the executables of the same names.
	Agent, Warden func() ([]byte, error)

	// For tests.
	blocks  string                // the file of id blocks
	argv    func(launch) []string // in the place of QEMU's arguments
	cold    bool                  // every machine boots
	stale   bool                  // machines of one snapshot are left alike
	empty   bool                  // there are no snapshots with a sandbox in them
	patient time.Duration         // in the place of bootTimeout
	kvm     string                // in the place of kvmDevice; "-": none
	trial   time.Duration         // in the place of kvmTimeout
}

// Driver makes virtual machines. It is safe for concurrent use.
type Driver struct {
	o     Options
	turns chan struct{} // one for each machine that is made at a time

	opening sync.Mutex // guards what follows
	host    *host
	closed  bool

	watching *time.Timer // while there are disks of images

	look sync.Mutex // held while a machine is looked at for the report
	seen *seen

	bases bases
	accel acceleration

	claimOnce sync.Once
	claimErr  error
	pool      *idblock.Pool // nil before the first machine
	lock      *hostlock.Lock
}

// host is what was found out, once.
type host struct {
	program   string
	kernel    kernel
	image     *os.File // the kernel, sealed
	initramfs *os.File // sealed
	hierarchy *cgroup.Hierarchy
	filter    *seccomp.Fprog
	code      seccomp.Program // which filter points into
	disk      disks

	summing sync.Mutex // guards sum
	sum     string     // of image and initramfs; "": not known yet
}

// New returns the driver. Nothing is touched until it is first used.
func New(o Options) *Driver {
	o.StateDir = cmp.Or(o.StateDir, "/run/pinfold/qemu")
	o.blocks = cmp.Or(o.blocks, "/run/pinfold/blocks")
	o.patient = cmp.Or(o.patient, bootTimeout)
	o.trial = cmp.Or(o.trial, kvmTimeout)
	if o.kvm = cmp.Or(o.kvm, kvmDevice); o.kvm == "-" {
		o.kvm = ""
	}
	if o.argv == nil {
		o.argv = command
	}
	return &Driver{o: o, turns: make(chan struct{}, max(1, runtime.NumCPU()))}
}

// Name returns "qemu".
func (d *Driver) Name() string { return Name }

// Abilities implements driver.Driver.
func (d *Driver) Abilities() driver.Abilities {
	return driver.Abilities{Level: sandbox.LevelVM, Shows: true, Pauses: true, Snapshots: []string{sandbox.SnapshotMemory}, Copier: d, MemoryRestorer: d}
}

// prepare finds out about the host and opens what every machine needs, once. What is
// missing may be there the next time.
func (d *Driver) prepare() (h *host, err error) {
	d.opening.Lock()
	defer d.opening.Unlock()
	switch {
	case d.closed:
		return nil, failure.Of("use the driver", os.ErrClosed)
	case d.host == nil:
		d.host, err = d.open()
	}
	return d.host, err
}

func (d *Driver) open() (h *host, err error) {
	h = &host{}
	if h.program, err = findProgram(d.o.Program); err != nil {
		return nil, err
	}
	if h.kernel, err = findKernel(d.o.Kernel, d.o.Modules); err != nil {
		return nil, err
	}
	if h.hierarchy, err = cgroup.Detect(cgroup.Options{}); err != nil {
		return nil, failure.Of("look for cgroups", err)
	}
	if h.code, err = seccomp.Compile(seccomp.Options{}); err != nil {
		return nil, failure.Of("compile the system-call filter", err)
	}
	h.filter = h.code.Fprog()
	if h.image, err = h.kernel.open(); err != nil {
		return nil, err
	}
	if h.initramfs, err = d.initramfs(h.kernel); err != nil {
		_ = h.image.Close()
		return nil, err
	}
	return h, nil
}

// claim says on this host that this process lives and makes machines. It comes before the
// first trace of one.
func (d *Driver) claim() error {
	d.claimOnce.Do(func() {
		if d.lock, d.claimErr = hostlock.Take(d.o.StateDir); d.claimErr != nil {
			return
		}
		var err error
		if d.pool, err = idblock.New(d.o.blocks, idblock.NoProcess); err != nil {
			d.claimErr = failure.Of("open the file of id blocks", err)
		}
	})
	return d.claimErr
}

// Close gives back what the driver holds. Machines must be gone before.
func (d *Driver) Close() error {
	d.opening.Lock()
	h := d.host
	d.closed = true
	if d.watching != nil {
		d.watching.Stop()
	}
	d.opening.Unlock()
	d.claimOnce.Do(func() { d.claimErr = failure.Of("use the driver", os.ErrClosed) })
	d.bases.close()
	var err error
	if h != nil {
		err = errors.Join(h.image.Close(), h.initramfs.Close(), h.hierarchy.Close())
	}
	if d.pool != nil {
		err = errors.Join(err, d.pool.Close())
	}
	if d.lock != nil {
		d.lock.Release(false)
		_ = os.Remove(filepath.Dir(d.o.StateDir)) // if it is empty
	}
	return err
}

// Leftovers removes what processes of ours that have died left behind. Their machines have
// died with them.
func (d *Driver) Leftovers(ctx context.Context) (found []driver.Leftover, err error) {
	if os.Geteuid() != 0 { // who could have made none
		return nil, nil
	}
	hierarchy, err := cgroup.Detect(cgroup.Options{})
	if err != nil {
		return nil, failure.Of("look for cgroups", err)
	}
	if err := d.claim(); err != nil {
		return nil, err
	}
	swept, err := hierarchy.Sweep(ctx, d.lock.OwnerLives)
	for _, s := range swept {
		found = append(found, driver.Leftover{Kind: "cgroup", Name: s.Name, Err: s.Err})
	}
	for _, name := range d.lock.RemoveDead() {
		found = append(found, driver.Leftover{Kind: "lock", Name: name})
	}
	blocks, sweepErr := d.pool.Sweep(endTimeout)
	for _, name := range blocks {
		found = append(found, driver.Leftover{Kind: "lease", Name: name})
	}
	return found, errors.Join(err, sweepErr)
}
