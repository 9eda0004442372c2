//go:build linux

package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/unixpair"
	"pinfold/internal/warden/wardenwire"
)

// maxAsked bounds how many plans are remembered that were asked for.
const maxAsked = 256

// baseFor returns what a machine is best made from: the one with the sandbox in it, where
// the plan was asked for before. A plan is the same as another that differs in its ID.
func (d *Driver) baseFor(ctx context.Context, plan driver.Plan) (*base, error) {
	key, err := d.keyOf(ctx, plan.Template, shapeOf(plan), plan.Mounts...)
	if err != nil {
		return nil, err
	}
	if !d.o.cold && !d.o.empty {
		text, err := json.Marshal(untold(plan.Named("")))
		if err != nil {
			return nil, err
		}
		twin := key
		twin.plan = string(text)
		if d.bases.again(twin) {
			b, err := d.baseOf(ctx, twin)
			if err == nil || ctx.Err() != nil {
				return b, err
			}
			d.bases.giveUp(twin) // an empty one does, too
		}
	}
	return d.baseOf(ctx, key)
}

// untold is a plan without the template, which the machine knows, and with the places of
// its disk where that has what the engine keeps.
func untold(plan driver.Plan) *driver.Plan {
	plan.Template, plan.Mounts = image.Template{}, slices.Clone(plan.Mounts)
	for i := range plan.Mounts {
		plan.Mounts[i].Host = keptAt(i)
	}
	return &plan
}

// again says whether the base was asked for before.
func (b *bases) again(key baseKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asked == nil || len(b.asked) >= maxAsked {
		b.asked = map[baseKey]bool{}
	}
	before := b.asked[key]
	b.asked[key] = true
	return before
}

// giveUp has the base be as one that nobody has asked for.
func (b *bases) giveUp(key baseKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.asked, key)
}

// makeSandboxBase goes on from a base, makes the sandbox, and keeps what came of it.
func (d *Driver) makeSandboxBase(ctx context.Context, key baseKey) (b *base, err error) {
	var plan driver.Plan
	if err := json.Unmarshal([]byte(key.plan), &plan); err != nil {
		return nil, err
	}
	plan.ID = "snapshot"
	q, memory, report, err := d.separate(ctx, key, plan, fmt.Sprintf("base-%d", time.Now().UnixNano()%1e12))
	if err != nil {
		return nil, err
	}
	defer memory.Close() //nolint:errcheck // what is saved has opened it again
	b = &base{disk: key.disk, report: report}
	err = q.asking(ctx, func(context.Context) error {
		b.greeting, err = q.greet()
		return err
	})
	if err != nil {
		return nil, errors.Join(err, q.remove(ctx))
	}
	b.saved, err = q.save(ctx, memory)
	return b, err
}

// separate makes a sandbox in a machine that can be saved: it goes on from an empty base
// with a copy of its memory, which is also the caller's to close.
func (d *Driver) separate(ctx context.Context, key baseKey, plan driver.Plan, id string) (q *process, memory *os.File, report driver.Report, err error) {
	key.plan = ""
	from, err := d.baseOf(ctx, key)
	if err != nil {
		return nil, nil, report, err
	}
	defer from.release()
	if from.saved == nil {
		return nil, nil, report, failure.Of("go on from a snapshot", errors.ErrUnsupported)
	}
	done, err := d.turn(ctx)
	if err != nil {
		return nil, nil, report, err
	}
	defer done()
	if memory, err = memoryFile(key.shape); err != nil {
		return nil, nil, report, err
	}
	defer func() {
		if err != nil {
			_ = memory.Close()
		}
	}()
	if err := copyMemory(memory, from.saved.memory); err != nil {
		return nil, nil, report, failure.Of("copy the machine's memory", err)
	}
	kvm, _ := d.byKVM()
	if q, err = d.restore(ctx, from.saved, launch{id: id, shape: key.shape, disk: key.disk, memory: memory, resumes: true, keeps: true, kvm: kvm}); err != nil {
		return nil, nil, report, err
	}
	return q, memory, from.report, q.ask(ctx, wardenwire.Request{Op: wardenwire.OpCreate, Plan: untold(plan), Fresh: d.fresh()})
}

// greetingTimeout bounds how long an agent may take to say hello, and maxGreeting what it says.
const greetingTimeout, maxGreeting = 20 * time.Second, 4 << 10

// greet takes what the agent says before anybody has spoken to it: one short message.
func (q *process) greet() ([]byte, error) {
	if err := q.agent.SetReadDeadline(time.Now().Add(greetingTimeout)); err != nil {
		return nil, err
	}
	b := make([]byte, maxGreeting)
	n, err := q.agent.Read(b)
	if err == nil && n == maxGreeting {
		err = errors.New("the agent says too much")
	}
	return b[:n], err
}

// greeted is the connection to an agent that has spoken already.
type greeted struct {
	*unixpair.Channel
	rest *[]byte
}

// Read begins with what it said.
func (g greeted) Read(b []byte) (int, error) {
	if len(*g.rest) > 0 {
		n := copy(b, *g.rest)
		*g.rest = (*g.rest)[n:]
		return n, nil
	}
	return g.Channel.Read(b)
}
