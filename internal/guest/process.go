package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Command is a program to start.
type Command struct {
	Args     []string // Args[0] is looked up in the PATH of Env unless it has a slash
	Env      []string // the whole environment, K=V
	Dir      string   // empty: the home directory
	UID, GID int      // 0: the sandbox's default user
	Rlimits  []wire.Rlimit
	CPUs     []int // the processors of the host that it may use at first; empty: all
	// Terminal gives the process a terminal of that size instead of pipes. All
	// that it prints then comes on Stdout; the end of Stdin is typed as ^D.
	Terminal *wire.TerminalSize
}

// Streams are the standard streams of a process. A nil Stdin is /dev/null; a
// nil writer discards. Each writer is called from one goroutine. One that is
// slow stops the program; what comes after its first error is discarded.
// Reading ends with the process, but a Stdin that blocks for ever keeps its
// goroutine.
type Streams struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Arrived, where it is set, is told of what comes in the order in which the agent
	// sent it, before it is written. The writers are goroutines of their own, and
	// which of them is faster says nothing. It is called from the reading loop and must
	// not block.
	Arrived func(stream uint8, n int)
}

// Exit is how a process ended, as the agent says.
type Exit struct {
	Code   int            // meaningful when Signal is 0
	Signal syscall.Signal // the signal that ended it, or 0
	Wall   time.Duration
	CPU    time.Duration // of the process and the children it waited for
}

// Process is a started process.
type Process struct {
	c        *channel
	pid      int
	held     bool
	terminal bool
	exit     Exit

	state   int           // of the reading loop: 0 asked for, 1 started, 2 exited
	started chan struct{} // the exec has succeeded
	exited  chan struct{}
	parts   atomic.Int32 // what has to end: the channel and two outputs
	done    chan struct{}
}

// Start starts a program and returns when its exec has succeeded. Otherwise the
// error says which step failed; code command_not_found or
// command_not_runnable when it was the exec. When the context ends before that,
// the process is killed; afterwards the context has no effect on it.
func (g *Guest) Start(ctx context.Context, cmd Command, s Streams) (*Process, error) {
	req, err := g.startRequest(cmd)
	if err != nil {
		return nil, err
	}
	req.Stdin = s.Stdin != nil
	p := newProcess(cmd)
	p.c, err = g.open(ctx, wire.Request{Op: wire.OpStart, Start: req}, p, shape{upload: req.Stdin, downloads: 2, arrived: s.Arrived})
	if err != nil {
		return nil, err
	}
	p.carryOutput(s)
	if err := p.awaitStart(ctx); err != nil {
		return nil, err
	}
	p.carryInput(s)
	return p, nil
}

func newProcess(cmd Command) *Process {
	p := &Process{
		terminal: cmd.Terminal != nil,
		started:  make(chan struct{}), exited: make(chan struct{}), done: make(chan struct{}),
	}
	p.parts.Store(3)
	return p
}

func (p *Process) carryOutput(s Streams) {
	go p.copyOut(wire.Stdout, s.Stdout)
	go p.copyOut(wire.Stderr, s.Stderr)
}

func (p *Process) carryInput(s Streams) {
	if s.Stdin != nil {
		go p.copyIn(s.Stdin)
	}
}

// awaitStart waits until the program runs. One that ran is a process, however soon
// after that the connection ended: what became of it is another question.
func (p *Process) awaitStart(ctx context.Context) error {
	select {
	case <-p.started:
		return nil
	case <-p.c.over:
	case <-ctx.Done():
		p.c.abandon()
		return context.Cause(ctx)
	}
	select {
	case <-p.started:
		return nil
	default:
		return p.c.result()
	}
}

// startRequest checks a command: what cannot be sent unchanged is refused.
func (g *Guest) startRequest(cmd Command) (*wire.StartRequest, error) {
	if len(cmd.Args) == 0 {
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "args", Message: "there is no command to start"}
	}
	for field, list := range map[string][]string{"args": cmd.Args, "env": cmd.Env, "dir": {cmd.Dir}} {
		for i, s := range list {
			if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
				return nil, &sandbox.Error{
					Code: sandbox.CodeSpecInvalid, Field: fmt.Sprintf("%s[%d]", field, i),
					Message: "is not valid UTF-8 or contains a NUL byte",
				}
			}
		}
	}
	req := &wire.StartRequest{
		Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, UID: cmd.UID, GID: cmd.GID, Rlimits: cmd.Rlimits,
		CPUs: cpuSet(cmd.CPUs), Terminal: cmd.Terminal,
	}
	if t := cmd.Terminal; t != nil && !t.Valid() {
		return nil, sizeError()
	}
	req.UID = cmp.Or(req.UID, g.hello.UID)
	req.GID = cmp.Or(req.GID, g.hello.GID)
	return req, nil
}

// Channel is the process's on the connection: a number that no other has or will have.
func (p *Process) Channel() uint32 { return p.c.id }

