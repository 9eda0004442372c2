package fake

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"time"

	"pinfold/internal/wire"
)

const (
	sigInt    = 2
	sigKill   = 9
	interrupt = 0x03 // what ^C types
)

// Exit is how a program ends: with a code, or by a signal.
type Exit struct{ Code, Signal int }

// Process is a running program, as its script sees it.
type Process struct {
	Args, Env []string
	Dir       string
	Rlimits   []wire.Rlimit
	Stdin     io.Reader // at its end at once when there is none
	Stdout    io.Writer // writing fails when the program has been killed
	Stderr    io.Writer
	Machine   *Machine

	// Killed is closed when the program is killed. It is gone by then, whatever
	// its script goes on to do; the script should return soon.
	Killed <-chan struct{}

	// Held says that something the program left behind holds its output.
	Held bool

	// Terminal says that the program has one: what is typed is shown as it is
	// read, ^C kills, and Stderr is Stdout. Resized receives after a change of
	// Size, and forgets all but the latest.
	Terminal bool
	Resized  <-chan struct{}

	a      *agent
	c      *channel
	pid    int
	killed chan struct{}
	once   sync.Once
	signal int
	ended  chan struct{}

	mu      sync.Mutex
	size    wire.TerminalSize
	resized chan struct{}
}

func newProcess(a *agent, c *channel, req *wire.StartRequest) *Process {
	p := &Process{
		Args: req.Args, Env: req.Env, Dir: req.Dir, Rlimits: req.Rlimits, Machine: a.m,
		Stdin: strings.NewReader(""), Stdout: c.outbound(wire.Stdout), Stderr: c.outbound(wire.Stderr),
		a: a, c: c, killed: make(chan struct{}), ended: make(chan struct{}), resized: make(chan struct{}, 1),
	}
	if req.Stdin {
		p.Stdin = c.inbound()
	}
	if req.Terminal != nil {
		p.Terminal, p.size, p.Stderr = true, *req.Terminal, p.Stdout
		p.Stdin = keyboard{p, p.Stdin}
	}
	p.Resized = p.resized
	p.Killed = p.killed
	a.mu.Lock()
	defer a.mu.Unlock()
	p.pid = a.nextPID
	a.nextPID++
	a.processes[p] = true
	return p
}

// kill ends the program by a signal, once.
func (p *Process) kill(signal int) {
	p.once.Do(func() {
		p.signal = signal
		close(p.killed)
	})
}

// Size is the terminal's size now.
func (p *Process) Size() wire.TerminalSize {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

func (p *Process) resize(size wire.TerminalSize) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = size
	select {
	case p.resized <- struct{}{}:
	default:
	}
}

// keyboard is a terminal's input: what is typed is shown, and ^C kills.
type keyboard struct {
	p *Process
	r io.Reader
}

func (k keyboard) Read(b []byte) (int, error) {
	n, err := k.r.Read(b)
	if bytes.IndexByte(b[:n], interrupt) >= 0 {
		k.p.kill(sigInt)
	}
	_, _ = k.p.Stdout.Write(b[:n]) // fails once it has been killed
	return n, err
}

// Sleep waits; false says that the program was killed meanwhile.
func (p *Process) Sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.killed:
		return false
	case <-timer.C:
		return true
	}
}

// grace is how long the output of a program is read after its end, when something
// holds it.
const grace = 250 * time.Millisecond

// run is the life of the process on its channel.
func (p *Process) run() wire.Outcome {
	defer func() {
		p.a.mu.Lock()
		delete(p.a.processes, p)
		p.a.mu.Unlock()
	}()
	program := p.Machine.script.Program
	if program == nil {
		program = Builtin
	}
	if starting := p.Machine.script.Starting; starting != nil {
		starting(p.Machine)
	}
	p.a.message(wire.KindEvent, p.c.id, &wire.Event{Kind: wire.EventStarted, PID: p.pid})
	begin := time.Now()
	returned := make(chan Exit, 1)
	p.a.m.agent.Go(func() { returned <- program(p) })
	var e Exit
	held := false
	select {
	case e = <-returned:
		held = p.Held
	case <-p.killed:
		e = Exit{Signal: p.signal}
	}
	close(p.ended)
	exit := wire.Exit{Code: e.Code, Signal: e.Signal, WallNS: time.Since(begin).Nanoseconds()}
	p.a.message(wire.KindEvent, p.c.id, &wire.Event{Kind: wire.EventExited, Exit: &exit})
	if held { // the agent waits as long for the end of the output
		select {
		case <-time.After(grace):
		case <-p.Machine.dead:
		}
	}
	return wire.Outcome{Held: held}
}
