package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Moment is what the host knows of an agent's connection at one moment, at which the agent's
// machine stands still: enough to go on with a copy of it, and of the processes that run.
type Moment struct {
	Build     string          `json:"build"`
	Last      uint32          `json:"last"` // the last channel
	Rest      []byte          `json:"rest"` // the beginning of a frame, of which the agent is to send the rest
	Processes []ProcessMoment `json:"processes"`
}

// ProcessMoment is a process at that moment. What the host had been sent of its output by
// then is no part of it.
type ProcessMoment struct {
	Channel   uint32  `json:"channel"`
	PID       int     `json:"pid"`
	Terminal  bool    `json:"terminal,omitempty"`
	Exit      *Exit   `json:"exit,omitempty"`  // it has ended, and its output has not
	Owed      [2]int  `json:"owed"`            // bytes of stdout and stderr that are to be granted
	Ended     [2]bool `json:"ended"`           // which of these has
	Input     bool    `json:"input,omitempty"` // it has a stdin that it has not closed
	Stdin     bool    `json:"stdin,omitempty"` // and whose end was not sent
	StdinLeft int     `json:"stdin_left"`      // bytes that may be sent to it
}

// Held is what was sent until nothing more was.
type Held struct {
	Release func() // sends what was held back, and goes on; may be called again

	granted map[uint32][wire.Streams]int
	sent    map[uint32]int
	over    map[uint32]bool
}

// Hold sends nothing any more until Release is called, and returns when all that was sent
// before has been read by the agent. The path is of any directory in the sandbox.
func (g *Guest) Hold(ctx context.Context, path string) (h *Held, err error) {
	h = &Held{granted: map[uint32][wire.Streams]int{}, sent: map[uint32]int{}, over: map[uint32]bool{}}
	payload := wire.Encode(&wire.Request{Op: wire.OpStat, File: &wire.FileRequest{Path: path}})
	c := g.newChannel(plain{}, shape{prompt: true}, wire.OpStat)
	h.Release = sync.OnceFunc(func() {
		if !g.out.release() {
			g.end(gone(broken("the agent does not read")))
		}
	})
	err = g.registerBy(c, payload, func(f func([]byte) []byte) bool {
		return g.out.addLast(func(b []byte) []byte {
			for id, one := range g.channels { // g.mu is held
				h.granted[id], h.sent[id], h.over[id] = one.moved.granted, one.moved.sent, one.moved.over
			}
			return f(b)
		})
	})
	if err == nil {
		_, err = c.wait(ctx)
	}
	if err != nil {
		h.Release()
		return nil, err
	}
	return h, nil
}

// Moment returns what there is at this moment. Held is what Hold has returned, and the
// machine stands still. It is of code conflict while anything else than processes goes on.
func (g *Guest) Moment(ctx context.Context, held *Held) (Moment, error) {
	goOn, err := g.tap.still(ctx, g.done)
	if err != nil {
		return Moment{}, err
	}
	defer goOn()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return Moment{}, g.err
	}
	m := Moment{Build: g.build, Last: g.last, Rest: g.frames.Rest()}
	if m.Last > math.MaxUint32/2 {
		return m, sandbox.Errorf(sandbox.CodeConflict, "too much was asked of the sandbox")
	}
	for id, c := range g.channels {
		granted, known := held.granted[id]
		if !known { // asked for since
			continue
		}
		p, ok := c.use.(*Process)
		if !ok || p.state == 0 || c.abandoned.Load() {
			return m, (&sandbox.Error{Code: sandbox.CodeConflict, Message: "operations of the sandbox are under way, which cannot go on in another one"}).
				WithHint("wait until files are transferred, connections to its ports are closed and watches have ended, and try again")
		}
		one := ProcessMoment{Channel: id, PID: p.pid, Terminal: p.terminal}
		if p.state == 2 {
			one.Exit = &p.exit
		}
		for i := range one.Owed {
			stream := wire.Stdout + uint8(i) //nolint:gosec // 1 or 2
			one.Owed[i], one.Ended[i] = c.moved.received[stream]-granted[stream], c.download[stream].Ended()
		}
		one.Input = c.upload != nil && !c.sated
		if one.Input && !held.over[id] {
			one.Stdin, one.StdinLeft = true, wire.UploadWindow(wire.OpStart)-held.sent[id]+c.moved.allowed
		}
		m.Processes = append(m.Processes, one)
	}
	slices.SortFunc(m.Processes, func(a, b ProcessMoment) int { return int(int64(a.Channel) - int64(b.Channel)) })
	return m, nil
}

