package fake

import (
	"errors"
	"net"
	"sync"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// agent speaks the agent's half of the protocol for one machine.
type agent struct {
	m     *Machine
	conn  net.Conn
	hello wire.Hello

	send sync.Mutex // one frame at a time

	mu        sync.Mutex
	channels  map[uint32]*channel
	processes map[*Process]bool
	nextPID   int
}

func newAgent(m *Machine, conn net.Conn) *agent {
	return &agent{m: m, conn: conn, channels: map[uint32]*channel{}, processes: map[*Process]bool{}, nextPID: 2}
}

// serve answers the host until the connection ends, and then ends all programs.
func (a *agent) serve() {
	defer a.stop()
	if !a.message(wire.KindHello, 0, &wire.Hello{Version: wire.Version, Agent: "fake"}) {
		return
	}
	frames := wire.NewReader(a.conn, wire.Host)
	first, err := frames.Next()
	if err != nil || first.Kind != wire.KindHello || wire.Decode(first.Payload, &a.hello) != nil {
		return
	}
	for {
		f, err := frames.Next()
		a.m.stand()
		if err != nil || a.handle(f) != nil {
			return
		}
	}
}

// stop ends everything; nothing is sent any more.
func (a *agent) stop() {
	_ = a.conn.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.channels {
		c.close()
	}
	for p := range a.processes {
		p.kill(sigKill)
	}
}

func (a *agent) handle(f wire.Frame) error {
	if f.Kind == wire.KindOpen {
		return a.open(f)
	}
	a.mu.Lock()
	c := a.channels[f.Channel]
	a.mu.Unlock()
	if c == nil { // over
		return nil
	}
	switch f.Kind {
	case wire.KindClose:
		c.close()
		if c.process != nil {
			c.process.kill(sigKill)
		}
		return nil
	case wire.KindControl:
		var m wire.Control
		if err := wire.Decode(f.Payload, &m); err != nil {
			return err
		}
		if c.process != nil && m.Signal != 0 {
			c.process.kill(m.Signal)
		}
		if c.process != nil && m.Resize != nil {
			c.process.resize(*m.Resize)
		}
		return nil
	}
	return c.flow(f)
}

// open starts one operation.
func (a *agent) open(f wire.Frame) error {
	var req wire.Request
	if err := wire.Decode(f.Payload, &req); err != nil {
		return err
	}
	c := newChannel(a, f.Channel, req.Op)
	if req.Op == wire.OpStart && req.Start != nil {
		c.process = newProcess(a, c, req.Start)
	}
	a.mu.Lock()
	a.channels[c.id] = c
	a.mu.Unlock()
	a.m.agent.Go(func() { c.finish(c.serve(req)) })
	return nil
}

// serve does one operation.
func (c *channel) serve(req wire.Request) wire.Outcome {
	files := c.a.m.Files
	switch req.Op {
	case wire.OpStart:
		return c.process.run()
	case wire.OpKillAll:
		c.a.killAll()
		return wire.Outcome{}
	case wire.OpWrite:
		return files.write(req.File, c.inbound())
	case wire.OpRead:
		return files.read(req.File, c.outbound(wire.Stdout), c.a.m.script.Read)
	case wire.OpStat:
		return files.stat(req.File)
	case wire.OpPut:
		for _, f := range req.Put.Files {
			files.set(f.Path, file{kind: wire.TypeFile, mode: f.Mode, content: f.Content})
		}
		return wire.Outcome{Size: int64(len(req.Put.Files))}
	case wire.OpMkdir:
		return files.mkdir(req.File)
	case wire.OpRemove:
		return files.remove(req.File)
	case wire.OpGlob:
		return c.glob(req.Glob)
	case wire.OpList:
		return c.list(req.List)
	case wire.OpMove:
		return files.move(req.Move)
	case wire.OpRestore:
		return files.restore(req.Restore, c.inbound())
	case wire.OpWatch:
		return c.watch(req.Watch)
	case wire.OpDial:
		return c.dial(req.Dial)
	}
	return failed(sandbox.CodeInternal, "unknown operation")
}

// eventFiles is how many files fit into one event with room to spare.
const eventFiles = 100

func (c *channel) glob(req *wire.GlobRequest) wire.Outcome {
	found, more := c.a.m.Files.glob(req)
	if change := c.a.m.script.Glob; change != nil {
		found = change(found)
	}
	for len(found) > 0 {
		n := min(len(found), eventFiles)
		c.a.message(wire.KindEvent, c.id, &wire.Event{Kind: wire.EventFiles, Files: found[:n]})
		found = found[n:]
	}
	return wire.Outcome{More: more}
}

// killAll ends every program and waits until they are gone.
func (a *agent) killAll() {
	if wait := a.m.script.KillAll; wait != nil {
		wait(a.m.dead)
	}
	a.mu.Lock()
	var all []*Process
	for p := range a.processes {
		all = append(all, p)
	}
	a.mu.Unlock()
	for _, p := range all {
		p.kill(sigKill)
		select {
		case <-p.ended:
		case <-a.m.dead:
		}
	}
}

// message sends a control payload. false: the connection has ended.
func (a *agent) message(kind wire.Kind, channel uint32, m wire.Message) bool {
	return a.frame(wire.AppendMessage(nil, kind, channel, m))
}

func (a *agent) frame(b []byte) bool {
	a.m.stand()
	a.send.Lock()
	defer a.send.Unlock()
	_, err := a.conn.Write(b)
	return err == nil
}

func failed(code, message string) wire.Outcome {
	return wire.Outcome{Error: &wire.Fault{Code: code, Message: message}}
}

var errClosed = errors.New("nobody reads this any more")
