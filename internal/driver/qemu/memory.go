//go:build linux

package qemu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/linux/failure"
	"pinfold/internal/warden/wardenwire"
	"pinfold/sandbox"
)

// # Snapshots with memory
//
// A machine that stands still is written as what it is known by (fingerprint.go), the state
// of its devices, and what its memory has other than zeros. QEMU writes the first of these
// alone: it would read all of the memory to send it, and so have all that the machine never
// used made real. The memory is read from outside: what the machine has written from the
// process, what it has not from the file that it maps.
//
// Whoever has broken into QEMU decides what is in both. It is read bounded, nothing in it is
// believed, and it goes into a QEMU that stands in the same walls.

// Bounds of what is read back.
const (
	maxPrint = 16 << 10
	maxState = 16 << 20
)

// window is how much of a memory is looked at at once.
const window = 1 << 20

// SnapshotMemory implements driver.MemorySnapshotter.
func (m *machine) SnapshotMemory(ctx context.Context, w io.Writer) error {
	m.pausing.Lock() // nobody lets it go on meanwhile
	defer m.pausing.Unlock()
	switch {
	case m.hasEnded():
		return driver.ErrEnded
	case !m.paused.Load():
		return sandbox.Errorf(sandbox.CodeInternal, "a snapshot of a machine that does not stand still")
	case m.process.memory == nil:
		return &sandbox.Error{Code: sandbox.CodeRequirementUnmet, Message: "no snapshots can be made of virtual machines that were booted by themselves"}
	}
	err := m.process.writeSnapshot(ctx, w)
	if err != nil && (m.hasEnded() || m.process.hasEnded()) {
		return driver.ErrEnded
	}
	return err
}

func (q *process) writeSnapshot(ctx context.Context, w io.Writer) error {
	known, err := q.driver.fingerprint(q.launch)
	if err != nil {
		return err
	}
	state, err := q.deviceState(ctx)
	if err != nil {
		return failure.Of("keep the machine's state", err)
	}
	for _, b := range [][]byte{known.encode(), state} {
		if err := writePart(w, b); err != nil {
			return err
		}
	}
	return q.writeMemory(ctx, w)
}

// writePart writes a part, of at most 4 GB, after its length.
func writePart(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)) //nolint:gosec // bounded
	return err
}

// deviceState returns the state of the devices of a machine that stands still.
func (q *process) deviceState(ctx context.Context) ([]byte, error) {
	fd, err := unix.MemfdCreate("state", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "state")
	defer f.Close() //nolint:errcheck // in memory
	theirs, err := reopen(f, unix.O_WRONLY)
	if err != nil {
		return nil, err
	}
	defer theirs.Close() //nolint:errcheck // QEMU has its own
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx = context.WithoutCancel(ctx) // an answer that nobody waits for would be the next command's
	const set = 1
	if _, err := q.monitor.commandWith(ctx, "add-fd", map[string]int{"fdset-id": set}, theirs); err != nil {
		return nil, err
	}
	_, err = q.monitor.command(ctx, "xen-save-devices-state", map[string]any{"filename": fmt.Sprintf("/dev/fdset/%d", set), "live": false})
	if _, removeErr := q.monitor.command(ctx, "remove-fd", map[string]int{"fdset-id": set}); err == nil {
		err = removeErr
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxState+1))
	switch {
	case err == nil && len(b) > maxState:
		err = errors.New("it is too large")
	case err == nil && len(b) == 0:
		err = errors.New("QEMU has written nothing")
	}
	return b, err
}

// writeMemory writes what the memory has other than zeros, piece by piece: where it is, how
// much, and that. A piece of nothing is the end.
func (q *process) writeMemory(ctx context.Context, w io.Writer) error {
	own, err := q.openPages()
	if err != nil {
		return failure.Of("read the machine's memory", err)
	}
	defer own.close()
	buf, size := make([]byte, pieceHeader+window), q.launch.shape.memory<<20
	for at := int64(0); at < size; at += window {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		there, err := own.read(buf[pieceHeader:], at)
		if err != nil {
			return failure.Of("read the machine's memory", err)
		}
		if !there {
			continue
		}
		if err := writePieces(w, buf, at); err != nil {
			return err
		}
	}
	_, err = w.Write(make([]byte, pieceHeader))
	return err
}

// pieceHeader is what stands before a piece: where it is, and how long.
const pieceHeader = 8 + 4

