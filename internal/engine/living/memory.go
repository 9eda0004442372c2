package living

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/pool"
	"pinfold/internal/engine/stdio"
	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// # Snapshots with memory
//
// Where a machine's memory can be kept, a snapshot is that, and the files are in it. Before
// it stands what the host knows at that moment: of the agent's connection, which goes on too,
// and of the processes. What the first sandbox had been sent of their output is not in it.

// memoryHead is what stands before a memory.
type memoryHead struct {
	Moment    guest.Moment           `json:"moment"`
	Processes map[uint32]processHead `json:"processes"` // by channel
}

// processHead is a process that runs at that moment.
type processHead struct {
	Command sandbox.Command `json:"command"`
	Limits  sandbox.Limits  `json:"limits"`
	Started time.Time       `json:"started"`
	Passed  time.Duration   `json:"passed"` // of its wall time
}

// maxMemoryHead bounds it: the commands of as many processes as one sandbox may have asked for.
const maxMemoryHead = 256 << 20

// copyMemory has the sandbox stand still and writes what the host knows, and its memory.
func (s *Sandbox) copyMemory(ctx context.Context, a driver.MachineAbilities, w io.Writer) (stood time.Duration, err error) {
	if len(s.machine.Plan.Doors) > 0 { // they end in this process, and so does what goes through them
		return 0, (&sandbox.Error{Code: sandbox.CodeConflict, Message: "the memory of a sandbox with declared endpoints cannot be kept"}).
			WithHint("make it without, or with the native driver, whose snapshots are of files")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, copyTimeout, &sandbox.Error{
		Code: sandbox.CodeResourceUnavailable, Message: fmt.Sprintf("the sandbox's memory could not be copied within %s, and for longer it may not stand still", copyTimeout),
		Hint: "try again when the server has less to do",
	})
	defer cancel()
	var held *guest.Held
	goOn, err := s.stand(ctx, a.Pauser, func() (err error) {
		held, err = s.guest.Hold(ctx, s.machine.Plan.User.Home)
		return err
	})
	if held != nil {
		defer held.Release() // after it goes on
	}
	if err != nil {
		return 0, s.explain(ctx, err)
	}
	begun := time.Now()
	err = s.writeMemory(ctx, a.MemorySnapshotter, held, w)
	stood = time.Since(begun)
	goOn()
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.stays() {
			return 0, s.notRunning()
		}
		return 0, execution.CallerGone(ctx, sandbox.AsError(err))
	}
	return stood, nil
}

func (s *Sandbox) writeMemory(ctx context.Context, from driver.MemorySnapshotter, held *guest.Held, w io.Writer) error {
	head := memoryHead{Processes: map[uint32]processHead{}}
	var err error
	if head.Moment, err = s.guest.Moment(ctx, held); err != nil {
		return err
	}
	s.mu.Lock()
	for _, p := range s.processes {
		head.Processes[p.guest.Channel()] = processHead{p.command, p.limits, p.started.UTC().Round(0), p.wall.elapsed()}
	}
	s.mu.Unlock()
	for _, p := range head.Moment.Processes {
		if _, known := head.Processes[p.Channel]; !known {
			return sandbox.Errorf(sandbox.CodeConflict, "something that nobody asked for runs in the sandbox")
		}
	}
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	if len(text) > maxMemoryHead {
		return sandbox.Errorf(sandbox.CodeTooLarge, "the commands of the processes that run are too long")
	}
	if _, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)); err != nil { //nolint:gosec // bounded
		return err
	}
	return from.SnapshotMemory(ctx, w)
}

// readMemoryHead reads what stands before a memory.
func readMemoryHead(r io.Reader) (head memoryHead, err error) {
	size := make([]byte, 4)
	if _, err = io.ReadFull(r, size); err != nil {
		return head, err
	}
	n := binary.BigEndian.Uint32(size)
	if n > maxMemoryHead {
		return head, errNoMemory
	}
	var text bytes.Buffer
	if _, err := io.CopyN(&text, r, int64(n)); err != nil {
		return head, err
	}
	if json.Unmarshal(text.Bytes(), &head) != nil {
		return head, errNoMemory
	}
	return head, nil
}

var errNoMemory error = &sandbox.Error{Code: sandbox.CodeStateCorrupt, Message: "the snapshot is not one with memory", Hint: "remove it, and make another"}

// goOnFrom makes the machine of a sandbox that goes on from a memory, and returns what runs
// in it. After an error there is none.
func (s *Sandbox) goOnFrom(ctx context.Context, d driver.Driver, plan driver.Plan, require []string, from *origin) ([]*Process, error) {
	restorer := d.Abilities().MemoryRestorer
	if restorer == nil {
		return nil, sandbox.Errorf(sandbox.CodeConflict, "sandboxes of the %s driver cannot go on from a memory", d.Name())
	}
	if err := plan.Meets(require); err != nil {
		return nil, err
	}
	content := from.content.Reader()
	head, err := readMemoryHead(content)
	if err != nil {
		return nil, sandbox.AsError(err)
	}
	m, err := restorer.RestoreMemory(ctx, plan, content)
	if err != nil {
		return nil, err
	}
	conn, err := m.Dial(ctx)
	if err != nil {
		return nil, errors.Join(err, m.Destroy(context.WithoutCancel(ctx)))
	}
	var all []*Process
	g, running := guest.Continued(conn, execution.Hello(plan), head.Moment, func(was guest.ProcessMoment) guest.Streams {
		h := head.Processes[was.Channel]
		p := s.newProcess(h.Command)
		p.key = s.key // of who has it go on
		p.limits, p.started, p.passed = h.Limits, h.Started, h.Passed
		streams := guest.Streams{Stdout: p.output.Writer(wire.Stdout), Stderr: p.output.Writer(wire.Stderr), Arrived: p.output.Arrived}
		if h.Command.Stdin || h.Command.Terminal != nil {
			p.stdin = stdio.NewInlet()
			if streams.Stdin = p.stdin.Program(); !was.Stdin {
				p.stdin.End()
			}
		}
		all = append(all, p)
		return streams
	})
	for i, p := range running {
		all[i].guest = p
	}
	s.guest, s.machine = g, &pool.Machine{Session: execution.Greeted(m, plan, g, nil)}
	return all, nil
}

// goesOn has the processes of a sandbox that goes on be its own.
func (s *Sandbox) goesOn(all []*Process) {
	if len(all) == 0 {
		return
	}
	base := s.read()
	for _, p := range all {
		p.base = base
		s.occupy()
		s.keep(p)
		go p.await()
	}
}

// hasMemory says whether that is in what a snapshot holds.
func hasMemory(s sandbox.Snapshot) bool { return slices.Contains(s.Holds, sandbox.SnapshotMemory) }

// asItWas says why limits are not those of the machine that goes on.
func (o *origin) asItWas(l sandbox.Limits) error {
	for _, c := range []struct {
		field      string
		was, asked any
	}{
		{"limits.memory_bytes", o.limits.MemoryBytes, l.MemoryBytes},
		{"limits.disk_bytes", o.limits.DiskBytes, l.DiskBytes},
		{"limits.inodes", o.limits.Inodes, l.Inodes},
		{"limits.processes", o.limits.Processes, l.Processes},
		{"limits.cpus", o.limits.CPUs, l.CPUs},
	} {
		if c.was != c.asked {
			return (&sandbox.Error{
				Code: sandbox.CodeLimitInvalid, Field: c.field, Message: fmt.Sprintf("a machine that goes on has what it had, which is %v", c.was),
			}).WithAdvice(sandbox.Advise("%s", sandbox.Omit(c.field)))
		}
	}
	return nil
}