// PID returns the process's id inside the sandbox, as the agent says.
func (p *Process) PID() int { return p.pid }

// Exited is closed as soon as the process has ended, while its output may
// still come, and when the connection ends. ExitStatus then knows more.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// ExitStatus returns how the process ended. ok is false before that, and when
// the connection ended first.
func (p *Process) ExitStatus() (exit Exit, ok bool) {
	select {
	case <-p.exited:
		return p.exit, p.exit.Wall >= 0
	default:
		return Exit{}, false
	}
}

// Done is closed when the process has ended and its output has been written,
// or the connection has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for Done. The error is the context's or the connection's.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return Exit{}, context.Cause(ctx)
	}
	if err := p.c.result(); err != nil {
		return Exit{}, err
	}
	return p.exit, nil
}

// PipesHeld says whether another process still held the output after the end
// of this one, so that it was cut. Valid after Done.
func (p *Process) PipesHeld() bool {
	select {
	case <-p.done:
		return p.held
	default:
		return false
	}
}

// Signal sends a signal to the process, or to its process group. To a process
// that has ended it does nothing.
func (p *Process) Signal(sig syscall.Signal, group bool) error {
	if sig <= 0 || sig > maxSignal {
		return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "signal", Message: "no such signal"}
	}
	return p.control(wire.Control{Signal: int(sig), Group: group})
}

// Resize changes the size of the process's terminal, which its programs learn
// of by a signal. For a process that has ended it does nothing.
func (p *Process) Resize(cols, rows int) error {
	size := wire.TerminalSize{Cols: cols, Rows: rows}
	switch {
	case !p.terminal:
		return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Message: "the process has no terminal", Hint: "start it with one"}
	case !size.Valid():
		return sizeError()
	}
	return p.control(wire.Control{Resize: &size})
}

// Place says which processors of the host the process's first thread may use from
// now on, before it reads what is written to its stdin later. What it starts then
// has the same. For a process that has ended it does nothing.
func (p *Process) Place(cpus []int) error {
	return p.control(wire.Control{CPUs: cpuSet(cpus)})
}

// cpuSet is a set of processors as the kernel takes it.
func cpuSet(cpus []int) []byte {
	if len(cpus) == 0 {
		return nil
	}
	set := make([]byte, slices.Max(cpus)/64*8+8)
	for _, n := range cpus {
		set[n/8] |= 1 << (n % 8)
	}
	return set
}

func sizeError() error {
	return &sandbox.Error{
		Code: sandbox.CodeLimitInvalid, Field: "terminal",
		Message: fmt.Sprintf("columns and rows are outside 1 to %d", wire.MaxTerminal),
	}
}

// control asks the agent something about the process.
func (p *Process) control(c wire.Control) error {
	select {
	case <-p.c.over:
		return p.c.err
	default:
	}
	p.c.g.send(func(b []byte) []byte { return wire.AppendMessage(b, wire.KindControl, p.c.id, &c) })
	return nil
}

// event implements use.
func (p *Process) event(e wire.Event) error {
	switch {
	case e.Kind == wire.EventStarted && p.state == 0 && e.PID > 0:
		p.state, p.pid = 1, e.PID
		close(p.started)
		return nil
	case e.Kind == wire.EventExited && p.state == 1:
		if err := checkExit(e.Exit); err != nil {
			return err
		}
		p.state = 2
		p.exit = Exit{
			Code: e.Exit.Code, Signal: syscall.Signal(e.Exit.Signal),
			Wall: time.Duration(e.Exit.WallNS), CPU: time.Duration(e.Exit.CPUNS),
		}
		close(p.exited)
		return nil
	}
	return broken("an event out of order")
}

// closed implements use.
func (p *Process) closed(o wire.Outcome) error {
	if started := p.state > 0; started != (o.Error == nil) || p.state == 1 {
		return broken("a process that ends without an exit")
	}
	p.held = o.Held
	return nil
}

// finished implements use.
func (p *Process) finished() {
	if p.state < 2 {
		p.exit.Wall = -1 // nobody knows how it ended
		close(p.exited)
	}
	p.part()
}

// part is called when the channel or one of the outputs has ended.
func (p *Process) part() {
	if p.parts.Add(-1) == 0 {
		close(p.done)
	}
}

// copyOut writes what the process wrote.
func (p *Process) copyOut(stream uint8, w io.Writer) {
	defer p.part()
	inbox := p.c.download[stream]
	for b := inbox.Next(); b != nil; b = inbox.Next() {
		if w != nil {
			if _, err := w.Write(b); err != nil {
				w = nil
			}
		}
		p.c.received(stream)
	}
}

// copyIn sends the process its stdin. A reader that fails ends it there.
func (p *Process) copyIn(r io.Reader) {
	if _, err := p.c.pump(r); err != nil && !errors.Is(err, errSated) {
		p.c.sendEOF()
	}
}
