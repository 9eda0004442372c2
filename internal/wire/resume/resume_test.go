package resume

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// agent is a server behind a listener.
type agent struct {
	*Server
	listener net.Listener
	cut      atomic.Pointer[func(net.Conn) io.ReadWriteCloser] // what becomes of the host's connections
}

func listen(t *testing.T, secret Secret) *agent {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{Server: NewServer(secret), listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			a.Accept(conn)
		}
	}()
	return a
}

func (a *agent) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", a.listener.Addr().String())
	if err != nil {
		return nil, err
	}
	if cut := a.cut.Load(); cut != nil {
		return (*cut)(conn), nil
	}
	return conn, nil
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// both dials and returns the two ends.
func (a *agent) both(t *testing.T, dead <-chan struct{}) (host, guest *Stream) {
	t.Helper()
	host, err := Dial(testContext(t), a.secret, dead, a.dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	guest = a.Next()
	t.Cleanup(func() { _ = guest.Close() })
	return host, guest
}

// breaking is a connection that breaks after so many bytes in either direction.
type breaking struct {
	net.Conn
	left atomic.Int64
}

func (b *breaking) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	return b.pass(n, err)
}

// Write lets some of the bytes through that break it: the other end has them, and we
// do not know.
func (b *breaking) Write(p []byte) (int, error) {
	if left := b.left.Load(); int64(len(p)) > left {
		_, _ = b.Conn.Write(p[:max(0, left)])
	} else if _, err := b.Conn.Write(p); err != nil {
		return 0, err
	}
	return b.pass(len(p), nil)
}

func (b *breaking) pass(n int, err error) (int, error) {
	if b.left.Add(-int64(n)) <= 0 {
		_ = b.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// What is sent comes, once and in order, however often connections break and wherever.
func TestBrokenConnections(t *testing.T) {
	a := listen(t, Secret{1})
	var connections atomic.Int64
	breaks := func(conn net.Conn) io.ReadWriteCloser {
		b := &breaking{Conn: conn}
		// Within the greeting, within a piece's head, within its data, after some pieces.
		n := connections.Add(1)
		b.left.Store([]int64{1 << 40, 1, 30, helloSizeOf, helloSizeOf + 5, 80, 100, 5_000, 70_000, 200_000}[n%10] + n)
		if n == 1 {
			b.left.Store(1000)
		}
		if n > 300 { // then it may end
			b.left.Store(1 << 40)
		}
		if n%10 == 0 {
			b.left.Store(200_000)
		}
		return b
	}
	a.cut.Store(&breaks)
	host, guest := a.both(t, nil)
	const size = 12 << 20
	var wg sync.WaitGroup
	for i, pair := range [][2]*Stream{{host, guest}, {guest, host}} {
		sum := make(chan [32]byte, 1)
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			h := sha256.New()
			for left := size; left > 0; {
				b := make([]byte, min(left, 1+r.IntN(100_000)))
				for j := range b {
					b[j] = byte(r.Uint32())
				}
				h.Write(b)
				if _, err := pair[0].Write(b); err != nil {
					t.Error(err)
					return
				}
				left -= len(b)
			}
			sum <- [32]byte(h.Sum(nil))
		})
		wg.Go(func() {
			h := sha256.New()
			if n, err := io.CopyN(h, pair[1], size); err != nil {
				t.Errorf("after %d bytes: %v", n, err)
				return
			}
			go func() { _, _ = io.Copy(io.Discard, pair[1]) }() // the other direction goes on
			if got, want := [32]byte(h.Sum(nil)), <-sum; got != want {
				t.Error("what came is not what was sent")
			}
		})
	}
	wg.Wait()
	if n := connections.Load(); n < 100 {
		t.Errorf("control: only %d connections were made", n)
	}
}

const helloSizeOf = int64(helloSize)

// A stream ends at both ends when one closes it, and what was said before is read.
func TestClose(t *testing.T) {
	for _, closer := range []string{"host", "agent"} {
		t.Run(closer, func(t *testing.T) {
			host, guest := listen(t, Secret{2}).both(t, nil)
			ends := map[string][2]*Stream{"host": {host, guest}, "agent": {guest, host}}[closer]
			if _, err := ends[0].Write([]byte("last")); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 4)
			if _, err := io.ReadFull(ends[1], got); err != nil || string(got) != "last" {
				t.Fatalf("%q, %v", got, err)
			}
			_ = ends[0].Close()
			if _, err := ends[1].Read(got); err != io.EOF { //nolint:errorlint // as it is
				t.Errorf("the other end reads %v", err)
			}
			if _, err := ends[0].Read(got); !errors.Is(err, os.ErrClosed) {
				t.Errorf("this end reads %v", err)
			}
			if _, err := ends[0].Write(got); !errors.Is(err, os.ErrClosed) {
				t.Errorf("this end writes %v", err)
			}
		})
	}
}