// writePieces writes the pages of a window that are not all zeros. The window has room for a
// header before it, which the pages that are written lend to those after them.
func writePieces(w io.Writer, buf []byte, at int64) error {
	zeros := make([]byte, page)
	is := func(n int) bool { return string(buf[pieceHeader+n:pieceHeader+n+page]) != string(zeros) }
	for begin := 0; begin < window; begin += page {
		end := begin
		for end < window && is(end) {
			end += page
		}
		if end == begin {
			continue
		}
		piece := buf[begin : pieceHeader+end]                       // the header's place is that of what was written before
		binary.BigEndian.PutUint64(piece, uint64(at)+uint64(begin)) //nolint:gosec // not negative
		binary.BigEndian.PutUint32(piece[8:], uint32(end-begin))    //nolint:gosec // at most a window
		if _, err := w.Write(piece); err != nil {
			return err
		}
		begin = end
	}
	return nil
}

// RestoreMemory implements driver.MemoryRestorer.
func (d *Driver) RestoreMemory(ctx context.Context, plan driver.Plan, from io.Reader) (driver.Machine, error) {
	if err := refused(plan); err != nil {
		return nil, err
	}
	key, err := d.keyOf(ctx, plan.Template, shapeOf(plan), plan.Mounts...)
	if err != nil {
		return nil, createError(err)
	}
	l := launch{id: plan.ID, shape: key.shape, disk: key.disk, resumes: true, keeps: true, bare: true}
	l.kvm, _ = d.byKVM()
	here, err := d.fingerprint(l)
	if err != nil {
		return nil, createError(err)
	}
	s, err := readSnapshot(ctx, from, here, key.shape)
	if err != nil {
		return nil, createError(err)
	}
	defer s.close() // QEMU has its own
	done, err := d.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	l.memory = s.memory
	q, err := d.restore(ctx, s, l)
	if err == nil {
		err = q.ask(ctx, wardenwire.Request{Op: wardenwire.OpRenew, Fresh: d.fresh()})
	}
	var base driver.Usage
	if err == nil {
		base, err = q.used(ctx)
	}
	if err != nil {
		return nil, createError(err)
	}
	return newMachine(plan, q, base), nil
}

// readSnapshot reads all of a snapshot. Nothing in it is believed: it may be any machine's.
func readSnapshot(ctx context.Context, from io.Reader, here fingerprint, of shape) (s *saved, err error) {
	text, err := readPart(from, maxPrint)
	if err != nil {
		return nil, err
	}
	if err := here.suits(text); err != nil {
		return nil, err
	}
	state, err := readPart(from, maxState)
	if err != nil {
		return nil, err
	}
	s = &saved{}
	if s.state, err = stateFile(state); err != nil {
		return nil, failure.Of("make the machine's state", err)
	}
	if s.memory, err = memoryFile(of); err != nil {
		_ = s.state.Close()
		return nil, err
	}
	if err = readMemory(ctx, from, s.memory, of.memory<<20); err == nil {
		var more int
		if more, err = io.ReadFull(from, make([]byte, 1)); more == 0 && errors.Is(err, io.EOF) { // which says that it is whole
			return s, nil
		}
		if err == nil {
			err = errForm
		}
	}
	s.close()
	return nil, err
}

func stateFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("state", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "state")
	if _, err := f.WriteAt(content, 0); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// errForm is what becomes of a snapshot that this driver has not written.
var errForm error = &sandbox.Error{Code: sandbox.CodeStateCorrupt, Message: "the snapshot is not what a virtual machine leaves", Hint: "remove it, and make another"}

// readPart reads a part that says how long it is.
func readPart(from io.Reader, most uint32) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, cut(err)
	}
	n := binary.BigEndian.Uint32(head)
	if n == 0 || n > most {
		return nil, errForm
	}
	b := make([]byte, n)
	_, err := io.ReadFull(from, b)
	return b, cut(err)
}

// cut is the error of a snapshot that ends too soon.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errForm
	}
	return err
}

// readMemory reads pieces into a memory of that size.
func readMemory(ctx context.Context, from io.Reader, to io.WriterAt, size int64) error {
	head, buf, end := make([]byte, pieceHeader), make([]byte, window), int64(0)
	for ctx.Err() == nil {
		if _, err := io.ReadFull(from, head); err != nil {
			return cut(err)
		}
		at, n := binary.BigEndian.Uint64(head), int64(binary.BigEndian.Uint32(head[8:]))
		if n == 0 {
			return nil
		}
		if at < uint64(end) || at >= uint64(size) || n > window || n > size-int64(at) || at%page != 0 || n%page != 0 { //nolint:gosec // none is negative
			return errForm
		}
		end = int64(at) + n //nolint:gosec // at most size
		if _, err := io.ReadFull(from, buf[:n]); err != nil {
			return cut(err)
		}
		if _, err := to.WriteAt(buf[:n], int64(at)); err != nil { //nolint:gosec // at most size
			return failure.Of("make the machine's memory", err)
		}
	}
	return context.Cause(ctx)
}
