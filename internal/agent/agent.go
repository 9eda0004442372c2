//go:build linux

package agent

import (
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
)

// process is what the agent has once, whichever host it serves.
type process struct {
	build string
	root  int // descriptor of "/"
	reap  *reaper
	// unbound are the capabilities that no process here can get any more.
	unbound   []int
	sealModes bool
	pieces    sync.Pool // of *[]byte, each a data frame of chunk bytes
}

// agent is the state of one that serves a host.
type agent struct {
	*process
	conn  io.ReadWriter
	hello wire.Hello   // the host's
	dials atomic.Int32 // connections under way
	doors doors
	watch watcher

	send sync.Mutex // one frame at a time

	mu       sync.Mutex
	channels map[uint32]*channel
	last     uint32 // the highest channel id so far
}

// Options are what the agent's arguments say.
type Options struct{ SealModes, Alone bool }

// Run serves the host on a connected stream socket until the connection ends
// (io.EOF when the host has closed it) or the host breaks the protocol. The
// caller then exits. build is the
// agent's build version, for the host's records.
func Run(fd int, build string, o Options) error {
	p, conn, err := begin(fd, build, o)
	if err != nil {
		return err
	}
	return p.serving(conn).serve()
}

// Announce is the agent's argument where nobody can see it become a program, since a kernel
// of the sandbox's own makes it one: it says AnnounceDone over its connection before anything
// else.
const Announce = "announce"

// AnnounceDone is what it says.
const AnnounceDone = 'k'

// RunAnnounced says that the agent is there, and runs as Run does.
func RunAnnounced(fd int, build string, o Options) error {
	if _, errno := rawIO(unix.SYS_WRITE, uintptr(fd), []byte{AnnounceDone}); errno != 0 { //nolint:gosec // a descriptor
		return errno
	}
	return Run(fd, build, o)
}

