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
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/memfd"
)

// saved is a machine as it was when it stopped: its memory, and the state of its devices
// (QEMU's own format for moving machines, some 0.3 MB). Machines that go on from it map the
// memory privately. Nobody can write to either file any more, also not a QEMU that was broken
// into.
type saved struct{ memory, state *os.File }

// close closes both files. It may be called again.
func (s *saved) close() {
	if s != nil && s.memory != nil {
		_, _ = s.memory.Close(), s.state.Close()
		s.memory = nil
	}
}

// save stops a machine whose memory is that file, and returns it as it was. The machine is
// of no use any more.
func (q *process) save(ctx context.Context, memory *os.File) (*saved, error) {
	state, err := q.saveState(ctx)
	if err = errors.Join(err, q.remove(ctx)); err != nil {
		return nil, err
	}
	s := &saved{state: state}
	if s.memory, err = sealed(memory, unix.O_RDWR); err != nil { // as QEMU opens it; what is sealed stays as it is
		_ = state.Close()
		return nil, failure.Of("keep the machine's memory", err)
	}
	return s, nil
}

// saveState stops the machine and returns the state of its devices.
func (q *process) saveState(ctx context.Context) (*os.File, error) {
	fd, err := unix.MemfdCreate("state", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, failure.Of("keep the machine's state", err)
	}
	f := os.NewFile(uintptr(fd), "state")
	defer f.Close() //nolint:errcheck // opened again below
	err = q.migrate(ctx, f)
	var state *os.File
	if err == nil {
		state, err = sealed(f, unix.O_RDONLY)
	}
	if err != nil {
		return nil, failure.Of("keep the machine's state", err)
	}
	return state, nil
}

// sealed seals a file in memory, and opens it anew.
func sealed(f *os.File, flags int) (*os.File, error) {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		return nil, err
	}
	return reopen(f, flags)
}

// memoryFile returns a file for the memory of a machine that is to be saved.
func memoryFile(s shape) (*os.File, error) {
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, failure.Of("make the machine's memory", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if err := f.Truncate(s.memory << 20); err != nil {
		_ = f.Close()
		return nil, failure.Of("make the machine's memory", err)
	}
	return f, nil
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

// reopen opens a file anew, with a place of its own in it.
func reopen(f *os.File, flags int) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), flags|unix.O_CLOEXEC, 0)
}

// ignoreShared has QEMU leave the memory where it is.
var ignoreShared = map[string]any{"capabilities": []map[string]any{{"capability": "x-ignore-shared", "state": true}}}

// migrate has QEMU write its state to a file, and stop.
func (q *process) migrate(ctx context.Context, to *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, q.driver.o.patient)
	defer cancel()
	if err := q.handState(ctx, to); err != nil {
		return err
	}
	if _, err := q.monitor.command(ctx, "migrate", map[string]string{"uri": "fd:state"}); err != nil {
		return err
	}
	for {
		answer, err := q.monitor.command(ctx, "query-migrate", nil)
		if err != nil {
			return err
		}
		var now struct {
			Status string `json:"status"`
			Error  string `json:"error-desc"`
		}
		if err := json.Unmarshal(answer, &now); err != nil {
			return err
		}
		switch now.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return errors.New("QEMU could not: " + now.Error)
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handState hands QEMU the file of a state.
func (q *process) handState(ctx context.Context, f *os.File) error {
	if _, err := q.monitor.command(ctx, "migrate-set-capabilities", ignoreShared); err != nil {
		return err
	}
	_, err := q.monitor.commandWith(ctx, "getfd", map[string]string{"fdname": "state"}, f)
	return err
}

// resume has a machine that waits for it go on from a state.
func (q *process) resume(ctx context.Context, from *saved) error {
	state, err := reopen(from.state, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer state.Close() //nolint:errcheck // QEMU has its own
	if err := q.handState(ctx, state); err != nil {
		return err
	}
	_, err = q.monitor.command(ctx, "migrate-incoming", map[string]string{"uri": "fd:state"})
	return err // it goes on by itself, as it did until it was saved
}
