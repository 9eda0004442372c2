package zygote

import (
	"context"
	"encoding/json"
	"sync"
	"syscall"
	"time"

	"pinfold/sandbox"
)

// ForkTimeout bounds how long a fork may take, and how long a zygote that is to
// fork may be silent.
const ForkTimeout = 10 * time.Second

var (
	// ErrEnded says that a zygote has ended, and its children with it.
	ErrEnded = &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "the zygote from which interpreters are forked has ended"}

	errEarlyEnd = &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "the forked interpreter ended before it was ready"}
	errBusy     = &sandbox.Error{Code: sandbox.CodeResourceUnavailable, Message: "the zygote from which interpreters are forked has too much to do"}
	errStuck    = &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "the zygote from which interpreters are forked did not fork in time"}
)

// Conn carries packets with descriptors between the host and a zygote.
type Conn interface {
	// Send sends a packet. It fails when the zygote takes none for ForkTimeout.
	Send(b []byte, fds ...int) error
	// Receive reads a packet into b, and the descriptors that came with it, which are
	// the caller's. n is 0 where the packet was larger than b, or lost a descriptor. It
	// fails at the end of the connection.
	Receive(b []byte) (n int, fds []int, err error)
}

// Link is the host's end of the protocol with one zygote: it asks for children, and
// hands each answer to who waits for it. All methods are safe for concurrent use.
type Link struct {
	conn Conn
	kill func() // ends the zygote, and by that its children
	over chan struct{}

	mu       sync.Mutex
	last     int64
	children map[int64]*child
	pids     map[int64]int64 // of the children that were born, by their number in the zygote's namespace
	calls    []string        // the names of what the zygote calls, to say what failed
	heard    time.Time       // when the last packet came
	first    chan Packet     // the answer to the Setup
}

// child is one that was asked for and has not ended.
type child struct {
	answer chan answer // whether it is ready
	exited chan Exit
	born   bool
}

type answer struct {
	Packet
	fds []int
}

// NewLink returns the link to a zygote and begins to listen, until the connection ends.
// kill is called when the zygote breaks the protocol or is stuck.
func NewLink(conn Conn, kill func()) *Link {
	l := newLink(conn, kill)
	go l.listen()
	return l
}

func newLink(conn Conn, kill func()) *Link {
	return &Link{conn: conn, kill: kill, over: make(chan struct{}), children: map[int64]*child{}, pids: map[int64]int64{}, first: make(chan Packet, 1)}
}

// Over is closed when no answers come any more.
func (l *Link) Over() <-chan struct{} { return l.over }

// Load sends the first packet and waits until the zygote has loaded its modules. The
// error is an *UnfitError where it has not, or ErrEnded.
func (l *Link) Load(ctx context.Context, s Setup) error {
	b, err := json.Marshal(s)
	if err != nil {
		return sandbox.Errorf(sandbox.CodeInternal, "encoding a zygote's setup: %w", err)
	}
	if err := l.send(b); err != nil {
		return err
	}
	select {
	case p := <-l.first:
		return l.loaded(p)
	case <-l.over:
	case <-ctx.Done():
		return &UnfitError{Why: "it took too long", Load: true}
	}
	select {
	case p := <-l.first: // its last words
		return l.loaded(p)
	default:
		return ErrEnded
	}
}

// loaded is what came of loading the modules.
func (l *Link) loaded(p Packet) error {
	switch {
	case p.Unfit != "":
		return &UnfitError{Why: p.Unfit}
	case p.Failed != "" || !p.Loaded:
		return &UnfitError{Why: p.Failed, Load: true}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = p.Calls
	return nil
}

// Birth is a child that waits for its program.
type Birth struct {
	Number int64 // the link's
	PID    int   // in the machine
	Exited <-chan Exit
	FDs    []int // that came with Ready; the caller's
}

// Fork asks for a child and waits until it is ready. fds are those that the
// protocol wants. began is called with the child's number before the zygote is asked.
// After an error nobody waits for the child any more.
func (l *Link) Fork(ctx context.Context, fds []int, began func(number int64)) (Birth, error) {
	c := &child{answer: make(chan answer, 1), exited: make(chan Exit, 1)}
	number, err := l.register(c)
	if err != nil {
		return Birth{}, err
	}
	began(number)
	err = l.send(Request(number), fds...)
	var a answer
	if err == nil {
		a, err = l.await(ctx, c)
	}
	if err != nil {
		l.Abandon(number)
		select {
		case a := <-c.answer: // after Abandon no other comes
			closeAll(a.fds)
		default:
		}
		return Birth{}, err
	}
	return Birth{Number: number, PID: int(a.PID), Exited: c.exited, FDs: a.fds}, nil
}

// Owes says whether the zygote has yet to tell how a child ended.
func (l *Link) Owes(number int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.children[number] != nil
}

// Children is how many were asked for and have neither ended nor been abandoned.
func (l *Link) Children() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.children)
}

