package zygote

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pinfold/sandbox"
)

// A zygote that has too much to do is not ended, as all that run would end with
// it; and nobody waits for a child that has ended.
func TestAwaitingChildren(t *testing.T) {
	for _, test := range []struct {
		name   string
		does   func(l *Link)
		code   string
		took   time.Duration
		killed bool
	}{
		{"a zygote that forks for others", func(l *Link) {
			for range 9 {
				time.Sleep(time.Second)
				l.take(Packet{Kind: Ended, PID: 7}, nil) // somebody else's
			}
		}, sandbox.CodeResourceUnavailable, ForkTimeout, false},
		{"a zygote that says nothing", func(*Link) {}, sandbox.CodeSetupFailed, ForkTimeout, true},
		{"a child that was killed before it was there", func(l *Link) {
			l.take(Packet{Kind: Born, Child: 1, PID: 40}, nil)
			l.take(Packet{Kind: Ended, PID: 40, Exit: Exit{Signal: 9}}, nil)
		}, sandbox.CodeSetupFailed, 0, false},
		{"one that says why it ends", func(l *Link) {
			l.take(Packet{Kind: Failed, Child: 1, Call: 1, Errno: syscall.EPERM}, nil)
			l.take(Packet{Kind: Born, Child: 1, PID: 40}, nil)
			l.take(Packet{Kind: Ended, PID: 40}, nil)
		}, sandbox.CodeSetupFailed, 0, false},
		{"one that is ready", func(l *Link) { l.take(Packet{Kind: Ready, Child: 1, PID: 5}, nil) }, "", 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				killed := false
				l := newLink(nil, func() { killed = true })
				c := &child{answer: make(chan answer, 1), exited: make(chan Exit, 1)}
				if number, err := l.register(c); number != 1 || err != nil {
					t.Fatal(number, err)
				}
				begun := time.Now()
				go test.does(l)
				_, err := l.await(t.Context(), c)
				if took := time.Since(begun); took != test.took || killed != test.killed {
					t.Errorf("it took %v, not %v; killed: %t", took, test.took, killed)
				}
				switch {
				case test.code == "" && err != nil:
					t.Error(err)
				case test.code != "" && sandbox.AsError(err).Code != test.code:
					t.Errorf("%v, not %s", err, test.code)
				}
			})
		})
	}
}

// script is a zygote's end of the connection that plays what a test says.
type script struct {
	packets chan packetWith
	sent    chan []byte
}

type packetWith struct {
	b   []byte
	fds []int
}

func (s *script) Send(b []byte, _ ...int) error {
	s.sent <- b
	return nil
}

func (s *script) Receive(b []byte) (int, []int, error) {
	p, ok := <-s.packets
	if !ok {
		return 0, nil, errors.New("it is over")
	}
	return copy(b, p.b), p.fds, nil
}

// packet is a packet of words.
func packet(w ...int64) []byte {
	var b []byte
	for _, v := range w {
		b = append(b, Request(v)[8:]...)
	}
	return b
}

