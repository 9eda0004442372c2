//go:build linux

package qemu

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/linux/failure"
	"pinfold/internal/warden/wardenwire"
	"pinfold/sandbox"
)

// # Snapshots
//
// A machine that is ready and has no sandbox yet is booted once for each template and
// shape, its base, and saved (saved.go). Each machine then maps that memory privately, so
// that only what it changes is its own, and goes on from that state: 0.1 s in place of the
// seconds of a boot.
//
// What is asked for twice gets a snapshot of its own, with the sandbox made and the agent
// waiting: under emulation making one takes longer than all the rest, since the emulator
// has to translate all code that runs in a machine for the first time.
//
// What goes on in many places at once shares what a machine must not share. So before
// anything else happens in there the warden is told the time and gets fresh random bytes,
// from which the machine's kernel makes all others. No program has run in a base, and
// nothing of a tenant's was ever in it.

// maxBases is for how many shapes and templates bases are kept, the last used.
const maxBases = 6

// base is what machines of one shape go on from.
type base struct {
	bases  *bases
	key    baseKey
	report driver.Report
	disk   *disk
	saved  *saved // nil: every machine boots

	greeting []byte // what the agent of its sandbox has said; nil: there is no sandbox

	stored string // its file, guarded by bases.mu as what follows; "": there is none
	users  int
	used   int  // when it was used last
	old    bool // to be closed when nobody uses it
}

// baseKey is what a base is for.
type baseKey struct {
	disk  *disk
	shape shape
	qemu  unix.Stat_t // of its program, by what changes when it is another
	plan  string      // of the sandbox that is in there; "": none
}

// making is a base that is being made.
type making struct {
	done chan struct{}
	base *base
	err  error
}

// bases keeps them. It is safe for concurrent use.
type bases struct {
	mu     sync.Mutex
	known  map[baseKey]*base
	under  map[baseKey]*making
	turn   int
	asked  map[baseKey]bool // once, at least
	ctx    context.Context  //nolint:containedctx // of all that are being made
	cancel context.CancelFunc
	all    sync.WaitGroup
	closed bool
}

// keyOf returns what the base for a template and a shape is known by.
func (d *Driver) keyOf(ctx context.Context, t image.Template, s shape, kept ...sandbox.Mount) (key baseKey, err error) {
	h, err := d.prepare()
	if err == nil {
		err = d.claim()
	}
	if err != nil {
		return key, err
	}
	shows, err := d.diskOf(ctx, h, t, kept)
	if err != nil {
		return key, err
	}
	key = baseKey{disk: shows, shape: s}
	var st unix.Stat_t
	if err := unix.Stat(h.program, &st); err != nil {
		return key, failure.Of("look at QEMU", err)
	}
	key.qemu.Dev, key.qemu.Ino, key.qemu.Mtim = st.Dev, st.Ino, st.Mtim
	return key, nil
}

