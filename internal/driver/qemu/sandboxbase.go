//go:build linux

package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/linux/memfd"
	"pinfold/internal/linux/unixpair"
	"pinfold/internal/warden/wardenwire"
)

// maxAsked bounds how many plans are remembered that were asked for.
const maxAsked = 256

// baseFor returns what a machine is best made from: the one with the sandbox in it, where
// the plan was asked for before. A plan is the same as another that differs in its ID.
func (d *Driver) baseFor(ctx context.Context, plan driver.Plan) (*base, error) {
	key, err := d.keyOf(ctx, plan.Template, shapeOf(plan))
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

// untold is a plan without the template, which the machine knows.
func untold(plan driver.Plan) *driver.Plan {
	plan.Template = image.Template{}
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
	empty := key
	empty.plan = ""
	from, err := d.baseOf(ctx, empty)
	if err != nil {
		return nil, err
	}
	defer from.release()
	if from.memory == nil {
		return nil, failed("go on from a snapshot", errors.ErrUnsupported)
	}
	done, err := d.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	l := launch{id: fmt.Sprintf("base-%d", time.Now().UnixNano()%1e12), shape: key.shape, disk: key.disk, state: from.state, keeps: true}
	if l.memory, err = memoryFile(key.shape); err != nil {
		return nil, err
	}
	defer l.memory.Close() //nolint:errcheck // who goes on from it has opened it again
	if err := copyMemory(l.memory, from.memory); err != nil {
		return nil, failed("copy the machine's memory", err)
	}
	q, err := d.restore(ctx, from, l)
	if err != nil {
		return nil, err
	}
	b = &base{disk: key.disk, report: from.report}
	err = q.asking(ctx, func(ctx context.Context) error {
		if _, err := q.link.Ask(ctx, wardenwire.Request{Op: wardenwire.OpCreate, Plan: untold(plan), Fresh: d.fresh()}); err != nil {
			return err
		}
		b.greeting, err = q.greet()
		return err
	})
	if err == nil {
		b.state, err = q.save(ctx)
	}
	if err = errors.Join(err, q.remove(ctx)); err != nil {
		return nil, err
	}
	if _, err = unix.FcntlInt(l.memory.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		return nil, failed("seal the machine's memory", err)
	}
	b.memory, err = reopen(l.memory, unix.O_RDWR)
	return b, err
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

// copyMemory copies what there is in a machine's memory, and no more.
func copyMemory(to, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	for at := int64(0); at < info.Size(); {
		begin, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(from.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(to, begin), io.NewSectionReader(from, begin, end-begin)); err != nil {
			return err
		}
		at = end
	}
	return nil
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