// Continued takes over the connection to a copy of an agent, and the copies of its processes,
// of which each gets the streams that are returned for it. Stdin must not be nil where it has
// one.
func Continued(conn Link, hello wire.Hello, at Moment, streams func(ProcessMoment) Streams) (*Guest, []*Process) {
	g := newGuest(conn, hello)
	g.build, g.last = at.Build, at.Last
	g.frames = wire.NewReader(io.MultiReader(bytes.NewReader(at.Rest), g.tap), wire.Agent)
	all, given := make([]*Process, len(at.Processes)), make([]Streams, len(at.Processes))
	for i, was := range at.Processes {
		given[i] = streams(was)
		all[i] = g.continued(was, given[i])
	}
	g.reading.Go(func() { g.read(g.frames) })
	for i, was := range at.Processes {
		for j, n := range was.Owed {
			if n > 0 && !was.Ended[j] {
				all[i].c.grant(wire.Stdout+uint8(j), n) //nolint:gosec // 1 or 2
			}
		}
		all[i].carryOutput(given[i])
		if was.Stdin {
			all[i].carryInput(given[i])
		}
	}
	return g, all
}

// continued is the copy of a process.
func (g *Guest) continued(was ProcessMoment, s Streams) *Process {
	p := newProcess(Command{})
	p.pid, p.terminal, p.state = was.PID, was.Terminal, 1
	close(p.started)
	if was.Exit != nil {
		p.state, p.exit = 2, *was.Exit
		close(p.exited)
	}
	p.c = g.newChannel(p, shape{upload: was.Input, downloads: 2, arrived: s.Arrived}, wire.OpStart)
	p.c.id = was.Channel
	switch {
	case was.Stdin:
		p.c.upload = wire.NewCreditOf(wire.UploadWindow(wire.OpStart), was.StdinLeft)
		p.c.moved.sent = wire.UploadWindow(wire.OpStart) - was.StdinLeft
	case was.Input: // the agent may still be at what came before the end
		p.c.upload.Close()
	}
	for i, n := range was.Owed {
		p.c.moved.received[1+i] = n
		if was.Ended[i] {
			p.c.download[1+i].Finish()
		}
	}
	g.channels[p.c.id] = p.c
	return p
}

// tap is what is read of a connection. It can stop between two reads, when nothing comes.
type tap struct {
	conn Link

	mu    sync.Mutex
	asked int   // how often that was asked for
	stop  *stop // that is asked for; nil: none

	known int // of asked; the reading loop's
}

// stop is one of a tap.
type stop struct {
	stands chan struct{} // closed by the reading loop when it stands
	goOn   chan struct{} // closed when it may go on
}

// quiet is for how long nothing must come of a machine that stands still: what it has said is
// in the socket already.
const quiet = 20 * time.Millisecond

// past is a deadline that ends what waits at once.
var past = time.Unix(1, 0)

// Read implements io.Reader.
func (t *tap) Read(b []byte) (int, error) {
	for {
		n, err := t.conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		asked, ours := t.interrupted()
		switch {
		case !ours: // the deadline is somebody else's
			return n, err
		case asked == nil: // it was given up
			continue
		}
		n, err = t.conn.Read(b) // something may be there, all the same
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.setDeadline(asked, past) // and once more, after this
			return n, err
		}
		close(asked.stands)
		<-asked.goOn
	}
}

// interrupted says whether a read that has ended was ended by still, and for what, if it still
// is for that.
func (t *tap) interrupted() (asked *stop, ours bool) {
	t.mu.Lock()
	ours = t.asked != t.known || t.stop != nil
	asked, t.known = t.stop, t.asked
	t.mu.Unlock()
	if asked != nil {
		t.setDeadline(asked, time.Now().Add(quiet))
	}
	return asked, ours
}

// setDeadline sets the connection's while that stop is asked for.
func (t *tap) setDeadline(of *stop, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop == of {
		_ = t.conn.SetDeadline(at) // a connection that has ended says so when it is read
	}
}

// still returns when the reading loop stands and all that came has been acted on. It is
// called once at a time, and nothing may be written until goOn has been called.
func (t *tap) still(ctx context.Context, over <-chan struct{}) (goOn func(), err error) {
	asked := &stop{make(chan struct{}), make(chan struct{})}
	t.mu.Lock()
	t.stop = asked
	t.asked++
	err = t.conn.SetDeadline(past)
	t.mu.Unlock()
	goOn = sync.OnceFunc(func() {
		t.setDeadline(asked, time.Time{})
		t.mu.Lock()
		t.stop = nil
		t.mu.Unlock()
		close(asked.goOn)
	})
	if err == nil {
		select {
		case <-asked.stands:
			return goOn, nil
		case <-over:
			err = ErrGone
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	goOn()
	return nil, err
}
