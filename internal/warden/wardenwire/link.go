package wardenwire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// ErrOver is the answer when the link has ended.
var ErrOver = errors.New("the link to the machine's first process has ended")

// Link is the host's end. It is safe for concurrent use.
type Link struct {
	conn  io.WriteCloser
	hello chan Hello
	death chan driver.Death
	over  chan struct{}

	send sync.Mutex // one line at a time

	mu      sync.Mutex
	last    int64
	waiting map[int64]chan Reply
	err     error // why it is over
}

// NewLink speaks over a connection, which it closes when it is over.
func NewLink(conn io.ReadWriteCloser) *Link {
	l := &Link{
		conn: conn, waiting: map[int64]chan Reply{}, over: make(chan struct{}),
		hello: make(chan Hello, 1), death: make(chan driver.Death, 1),
	}
	go l.listen(conn)
	return l
}

// Hello waits for the warden's first message.
func (l *Link) Hello(ctx context.Context) (Hello, error) {
	select {
	case h := <-l.hello:
		if h.Version != Version {
			return h, fmt.Errorf("the machine's first process speaks version %d, not %d", h.Version, Version)
		}
		return h, nil
	case <-l.over:
		return Hello{}, l.Err()
	case <-ctx.Done():
		return Hello{}, context.Cause(ctx)
	}
}

// Death receives the sandbox's, at most once.
func (l *Link) Death() <-chan driver.Death { return l.death }

// Over is closed when nothing more comes.
func (l *Link) Over() <-chan struct{} { return l.over }

// Err says why the link is over.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Ask asks and waits for the answer. An answer that says what went wrong is an error.
func (l *Link) Ask(ctx context.Context, r Request) (Reply, error) {
	answer := make(chan Reply, 1)
	l.mu.Lock()
	l.last++
	r.ID = l.last
	over := l.err
	if over == nil {
		l.waiting[r.ID] = answer
	}
	l.mu.Unlock()
	if over != nil {
		return Reply{}, over
	}
	defer l.forget(r.ID)
	line, err := json.Marshal(r)
	if err != nil || len(line) >= MaxRequest {
		return Reply{}, fmt.Errorf("a request of %d bytes: %w", len(line), errors.Join(err, errors.ErrUnsupported))
	}
	if err := l.say(append(line, '\n')); err != nil {
		return Reply{}, fmt.Errorf("%w: %w", ErrOver, err)
	}
	select {
	case a := <-answer:
		switch {
		case a.Ended:
			return Reply{}, driver.ErrEnded
		case a.Error != nil:
			return Reply{}, tamed(a.Error)
		}
		return a, nil
	case <-l.over:
		return Reply{}, l.Err()
	case <-ctx.Done():
		return Reply{}, context.Cause(ctx)
	}
}

// tamed is an error as a machine may say it: text of bounded length.
func tamed(e *sandbox.Error) *sandbox.Error {
	return (&sandbox.Error{Code: sandbox.SafeText(e.Code, 60), Message: sandbox.SafeText(e.Message, 2000)}).
		WithHint(sandbox.SafeText(e.Hint, 1000))
}

func (l *Link) say(line []byte) error {
	l.send.Lock()
	defer l.send.Unlock()
	_, err := l.conn.Write(line)
	return err
}

func (l *Link) forget(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, id)
}

// Close ends the link.
func (l *Link) Close() { _ = l.conn.Close() }

// listen reads what the warden says until it ends or makes no sense.
func (l *Link) listen(from io.Reader) {
	in := bufio.NewReaderSize(from, MaxLine)
	err := ErrOver
	for {
		line, readErr := in.ReadSlice('\n')
		if errors.Is(readErr, bufio.ErrBufferFull) {
			err = fmt.Errorf("it said more than %d bytes in a line", MaxLine)
		}
		if readErr != nil {
			break
		}
		var r Reply
		if jsonErr := json.Unmarshal(line, &r); jsonErr != nil {
			err = fmt.Errorf("it said what is no message: %q", sandbox.SafeText(string(line[:min(len(line), 100)]), 100))
			break
		}
		l.take(r)
	}
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
	_ = l.conn.Close()
	close(l.over)
}

// take passes a message on. What nobody waits for is dropped.
func (l *Link) take(r Reply) {
	switch {
	case r.Hello != nil:
		select {
		case l.hello <- *r.Hello:
		default:
		}
	case r.Death != nil:
		select {
		case l.death <- *r.Death:
		default:
		}
	default:
		l.mu.Lock()
		answer := l.waiting[r.ID]
		delete(l.waiting, r.ID)
		l.mu.Unlock()
		if answer != nil {
			answer <- r
		}
	}
}
