package fake

import (
	"io"
	"strings"
	"sync"
	"time"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

const sigKill = 9

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

	a      *agent
	c      *channel
	pid    int
	killed chan struct{}
	once   sync.Once
	signal int
	ended  chan struct{}
}

func newProcess(a *agent, c *channel, req *wire.StartRequest) *Process {
	p := &Process{
		Args: req.Args, Env: req.Env, Dir: req.Dir, Rlimits: req.Rlimits, Machine: a.m,
		Stdin: strings.NewReader(""), Stdout: c.outbound(wire.Stdout), Stderr: c.outbound(wire.Stderr),
		a: a, c: c, killed: make(chan struct{}), ended: make(chan struct{}),
	}
	if req.Stdin {
		p.Stdin = c.inbound()
	}
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
	p.a.message(wire.KindEvent, p.c.id, wire.Event{Kind: wire.EventStarted, PID: p.pid})
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
	p.a.message(wire.KindEvent, p.c.id, wire.Event{Kind: wire.EventExited, Exit: &exit})
	return wire.Outcome{Held: held}
}

// Builtin is what programs do by default, by their name: echo, cat, sleep,
// true, false; anything else exits with 127.
func Builtin(p *Process) Exit {
	name := p.Args[0]
	switch name[strings.LastIndexByte(name, '/')+1:] {
	case "echo":
		_, _ = io.WriteString(p.Stdout, strings.Join(p.Args[1:], " ")+"\n")
	case "cat":
		_, _ = io.Copy(p.Stdout, p.Stdin)
	case "sleep":
		p.Sleep(time.Hour)
	case "true":
	case "false":
		return Exit{Code: 1}
	default:
		_, _ = io.WriteString(p.Stderr, sandbox.SafeText(name, 80)+": not found\n")
		return Exit{Code: 127}
	}
	return Exit{}
}
