//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/warden/wardenwire"
)

// bootTimeout bounds how long a machine may take to say something, and then to get ready.
// Under emulation it is 3 s each on a quiet machine.
const bootTimeout = 60 * time.Second

// obtain returns a machine with the sandbox that was planned in it. A base from which no
// machine goes on is forgotten, and another is made, once.
func (d *Driver) obtain(ctx context.Context, plan driver.Plan) (q *process, err error) {
	for range 2 {
		var b *base
		if b, err = d.baseFor(ctx, plan); err != nil {
			return nil, err
		}
		q, err = d.obtainFrom(ctx, b, plan)
		b.release()
		if err == nil || ctx.Err() != nil || !errors.Is(err, errOver) || b.saved == nil {
			return q, err
		}
		b.forget()
	}
	return nil, err
}

func (d *Driver) obtainFrom(ctx context.Context, b *base, plan driver.Plan) (q *process, err error) {
	done, err := d.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	l := launch{id: plan.ID, shape: shapeOf(plan), disk: b.disk}
	l.kvm, _ = d.byKVM()
	if b.saved == nil {
		q, _, err = d.boot(ctx, l)
	} else {
		l.memory, l.resumes = b.saved.memory, true
		q, err = d.restore(ctx, b.saved, l)
	}
	if err != nil {
		return nil, err
	}
	r := wardenwire.Request{Op: wardenwire.OpCreate, Plan: untold(plan), Fresh: d.fresh()}
	if b.greeting != nil {
		r, q.greeting = wardenwire.Request{Op: wardenwire.OpRenew, Fresh: d.fresh()}, b.greeting
	}
	if err := q.ask(ctx, r); err != nil {
		return nil, err
	}
	return q, nil
}

// ask asks the warden of a machine that is being made, which is removed after an error.
func (q *process) ask(ctx context.Context, r wardenwire.Request) error {
	err := q.asking(ctx, func(ctx context.Context) error {
		_, err := q.link.Ask(ctx, r)
		return err
	})
	if err != nil {
		return errors.Join(err, q.remove(ctx))
	}
	return nil
}

// used asks a machine what has been used in it. After an error there is none.
func (q *process) used(ctx context.Context) (u driver.Usage, err error) {
	err = q.asking(ctx, func(ctx context.Context) error {
		answer, err := q.link.Ask(ctx, wardenwire.Request{Op: wardenwire.OpUsage})
		switch {
		case err != nil:
			return err
		case answer.Usage == nil:
			return errNothingTold
		}
		u = *answer.Usage
		return nil
	})
	if err != nil {
		return u, errors.Join(err, q.remove(ctx))
	}
	return u, nil
}

// turn waits until a machine can be made: more at a time would all take longer.
func (d *Driver) turn(ctx context.Context) (done func(), err error) {
	select {
	case d.turns <- struct{}{}:
		return func() { <-d.turns }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// restore goes on from what was saved.
func (d *Driver) restore(ctx context.Context, from *saved, l launch) (*process, error) {
	q := d.newProcess()
	err := q.start(ctx, d.host, l)
	if err == nil {
		err = q.asking(ctx, func(ctx context.Context) error { return q.resume(ctx, from) })
	}
	if err != nil {
		return nil, errors.Join(err, q.remove(ctx))
	}
	return q, nil
}

// boot boots a machine, and returns what can be enforced in it.
func (d *Driver) boot(ctx context.Context, l launch) (*process, driver.Report, error) {
	var none driver.Report
	q := d.newProcess()
	if err := q.start(ctx, d.host, l); err != nil {
		return nil, none, errors.Join(err, q.remove(ctx))
	}
	var report driver.Report
	err := q.asking(ctx, func(ctx context.Context) error {
		if _, err := q.link.Hello(ctx); err != nil {
			return fmt.Errorf("boot %s: %w", d.host.kernel.release, err)
		}
		answer, err := q.link.Ask(ctx, wardenwire.Request{Op: wardenwire.OpPrepare, Template: &l.disk.inside})
		if err == nil && answer.Report == nil {
			err = errors.New("the machine's first process reports nothing")
		}
		if err == nil {
			report = *answer.Report
		}
		return err
	})
	if err != nil {
		return nil, none, errors.Join(err, q.remove(ctx))
	}
	return q, report, nil
}

// asking bounds how long the machine may take, and says why it does not answer.
func (q *process) asking(ctx context.Context, ask func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, q.driver.o.patient, errSilent)
	defer cancel()
	stop := context.AfterFunc(ctx, q.kill)
	defer stop()
	err := ask(limited)
	if err == nil || ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	select {
	case <-q.ended:
		return fmt.Errorf("%w: %w: %s", err, errOver, q.how())
	case <-time.After(100 * time.Millisecond): // its end comes another way than that of its connections
	}
	if said := q.said.text(); said != "" {
		err = fmt.Errorf("%w; its console said last: %s", err, said)
	}
	return err
}

var errSilent = errors.New("the virtual machine has said nothing for too long")
