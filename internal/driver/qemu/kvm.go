//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/warden/wardenwire"
	"pinfold/sandbox"
)

// # KVM
//
// That /dev/kvm opens, and even that it runs instructions, is no proof that a kernel boots
// under it. So the first machine of all is tried with it: it boots, is saved, and another
// goes on from there and answers. What comes of that holds for as long as this process
// lives, and nobody waits for it again.

// kvmDevice is the kernel's, and kvmTimeout bounds the whole trial: where KVM works a
// machine boots in a second.
const (
	kvmDevice  = "/dev/kvm"
	kvmTimeout = 5 * time.Second
)

// acceleration is whether machines are run by KVM. It is safe for concurrent use.
type acceleration struct {
	mu    sync.Mutex // held while it is tried
	tried bool
	kvm   bool
	why   string // it is not used
}

// byKVM says whether machines are run by KVM, and otherwise why not.
func (d *Driver) byKVM() (yes bool, why string) {
	d.accel.mu.Lock()
	defer d.accel.mu.Unlock()
	return d.accel.kvm, d.accel.why
}

// tryKVM tries it, once, with a base, and returns that if it is of use.
func (d *Driver) tryKVM(ctx context.Context, key baseKey) *base {
	a := &d.accel
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tried {
		return nil
	}
	b, err := d.provenBase(ctx, key)
	if ctx.Err() != nil {
		return nil // nothing is known
	}
	a.tried, a.kvm = true, err == nil
	if err != nil {
		a.why = sandbox.SafeText(err.Error(), 300)
	}
	return b
}

// provenBase makes a base with KVM, from which a machine has gone on.
func (d *Driver) provenBase(ctx context.Context, key baseKey) (*base, error) {
	if d.o.cold {
		return nil, errors.New("every machine boots")
	}
	if d.o.kvm == "" {
		return nil, errors.New("it is switched off")
	}
	if _, err := deviceNumber(d.o.kvm); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.o.trial, fmt.Errorf("no machine has booted by it and gone on from a snapshot in %s", d.o.trial))
	defer cancel()
	b, err := d.bootBase(ctx, key, true)
	if err != nil {
		return nil, err
	}
	l := launch{id: fmt.Sprintf("kvm-%d", time.Now().UnixNano()%1e12), shape: key.shape, disk: key.disk, memory: b.saved.memory, resumes: true, kvm: true}
	q, err := d.restore(ctx, b.saved, l)
	if err == nil {
		err = q.ask(ctx, wardenwire.Request{Op: wardenwire.OpPing})
	}
	if err == nil {
		err = q.remove(ctx)
	}
	if err != nil {
		b.saved.close()
		return nil, err
	}
	return b, nil
}

// deviceNumber returns a device file's.
func deviceNumber(name string) (int, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return 0, fmt.Errorf("%s: %w", name, os.ErrInvalid)
	}
	return int(st.Rdev), nil //nolint:gosec // as mknod takes it
}