// Only who knows the secret gets the agent, and those who do not keep nobody out.
func TestStrangers(t *testing.T) {
	a := listen(t, Secret{3})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, Secret{4}, nil, a.dial); err == nil {
		t.Error("another secret is as good")
	}
	ctx = testContext(t)
	for range 4 * maxStrangers { // who say nothing
		conn, err := a.dial(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	host, guest := a.both(t, nil)
	carries(t, host, guest)
}

// carries says something in both directions.
func carries(t *testing.T, host, guest *Stream) {
	t.Helper()
	for _, pair := range [][2]*Stream{{host, guest}, {guest, host}} {
		if _, err := pair[0].Write([]byte("word")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(pair[1], got); err != nil || string(got) != "word" {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

// Another host that knows the secret takes the agent over; the first one learns it.
func TestAnotherHost(t *testing.T) {
	a := listen(t, Secret{5})
	first, _ := a.both(t, nil)
	second, guest := a.both(t, nil)
	carries(t, second, guest)
	if _, err := first.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // as it is
		t.Errorf("the first one reads %v", err)
	}
	// One whose connection was broken at that time learns it when it comes back.
	var broken sync.Once
	gone := make(chan struct{})
	late := func(ctx context.Context) (io.ReadWriteCloser, error) {
		select {
		case <-gone:
		default:
			conn, err := a.dial(ctx)
			broken.Do(func() { time.AfterFunc(50*time.Millisecond, func() { _ = conn.Close() }) })
			return conn, err
		}
		return a.dial(ctx)
	}
	third, err := Dial(testContext(t), a.secret, nil, late)
	if err != nil {
		t.Fatal(err)
	}
	a.Next()
	fourth, guest := a.both(t, nil)
	close(gone)
	if _, err := third.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, errUnknown) {
		t.Errorf("the third one reads %v", err)
	}
	carries(t, fourth, guest)
}

// A machine that is dead ends the stream, as nothing else does.
func TestDeadMachine(t *testing.T) {
	a := listen(t, Secret{6})
	dead := make(chan struct{})
	host, guest := a.both(t, dead)
	carries(t, host, guest)
	_ = a.listener.Close()
	guest.drop(guest.epoch)
	time.AfterFunc(100*time.Millisecond, func() { close(dead) })
	if _, err := host.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
}

// A deadline ends a call that waits; taken back, the stream goes on.
func TestDeadline(t *testing.T) {
	host, guest := listen(t, Secret{7}).both(t, nil)
	_ = host.SetDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := host.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if _, err := host.Write(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	_ = host.SetDeadline(time.Time{})
	carries(t, host, guest)
}

// Whoever does not keep to the protocol ends the stream, and makes the other end keep
// no more than it would have.
func TestViolations(t *testing.T) {
	for name, pieces := range map[string][]byte{
		"an unknown piece":           appendPiece(nil, 9, 0),
		"too much data":              appendPiece(nil, pieceData, maxPiece+1),
		"no data":                    appendPiece(nil, pieceData, 0),
		"what was never sent":        appendPiece(nil, pieceAck, 1),
		"what was never sent, again": append(appendPiece(nil, pieceAck, 0), appendPiece(nil, pieceAck, 1<<60)...),
	} {
		t.Run(name, func(t *testing.T) {
			a := listen(t, Secret{8})
			conn, err := a.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := greet(conn, a.secret, kindBegin, [sessionSize]byte{1}, 0); err != nil {
				t.Fatal(err)
			}
			guest := a.Next()
			if _, err := conn.Write(pieces); err != nil {
				t.Fatal(err)
			}
			if _, err := guest.Read(make([]byte, 1)); !errors.Is(err, errViolation) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("more received than was sent", func(t *testing.T) {
		a := listen(t, Secret{9})
		_, guest := a.both(t, nil)
		conn, err := a.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = greet(conn, a.secret, kindResume, guest.session, 5)
		if _, err := guest.Read(make([]byte, 1)); !errors.Is(err, errViolation) {
			t.Errorf("%v", err)
		}
	})
}

// A writer whose bytes nobody takes keeps only so many.
func TestWriterWaits(t *testing.T) {
	host, guest := listen(t, Secret{10}).both(t, nil)
	go func() { _, _ = host.Read(make([]byte, 1)) }()
	wrote := make(chan int, 1)
	go func() {
		n, _ := host.Write(make([]byte, 8*maxKept))
		wrote <- n
	}()
	deadline := time.Now().Add(time.Minute)
	for host.length() < maxKept && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if n := host.length(); n != maxKept {
		t.Errorf("%d bytes are kept", n)
	}
	if _, err := io.CopyN(io.Discard, guest, 8*maxKept); err != nil {
		t.Fatal(err)
	}
	if n := <-wrote; n != 8*maxKept {
		t.Errorf("%d bytes written", n)
	}
}

func (s *Stream) length() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept)
}

// The bytes of the protocol are what the package comment says.
func TestHello(t *testing.T) {
	var sent bytes.Buffer
	conn := struct {
		io.Reader
		io.Writer
	}{bytes.NewReader(binary.BigEndian.AppendUint64([]byte{statusGo}, 7)), &sent}
	n, err := greet(conn, Secret{1}, kindResume, [sessionSize]byte{2}, 3)
	if err != nil || n != 7 {
		t.Fatalf("%d, %v", n, err)
	}
	want := append([]byte("PFR1\x01"), make([]byte, SecretSize-1)...)
	want = append(append(want, kindResume, 2), make([]byte, sessionSize-1)...)
	want = append(want, 0, 0, 0, 0, 0, 0, 0, 3)
	if !bytes.Equal(sent.Bytes(), want) || len(want) != helloSize {
		t.Errorf("%q", sent.Bytes())
	}
}