// A descriptor that nobody asked for is closed, and ends the zygote that sent it.
func TestZygoteThatBreaksTheProtocol(t *testing.T) {
	for name, p := range map[string][]byte{
		"no packet":             []byte("no packet"),
		"an empty one":          nil,
		"half a word":           packet(Born, 1, 2)[:20],
		"too few words":         packet(Ready, 1),
		"no such kind":          packet(9, 1, 2),
		"descriptors of a born": packet(Born, 1, 2),
	} {
		t.Run(name, func(t *testing.T) {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			fd, err := syscall.Dup(int(write.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			_ = write.Close()
			killed := make(chan struct{})
			s := &script{packets: make(chan packetWith, 1)}
			s.packets <- packetWith{p, []int{fd}}
			l := NewLink(s, func() { close(killed) })
			<-killed
			<-l.Over()
			if n, _ := read.Read(make([]byte, 1)); n != 0 { // it ends when all writers are closed
				t.Error("somebody writes")
			}
			if _, err := l.Fork(t.Context(), nil, func(int64) {}); !errors.Is(err, ErrEnded) {
				t.Errorf("a fork of it: %v", err)
			}
		})
	}
}

// A zygote cannot have the host remember more than one birth of each child.
func TestBornTwice(t *testing.T) {
	l := newLink(nil, func() {})
	if _, err := l.register(&child{answer: make(chan answer, 1), exited: make(chan Exit, 1)}); err != nil {
		t.Fatal(err)
	}
	if !l.take(Packet{Kind: Born, Child: 1, PID: 40}, nil) || l.take(Packet{Kind: Born, Child: 1, PID: 41}, nil) || len(l.pids) != 1 {
		t.Errorf("%v", l.pids)
	}
	if !l.take(Packet{Kind: Born, Child: 2, PID: 42}, nil) || len(l.pids) != 1 {
		t.Errorf("of a child that nobody asked for: %v", l.pids)
	}
}

// A child's whole life, as the zygote tells it.
func TestLink(t *testing.T) {
	s := &script{packets: make(chan packetWith), sent: make(chan []byte, 1)}
	l := NewLink(s, func() { t.Error("killed") })
	go func() { s.packets <- packetWith{b: []byte(`{"loaded": true, "calls": ["", "setns"]}`)} }()
	if err := l.Load(t.Context(), Setup{}); err != nil {
		t.Fatal(err)
	}
	<-s.sent
	go func() {
		if got := <-s.sent; string(got) != string(packet(0, 1)) {
			t.Errorf("asked with %x", got)
		}
		s.packets <- packetWith{b: packet(Born, 1, 40)}
		s.packets <- packetWith{b: packet(Ready, 1, 2)}
		s.packets <- packetWith{b: packet(Ended, 40, 7<<8, 1, 2, 3, 4)}
	}()
	born, err := l.Fork(t.Context(), nil, func(int64) {})
	if err != nil || born.PID != 2 || born.Number != 1 {
		t.Fatal(born, err)
	}
	if exit := <-born.Exited; exit != (Exit{Code: 7, CPU: 4*time.Second + 6*time.Microsecond}) {
		t.Errorf("%+v", exit)
	}
	if l.Owes(born.Number) {
		t.Error("it has told how the child ended")
	}
	go func() {
		<-s.sent
		s.packets <- packetWith{b: packet(Failed, 2, 1, -int64(syscall.EPERM))}
		<-s.sent
		close(s.packets)
	}()
	if _, err := l.Fork(t.Context(), nil, func(int64) {}); err == nil || err.Error() != "cannot fork the interpreter: setns: operation not permitted" {
		t.Error(err)
	}
	if _, err := l.Fork(t.Context(), nil, func(int64) {}); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
}

// Whatever a zygote sends, nothing panics, and a child's answer is given once.
func FuzzPackets(f *testing.F) {
	f.Add(packet(Born, 1, 40), packet(Ready, 1, 2), packet(Ended, 40, 7<<8, 1, 2, 3, 4))
	f.Add(packet(Failed, 1, 1, -1), packet(Failed, 1, -1, 1<<62), packet(Ended, 40, -1, 1<<62, 2, 3, 4))
	f.Add([]byte(`{"loaded": true, "calls": ["", "setns"]}`), []byte(`{"unfit": "why"}`), []byte(`{`))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		l := newLink(nil, func() {})
		asked := &child{answer: make(chan answer, 1), exited: make(chan Exit, 1)}
		if _, err := l.register(asked); err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{a, b, c} {
			if p, ok := decode(b); ok {
				l.take(p, nil)
			}
		}
		select {
		case a := <-asked.answer:
			_, _ = l.answered(a)
		case p := <-l.first:
			_ = l.loaded(p)
		default:
		}
	})
}
