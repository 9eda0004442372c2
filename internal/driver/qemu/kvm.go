//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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
// lives; that it did not work is also written down, for other processes until the host is
// started again or QEMU or the kernel are others. So nobody waits for it again.

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
	subject := d.trialOf(key)
	if a.why = d.toldWhyNot(subject); a.why != "" {
		a.tried = true
		return nil
	}
	b, err := d.provenBase(ctx, key)
	if ctx.Err() != nil {
		return nil // nothing is known
	}
	a.tried, a.kvm = true, err == nil
	if err != nil {
		a.why = sandbox.SafeText(err.Error(), 300)
		d.tellWhyNot(subject, a.why)
	}
	return b
}

// trialOf is what the outcome of a trial depends on.
func (d *Driver) trialOf(key baseKey) string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return fmt.Sprint(strings.TrimSpace(string(boot)), key.qemu.Dev, key.qemu.Ino, key.qemu.Mtim, d.host.kernel, d.o.kvm)
}

// whyNotFile is where it is written down that KVM does not work, beside the driver's locks.
func (d *Driver) whyNotFile() string { return d.o.StateDir + "-no-kvm" }

// maxWhyNot bounds it, in bytes.
const maxWhyNot = 4 << 10

// toldWhyNot returns why KVM was seen not to work by another process; "": nobody knows.
func (d *Driver) toldWhyNot(subject string) string {
	f, err := os.OpenFile(d.whyNotFile(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, maxWhyNot))
	of, why, ok := strings.Cut(string(text), "\n")
	if err != nil || !ok || of != subject {
		return ""
	}
	return sandbox.SafeText(strings.TrimSpace(why), 300)
}

// tellWhyNot writes it down, whole or not at all. Without it another process tries, too.
func (d *Driver) tellWhyNot(subject, why string) {
	name := d.whyNotFile()
	draft := fmt.Sprintf("%s.%d", name, os.Getpid())
	_ = os.Remove(draft)
	f, err := os.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	_, err = f.WriteString(subject + "\n" + why + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(draft, name)
	}
	if err != nil {
		_ = os.Remove(draft)
	}
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