func (d *Driver) baseOf(ctx context.Context, key baseKey) (*base, error) {
	for {
		have, wait := d.bases.find(d, key)
		if have != nil {
			return have, nil
		}
		if wait == nil {
			return nil, failure.Of("use the driver", os.ErrClosed)
		}
		select {
		case <-wait.done:
			if wait.err != nil {
				return nil, wait.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// find returns the base, for its user, or who makes it.
func (b *bases) find(d *Driver, key baseKey) (*base, *making) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil
	}
	b.turn++
	if have := b.known[key]; have != nil {
		have.users++
		have.used = b.turn
		return have, nil
	}
	if wait := b.under[key]; wait != nil {
		return nil, wait
	}
	if b.known == nil {
		b.known, b.under = map[baseKey]*base{}, map[baseKey]*making{}
		b.ctx, b.cancel = context.WithCancel(context.Background()) //nolint:gosec // close cancels it
	}
	m := &making{done: make(chan struct{})}
	b.under[key] = m
	b.all.Go(func() { // goes on when who asked for it first has gone: others wait, too
		makes := d.makeBase
		if key.plan != "" {
			makes = d.makeSandboxBase
		}
		m.base, m.err = makes(b.ctx, key)
		b.keep(m, key)
		if m.err == nil && key.plan == "" {
			kvm, _ := d.byKVM()
			d.store(m.base, launch{shape: key.shape, disk: key.disk, kvm: kvm})
			m.base.release()
		}
	})
	return nil, m
}

// keep keeps what was made, in the place of the one that was not used for longest.
func (b *bases) keep(m *making, key baseKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.under, key)
	close(m.done)
	if m.err != nil {
		return
	}
	m.base.bases, m.base.key, m.base.used = b, key, b.turn
	if key.plan == "" {
		m.base.users++ // while it is stored
	}
	b.known[key] = m.base
	for len(b.known) > maxBases {
		var oldest *base
		for _, one := range b.known {
			if oldest == nil || one.used < oldest.used {
				oldest = one
			}
		}
		oldest.drop()
	}
}

// drop forgets a base. bases.mu is held.
func (b *base) drop() {
	delete(b.bases.known, b.key)
	b.old = true
	b.closeUnused()
}

// closeUnused closes what was forgotten and serves nobody. bases.mu is held.
func (b *base) closeUnused() {
	if b.old && b.users == 0 {
		b.saved.close()
	}
}

// release says that its user needs it no more.
func (b *base) release() {
	b.bases.mu.Lock()
	defer b.bases.mu.Unlock()
	b.users--
	b.closeUnused()
}

// forget has the next user get another.
func (b *base) forget() {
	b.bases.mu.Lock()
	defer b.bases.mu.Unlock()
	if b.stored != "" {
		_ = os.Remove(b.stored)
	}
	if b.bases.known[b.key] == b {
		b.drop()
	}
}

// dropDisk forgets what goes on with a disk that is of no use any more.
func (b *bases) dropDisk(old *disk) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, one := range b.known {
		if key.disk == old {
			one.drop()
		}
	}
}

// close ends what is being made, and forgets all.
func (b *bases) close() {
	b.mu.Lock()
	b.closed = true
	if b.cancel != nil {
		b.cancel()
	}
	b.mu.Unlock()
	b.all.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.known {
		one.drop()
	}
}

// makeBase boots a machine, stops it and keeps what it was.
func (d *Driver) makeBase(ctx context.Context, key baseKey) (b *base, err error) {
	done, err := d.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if b := d.tryKVM(ctx, key); b != nil {
		return b, nil
	}
	kvm, _ := d.byKVM()
	return d.bootBase(ctx, key, kvm)
}

// bootBase boots one, unless another process has and kept it.
func (d *Driver) bootBase(ctx context.Context, key baseKey, kvm bool) (b *base, err error) {
	b = &base{disk: key.disk}
	l := launch{id: fmt.Sprintf("base-%d", time.Now().UnixNano()%1e12), shape: key.shape, disk: key.disk, kvm: kvm}
	if stored := d.readStored(ctx, l); stored != nil {
		return stored, nil
	}
	if !d.o.cold {
		if l.memory, err = memoryFile(key.shape); err != nil {
			return nil, err
		}
		defer l.memory.Close() //nolint:errcheck // who goes on from it has opened it again
	}
	q, report, err := d.boot(ctx, l)
	if err != nil {
		return nil, err
	}
	b.report = report
	if l.memory == nil {
		return b, q.remove(ctx)
	}
	b.saved, err = q.save(ctx, l.memory)
	return b, err
}

// fresh is what a machine needs to be like no other.
func (d *Driver) fresh() *wardenwire.Fresh {
	if d.o.stale {
		return nil
	}
	f := &wardenwire.Fresh{Seed: make([]byte, 64), Time: time.Now().UnixNano()}
	if _, err := rand.Read(f.Seed); err != nil {
		panic("qemu: no random numbers: " + err.Error()) // crypto/rand never fails on Linux
	}
	return f
}
