//go:build linux

package qemu

import (
	"context"
	"errors"
	"os"
	"sync"

	"pinfold/internal/driver"
	"pinfold/internal/warden/wardenwire"
	"pinfold/sandbox"
)

// original is a machine that is to be copied: its memory is a file of its own.
type original struct {
	*machine
	driver *Driver
	key    baseKey
	memory *os.File
}

// CreateOriginal implements driver.Copier.
func (d *Driver) CreateOriginal(ctx context.Context, plan driver.Plan) (driver.Original, error) {
	if err := refused(plan); err != nil {
		return nil, err
	}
	if d.o.cold {
		return nil, errors.ErrUnsupported
	}
	key, err := d.keyOf(ctx, plan.Template, shapeOf(plan), plan.Mounts...)
	if err != nil {
		return nil, createError(err)
	}
	q, memory, _, err := d.separate(ctx, key, plan, plan.ID)
	if err != nil {
		return nil, createError(err)
	}
	return &original{newMachine(plan, q, driver.Usage{}), d, key, memory}, nil
}

// Keep implements driver.Original.
func (o *original) Keep(ctx context.Context) (driver.Kept, error) {
	o.asked.Store(true)
	s, err := o.process.save(ctx, o.memory)
	if err != nil {
		return nil, err
	}
	<-o.dead
	_ = o.memory.Close()
	return &kept{driver: o.driver, key: o.key, saved: s}, nil
}

// Destroy ends the machine and removes its traces.
func (o *original) Destroy(ctx context.Context) error {
	err := o.machine.Destroy(ctx)
	if err == nil {
		_ = o.memory.Close() // again, where it was kept
	}
	return err
}

// kept is what an original was.
type kept struct {
	driver *Driver
	key    baseKey

	mu    sync.RWMutex // held for writing by Close
	saved *saved
}

// Copy implements driver.Kept.
func (k *kept) Copy(ctx context.Context, plan driver.Plan) (driver.Machine, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if err := refused(plan); err != nil {
		return nil, err
	}
	d := k.driver
	key, err := d.keyOf(ctx, plan.Template, shapeOf(plan), plan.Mounts...)
	if err != nil {
		return nil, createError(err)
	}
	if k.saved == nil || key != k.key {
		return nil, &sandbox.Error{
			Code: sandbox.CodeConflict, Message: "the virtual machine that was kept is of another QEMU, template or size",
			Hint: "make another and keep that",
		}
	}
	done, err := d.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	kvm, _ := d.byKVM()
	q, err := d.restore(ctx, k.saved, launch{id: plan.ID, shape: key.shape, disk: key.disk, memory: k.saved.memory, resumes: true, kvm: kvm})
	if err == nil {
		err = q.ask(ctx, wardenwire.Request{Op: wardenwire.OpRenew, Fresh: d.fresh()})
	}
	if err != nil {
		return nil, createError(err)
	}
	return newMachine(plan, q, driver.Usage{}), nil
}

// Close implements driver.Kept.
func (k *kept) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.saved.close()
	k.saved = nil
	return nil
}