func (l *Link) register(c *child) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.over:
		return 0, ErrEnded
	default:
	}
	l.last++
	l.children[l.last] = c
	return l.last, nil
}

// Abandon forgets a child that nobody waits for.
func (l *Link) Abandon(number int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.children, number)
}

// await waits for a child. A zygote that answers nobody is ended, and its children
// with it; one that only has much to do is not.
func (l *Link) await(ctx context.Context, c *child) (answer, error) {
	timeout := time.NewTimer(ForkTimeout)
	defer timeout.Stop()
	select {
	case a := <-c.answer:
		return l.answered(a)
	case <-c.exited:
		select {
		case a := <-c.answer: // its last words
			return l.answered(a)
		case <-l.over:
			return answer{}, ErrEnded
		default:
			return answer{}, errEarlyEnd
		}
	case <-timeout.C:
		if l.busy() {
			return answer{}, errBusy
		}
		l.kill()
		return answer{}, errStuck
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// busy says whether the zygote has answered somebody within ForkTimeout.
func (l *Link) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.heard) < ForkTimeout
}

// answered is what came of a request.
func (l *Link) answered(a answer) (answer, error) {
	if a.Kind == Ready {
		return a, nil
	}
	closeAll(a.fds)
	l.mu.Lock()
	defer l.mu.Unlock()
	why := "it was killed"
	if a.Call > 0 && a.Call < int64(len(l.calls)) {
		why = sandbox.SafeText(l.calls[a.Call], 300) + ": " + a.Errno.Error()
	}
	return a, &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "cannot fork the interpreter: " + why}
}

// send sends a packet.
func (l *Link) send(b []byte, fds ...int) error {
	if err := l.conn.Send(b, fds...); err != nil {
		return &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "the zygote from which interpreters are forked does not answer: " + err.Error(), Err: err}
	}
	return nil
}

// listen hands out what the zygote and its children say.
func (l *Link) listen() {
	for b := make([]byte, maxPacket); ; {
		n, fds, err := l.conn.Receive(b)
		if err != nil {
			break
		}
		p, ok := decode(b[:n])
		if !ok || !l.take(p, fds) {
			closeAll(fds)
			l.kill() // it is not what we started any more
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.over)
	for _, c := range l.children {
		close(c.exited)
	}
	clear(l.children)
}

// take acts on a packet and says whether it made sense. If not, the descriptors
// are still the caller's.
func (l *Link) take(p Packet, fds []int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = time.Now()
	if len(fds) > 0 && p.Kind != Ready {
		return false
	}
	switch p.Kind {
	case Born:
		c := l.children[p.Child]
		if c == nil {
			return true // it was abandoned
		}
		if c.born {
			return false
		}
		c.born, l.pids[p.PID] = true, p.Child
	case Ended:
		l.ended(p)
	case Ready, Failed:
		c := l.children[p.Child]
		if c == nil {
			closeAll(fds)
			return true
		}
		select {
		case c.answer <- answer{p, fds}:
		default:
			return false
		}
	default:
		select {
		case l.first <- p:
		default:
			return false
		}
	}
	return true
}

// ended passes on how a child ended, to who has not abandoned it. The lock is held.
func (l *Link) ended(p Packet) {
	number := l.pids[p.PID]
	delete(l.pids, p.PID)
	if c := l.children[number]; c != nil {
		delete(l.children, number)
		c.exited <- p.Exit
		close(c.exited)
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = syscall.Close(fd)
	}
}
