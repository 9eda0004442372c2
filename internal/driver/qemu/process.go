//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/linux/unixpair"
	"pinfold/internal/nbd"
	"pinfold/internal/warden/wardenwire"
	"pinfold/sandbox"
)

// endTimeout bounds how long the kernel may take to end a QEMU.
const endTimeout = 10 * time.Second

// process is one QEMU and all that this host has for it.
type process struct {
	driver *Driver
	block  *idblock.Block
	group  *cgroup.Group
	child  *spawn.Child // nil before the start

	control, agent, disk, console *unixpair.Channel
	monitor                       monitor

	link     *wardenwire.Link
	said     tail
	greeting []byte    // what the agent has said before the machine was copied
	held     io.Closer // its template: see image.Template.Hold
	launch   launch    // without its memory
	memory   *os.File  // that it maps; nil: it has been given none

	ended  chan struct{} // closed when it has ended
	status syscall.WaitStatus
	kills  int64 // of the OOM killer in its group, once it has ended

	mu   sync.Mutex // held by remove
	gone bool
}

// files are what QEMU is handed, in the order of their numbers; those of its ends of
// sockets are closed here once it has them.
type files struct {
	all    []int
	theirs []*os.File
}

// newProcess makes what a QEMU needs, for start.
func (d *Driver) newProcess() *process { return &process{driver: d, ended: make(chan struct{})} }

// start starts QEMU. What it has made is in q, for remove, also after an error.
func (q *process) start(ctx context.Context, h *host, l launch) error {
	d := q.driver
	var err error
	if q.held, err = l.disk.template.Hold(); err != nil {
		return err
	}
	if q.block, err = d.pool.Lease(); err != nil {
		return err
	}
	if q.group, err = h.hierarchy.New(d.lock.Group(l.id), groupLimits(h, l.shape)); err != nil {
		return err
	}
	var f files
	defer f.close()
	for _, end := range []**unixpair.Channel{&q.console, &q.control, &q.agent, &q.monitor.conn, &q.disk} {
		if err := f.pair(end); err != nil {
			return err
		}
	}
	out, kvm := f.all[0], 0
	if l.kvm {
		if kvm, err = deviceNumber(d.o.kvm); err != nil {
			return err
		}
	}
	f.all = append(f.all[1:], int(h.image.Fd()), int(h.initramfs.Fd()))
	if l.memory != nil {
		f.all = append(f.all, int(l.memory.Fd()))
		if q.memory, err = reopen(l.memory, unix.O_RDONLY); err != nil { // what it is given may be closed
			return err
		}
	}
	q.launch = l
	q.launch.memory = nil
	if err := q.spawn(h, &jail{host: h, uid: q.block.Base + sandbox.UID, files: f.all, out: out, args: d.o.argv(l), kvm: kvm}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, q.kill)
	defer stop()
	if err := q.child.WaitExec(); err != nil {
		q.child = nil // it has been waited for
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	q.watch(l.disk)
	return nil
}

// pair makes a pair of sockets, of which QEMU gets one.
func (f *files) pair(ours **unixpair.Channel) error {
	one, theirs, err := unixpair.New(unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	*ours = one
	f.all, f.theirs = append(f.all, int(theirs.Fd())), append(f.theirs, theirs)
	return nil
}

func (f *files) close() {
	for _, file := range f.theirs {
		_ = file.Close()
	}
}

// groupLimits are what QEMU may take of the host, whatever its machine does.
func groupLimits(h *host, s shape) (l cgroup.Limits) {
	can := func(c cgroup.Controller) bool { return h.hierarchy.Support(c).Answer == cgroup.Yes }
	if can(cgroup.Memory) {
		l.Memory = s.memory<<20 + translated + emulatorsOwn
	}
	if can(cgroup.Pids) {
		l.Pids = int64(s.cpus) + emulatorTasks
	}
	if can(cgroup.CPU) {
		l.CPUPeriodUS, l.CPUQuotaUS = cpuPeriodUS, int64(s.cpus+1)*cpuPeriodUS // its devices have one of their own
	}
	return l
}

// emulatorTasks are QEMU's threads beside the processors'.
const emulatorTasks = 32

// cpuPeriodUS is the period in which processor time is given out.
const cpuPeriodUS = 100_000

// spawn makes the process, in its cgroup.
func (q *process) spawn(h *host, j *jail) error {
	entries, err := q.group.JoinFiles()
	if err != nil {
		return err
	}
	defer func() {
		for _, fd := range entries {
			_ = unix.Close(fd)
		}
	}()
	j.join = entries
	clone := spawn.Clone{Flags: namespaces, CopyLow: true}
	dir, err := q.group.OpenDir()
	if err != nil {
		return err
	}
	if dir != nil {
		defer dir.Close() //nolint:errcheck // only the way in
		clone.Cgroup = int(dir.Fd())
	}
	q.child, err = j.program().Start(clone)
	runtime.KeepAlive(h)
	return err
}

// watch serves the machine's disk, hears what it says on its console, and waits for its end.
func (q *process) watch(shows *disk) {
	child := q.child
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", child.PID), []byte("500"), 0) // the host's memory comes first
	q.link = wardenwire.NewLink(q.control)
	heard := make(chan struct{})
	go func() {
		_, _ = io.Copy(&q.said, q.console)
		close(heard)
	}()
	go func() {
		_ = nbd.Serve(q.disk, shows)
		_ = q.disk.Close() // QEMU gets an error for each read from then on
	}()
	go func() {
		q.status = child.Wait()
		if c, err := q.group.Counters(); err == nil {
			q.kills = c.OOMKills
		}
		select {
		case <-heard: // what it said last is the reason
		case <-time.After(time.Second):
		}
		close(q.ended)
	}()
}

// kill ends QEMU.
func (q *process) kill() { _ = q.child.Kill() }

// how says how QEMU ended, and what it said last.
func (q *process) how() string {
	how := fmt.Sprintf("exit status %d", q.status.ExitStatus())
	if q.status.Signaled() {
		how = "signal " + q.status.Signal().String()
	}
	if said := q.said.text(); said != "" {
		how += "; it said last: " + said
	}
	return how
}

// remove ends QEMU and removes everything that start made. It is idempotent; after an error
// it may be called again.
func (q *process) remove(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if q.child != nil {
		q.kill()
		select {
		case <-q.ended:
		case <-ctx.Done():
			return failure.Of("end QEMU in time", context.Cause(ctx))
		}
		q.child.Release()
	}
	for _, c := range []*unixpair.Channel{q.control, q.agent, q.monitor.conn, q.disk, q.console} {
		if c != nil {
			_ = c.Close()
		}
	}
	if q.group != nil {
		if err := q.group.Remove(ctx); err != nil {
			return failure.Of("remove the sandbox's cgroup", err)
		}
	}
	if q.block != nil {
		if err := q.block.Release(); err != nil {
			return failure.Of("give back the sandbox's user ids", err)
		}
	}
	if q.held != nil {
		_ = q.held.Close()
	}
	if q.memory != nil {
		_ = q.memory.Close()
	}
	q.gone = true
	return nil
}

// tail keeps the last bytes written to it. It is safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 2 << 10

// Write keeps them.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(0, len(p)-tailSize):]...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// text is what was kept, as text.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return sandbox.SafeText(strings.TrimSpace(strings.ReplaceAll(string(t.buf), "\r", "")), tailSize)
}

// errOver is the end of a machine that was being made.
var errOver = errors.New("the virtual machine has ended")