// begin makes this process an agent, whose descriptor to the host is fd.
func begin(fd int, build string, o Options) (*process, *pollFile, error) {
	if err := harden(); err != nil {
		return nil, nil, err
	}
	oneThread()
	unix.CloseOnExec(fd)
	f, err := newPollFile(fd, "host")
	if err != nil {
		return nil, nil, err
	}
	p := &process{build: build, sealModes: o.SealModes, unbound: unbound()}
	p.pieces.New = func() any { b := make([]byte, wire.DataHeader+chunk); return &b }
	if p.reap, err = newReaper(); err != nil {
		return nil, nil, err
	}
	if o.Alone {
		p.reap.alone = true
		if err := adoptOrphans(); err != nil {
			return nil, nil, err
		}
	}
	p.root, err = sysOpen("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return p, f, err
}

// serving is the agent for one host.
func (p *process) serving(conn io.ReadWriter) *agent {
	a := &agent{process: p, conn: conn, channels: map[uint32]*channel{}}
	a.watch.a = a
	return a
}

// serve serves the host until its connection ends.
func (a *agent) serve() error {
	a.message(wire.KindHello, 0, &wire.Hello{Version: wire.Version, Agent: a.build})
	frames := wire.NewReader(a.conn, wire.Host)
	if err := a.greet(frames); err != nil {
		return err
	}
	a.reap.begin()
	for {
		f, err := frames.Next()
		if err != nil {
			return err
		}
		if err := a.handle(f); err != nil {
			return err
		}
	}
}

// greet reads the host's hello.
func (a *agent) greet(frames *wire.Reader) error {
	f, err := frames.Next()
	if err != nil {
		return err
	}
	if f.Kind != wire.KindHello {
		return broken("the first frame is not hello")
	}
	if err := wire.Decode(f.Payload, &a.hello); err != nil {
		return err
	}
	if a.hello.Version != wire.Version {
		return broken("the host speaks another version")
	}
	return nil
}

func broken(what string) error { return &wire.Violation{What: what} }

// handle acts on one frame. It never blocks on anything but the connection.
func (a *agent) handle(f wire.Frame) error {
	if f.Kind == wire.KindOpen {
		return a.open(f)
	}
	a.mu.Lock()
	c, known := a.channels[f.Channel], f.Channel <= a.last
	a.mu.Unlock()
	switch {
	case f.Kind == wire.KindHello:
		return broken("a second hello")
	case !known:
		return broken("a frame for a channel that was never opened")
	case c == nil: // over; the host did not know yet
		return nil
	}
	switch f.Kind {
	case wire.KindClose:
		c.abandon()
	case wire.KindControl:
		var m wire.Control
		if err := wire.Decode(f.Payload, &m); err != nil {
			return err
		}
		c.signal(unix.Signal(m.Signal), m.Group)
		c.resize(m.Resize)
		c.place(m.CPUs)
	default:
		return c.flow(f)
	}
	return nil
}

// open starts one operation.
func (a *agent) open(f wire.Frame) error {
	var req wire.Request
	if err := wire.Decode(f.Payload, &req); err != nil {
		return err
	}
	serve := operationFor(req.Op)
	if serve == nil || !serve.complete(req) {
		return broken("an unknown or incomplete request")
	}
	c := newChannel(a, f.Channel, req.Op, serve.in(req), serve.out)
	a.mu.Lock()
	rising, full := f.Channel > a.last, len(a.channels) >= wire.MaxChannels
	if rising {
		a.last = f.Channel
	}
	if rising && !full {
		a.channels[c.id] = c
	}
	a.mu.Unlock()
	switch {
	case !rising:
		return broken("a channel opened twice")
	case full:
		go c.finish(failed(faultBusy()))
	default:
		go func() { c.finish(serve.run(a, c, req)) }()
	}
	return nil
}

// operation is what the agent does for one Op.
type operation struct {
	op       wire.Op
	run      func(*agent, *channel, wire.Request) wire.Outcome
	complete func(wire.Request) bool // the request has its arguments
	in       func(wire.Request) bool // the host may send stream 0
	out      int                     // number of streams to the host
}

// operations is not a map, which would have to be made at every start.
var operations = []operation{
	{
		wire.OpStart,
		(*agent).start, func(r wire.Request) bool { return r.Start != nil && len(r.Start.Args) > 0 },
		func(r wire.Request) bool { return r.Start.Stdin }, 2,
	},
	{wire.OpWrite, (*agent).write, hasFile, always, 0},
	{wire.OpRead, (*agent).read, hasFile, never, 1},
	{wire.OpStat, (*agent).stat, hasFile, never, 0},
	{wire.OpMkdir, (*agent).mkdir, hasFile, never, 0},
	{wire.OpPut, (*agent).put, func(r wire.Request) bool { return r.Put != nil }, never, 0},
	{wire.OpRemove, (*agent).remove, hasFile, never, 0},
	{wire.OpGlob, (*agent).glob, func(r wire.Request) bool { return r.Glob != nil }, never, 0},
	{wire.OpList, (*agent).list, func(r wire.Request) bool { return r.List != nil }, never, 0},
	{wire.OpMove, (*agent).move, func(r wire.Request) bool { return r.Move != nil }, never, 0},
	{wire.OpRestore, (*agent).restore, func(r wire.Request) bool { return r.Restore != nil }, always, 0},
	{wire.OpWatch, (*agent).watchDir, func(r wire.Request) bool { return r.Watch != nil }, never, 1},
	{wire.OpDial, (*agent).dial, func(r wire.Request) bool { return r.Dial != nil }, always, 1},
	{wire.OpDoors, (*agent).openDoors, func(r wire.Request) bool { return r.Doors != nil }, always, 1},
	{wire.OpAccept, (*agent).accept, func(r wire.Request) bool { return r.Accept != nil }, always, 1},
	{wire.OpKillAll, (*agent).killAll, always, never, 0},
}

// operationFor returns the operation that a request names, or nil.
func operationFor(op wire.Op) *operation {
	for i := range operations {
		if operations[i].op == op {
			return &operations[i]
		}
	}
	return nil
}

func hasFile(r wire.Request) bool { return r.File != nil }
func always(wire.Request) bool    { return true }
func never(wire.Request) bool     { return false }

// message sends a control payload. An error means that the connection is gone,
// which the reading side notices too and ends the agent.
func (a *agent) message(kind wire.Kind, channel uint32, m wire.Message) {
	a.frame(wire.AppendMessage(nil, kind, channel, m))
}

// frame sends a whole frame.
func (a *agent) frame(b []byte) {
	a.send.Lock()
	defer a.send.Unlock()
	_, _ = a.conn.Write(b)
}
