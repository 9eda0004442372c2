package resume

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// within fails when f takes too long.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s does not return", what)
	}
}

// The greeting of a connection that the host has given up may be read after that of a
// later one. It changes nothing.
func TestLateGreeting(t *testing.T) {
	a := listen(t, Secret{11})
	host, guest := a.both(t, nil)
	if _, err := guest.Write(make([]byte, 2*ackEvery)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = guest.Read(make([]byte, 1)) }()
	if _, err := io.CopyN(io.Discard, host, 2*ackEvery); err != nil {
		t.Fatal(err)
	}
	within(t, "the acknowledgement", func() {
		for guest.length() == 2*ackEvery {
			time.Sleep(time.Millisecond)
		}
	})
	guest.mu.Lock()
	epoch := guest.epoch
	guest.mu.Unlock()
	for _, kind := range []byte{kindBegin, kindResume} {
		conn, err := a.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := greet(conn, a.secret, kind, guest.session, 0); !errors.Is(err, io.EOF) {
			t.Errorf("a late connection is answered: %v", err)
		}
	}
	guest.mu.Lock()
	defer guest.mu.Unlock()
	if guest.ended != nil || guest.epoch != epoch {
		t.Errorf("a late connection has changed the stream: %v", guest.ended)
	}
}

// The greeting of a host that has died may be read after that of its successor, which
// came later. It does not take the agent over.
func TestGreetingOfADeadHost(t *testing.T) {
	a := listen(t, Secret{13})
	dead, agentsEnd := net.Pipe()
	a.Accept(agentsEnd)
	host, guest := a.both(t, nil)
	if _, err := greet(dead, a.secret, kindBegin, [sessionSize]byte{1}, 0); !errors.Is(err, errUnknown) {
		t.Errorf("the dead host is answered: %v", err)
	}
	carries(t, host, guest)
	successor, next := a.both(t, nil)
	carries(t, successor, next)
}

// A stream that the agent ends while there is no connection ends for the host, too.
func TestClosedWhileBroken(t *testing.T) {
	a := listen(t, Secret{12})
	var last atomic.Pointer[net.Conn]
	hold := make(chan struct{})
	var dials atomic.Int64
	host, err := Dial(testContext(t), a.secret, nil, func(ctx context.Context) (io.ReadWriteCloser, error) {
		if dials.Add(1) > 1 {
			<-hold
		}
		conn, err := a.dial(ctx)
		if c, ok := conn.(net.Conn); ok {
			last.Store(&c)
		}
		return conn, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	guest := a.Next()
	carries(t, host, guest)
	_ = (*last.Load()).Close()
	within(t, "the agent", func() {
		buf := make([]byte, 1)
		go func() { _, _ = guest.Read(buf) }()
		for connected := true; connected; time.Sleep(time.Millisecond) {
			guest.mu.Lock()
			connected = guest.conn != nil
			guest.mu.Unlock()
		}
	})
	_ = guest.Close()
	close(hold)
	within(t, "a host's Read", func() {
		if _, err := host.Read(make([]byte, 1)); !errors.Is(err, errUnknown) {
			t.Errorf("%v", err)
		}
	})
}

// A host whose agent does not keep to the protocol when it goes on ends the stream, and
// does not connect for ever.
func TestGreetingViolations(t *testing.T) {
	for name, second := range map[string][]byte{
		"an unknown status":   answer(9, 0),
		"what was never sent": answer(statusGo, 1<<60),
	} {
		t.Run(name, func(t *testing.T) {
			var dials atomic.Int64
			host, err := Dial(testContext(t), Secret{13}, nil, func(context.Context) (io.ReadWriteCloser, error) {
				here, there := net.Pipe()
				n := dials.Add(1)
				go func() {
					_, _ = io.ReadFull(there, make([]byte, helloSize))
					if n == 1 {
						_, _ = there.Write(answer(statusGo, 0))
					} else {
						_, _ = there.Write(second)
					}
					_ = there.Close()
				}()
				return here, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			within(t, "Read", func() {
				if _, err := host.Read(make([]byte, 1)); !errors.Is(err, errViolation) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// stuck is a connection that takes half of a piece and then nothing until a deadline.
type stuck struct {
	mu       sync.Mutex
	late     chan struct{}
	once     sync.Once
	closed   bool
	writing  chan struct{}
	took     []byte
	attempts int
}

func (c *stuck) Read([]byte) (int, error) { <-c.late; return 0, io.ErrClosedPipe }

func (c *stuck) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts++
	switch {
	case c.closed:
		return 0, io.ErrClosedPipe
	case c.attempts == 1:
		c.took = append(c.took, p[:len(p)/2]...)
		close(c.writing)
		c.mu.Unlock()
		<-c.late
		c.mu.Lock()
		return len(p) / 2, io.ErrShortWrite
	}
	c.took = append(c.took, p...)
	return len(p), nil
}

func (c *stuck) SetDeadline(time.Time) error { c.once.Do(func() { close(c.late) }); return nil }

func (c *stuck) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

// What follows half a piece would be read as its other half: a stream that ends then
// says nothing more.
func TestCloseWithinPiece(t *testing.T) {
	c := &stuck{late: make(chan struct{}), writing: make(chan struct{})}
	s := newStream()
	epoch, ours := s.offer()
	if err := s.attach(c, epoch, 0, ours); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("a word")); err != nil {
		t.Fatal(err)
	}
	<-c.writing
	_ = s.Close()
	within(t, "the sender", func() {
		for over := false; !over; time.Sleep(time.Millisecond) {
			c.mu.Lock()
			over = c.closed
			c.mu.Unlock()
		}
	})
	time.Sleep(20 * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := append(binary.BigEndian.AppendUint64([]byte{pieceData}, 6), "a word"...)
	if string(c.took) != string(whole[:len(whole)/2]) {
		t.Errorf("%q was sent", c.took)
	}
}

// A deadline that is taken back at the moment when it passes is taken back.
func TestDeadlineTakenBack(t *testing.T) {
	s := newStream()
	defer s.Close()
	for i := range 20_000 {
		d := time.Duration(i%50) * time.Microsecond
		_ = s.SetDeadline(time.Now().Add(d))
		for start := time.Now(); time.Since(start) < d; {
			continue
		}
		_ = s.SetDeadline(time.Time{})
		if i%100 == 0 {
			time.Sleep(time.Millisecond)
			s.mu.Lock()
			expired := s.expired
			s.mu.Unlock()
			if expired {
				t.Fatalf("it holds, after %d", i)
			}
		}
	}
}

// An empty Read returns.
func TestEmptyRead(t *testing.T) {
	host, _ := listen(t, Secret{14}).both(t, nil)
	within(t, "Read", func() {
		if n, err := host.Read(nil); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}
