package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/sandbox"
)

func TestLimits(t *testing.T) {
	echo, _ := echoServer(t)
	s := newSite(t, echo, func(_ *Host, n *sandbox.Network) {
		n.Limits = sandbox.NetworkLimits{Connections: 2, BytesUp: 1000, BytesDown: 1500}
	}, 5432)
	first, second := s.dial(5432), s.dial(5432)
	for _, c := range []net.Conn{first, second} {
		if _, err := io.WriteString(c, "\x00\x00"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
	}
	if third, err := net.Dial("tcp", s.doors[5432]); err == nil { // it may have been broken off by then
		if n, err := third.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Error("there is a third connection")
		}
		_ = third.Close()
	}
	if r := s.denials(); !slices.Equal(r, []sandbox.DenialReason{sandbox.DeniedConnections}) {
		t.Error(r)
	}
	_ = second.Close()
	if _, err := first.Write(make([]byte, 997)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(first)
	if err == nil || len(got) != 0 {
		t.Errorf("%d bytes came back of what is over the limit: %v", len(got), err)
	}
	if u := s.relay.Use(); u.Endpoints[0].BytesUp != 4 || u.Denied[1].Reason != sandbox.DeniedBytesUp {
		t.Errorf("%+v", u)
	}
}

// What a guest does not read stops the server, and takes no memory (back-pressure).
func TestWhoDoesNotReadIsNotSentMore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var sent atomic.Int64
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		for block := make([]byte, 1<<20); ; {
			n, err := c.Write(block)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}()
	s := newSite(t, l.Addr().String(), nil, 5432)
	s.dial(5432)
	last := int64(-1)
	for range 200 { // until nothing moves any more
		time.Sleep(50 * time.Millisecond)
		now := sent.Load()
		if now == last && now > 0 {
			break
		}
		last = now
	}
	if down := s.relay.Use().Endpoints[0].BytesDown; last > 64<<20 || down > 32<<20 {
		t.Errorf("the server could send %d bytes, of which %d were passed on, to who reads nothing", last, down)
	}
}

// When a relay closes, everything has ended: connections in the midst of a transfer too
// (NE-17), and all that goes on for them.
func TestCloseEndsEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	echo, _ := echoServer(t)
	s := newSite(t, echo, nil, 80, 443, 5432)
	var open []net.Conn
	for _, port := range []int{80, 443, 5432, 5432} {
		open = append(open, s.dial(port))
	}
	if _, err := open[3].Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(open[3], make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	s.relay.Close()
	for i, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "timeout") {
			t.Errorf("connection %d goes on: %v", i, err)
		}
	}
	if c, err := net.Dial("tcp", s.doors[80]); err == nil {
		_ = c.Close()
		t.Error("a door is still open")
	}
	for range 200 {
		if runtime.NumGoroutine() <= before+3 { // the server's own
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	all := make([]byte, 1<<16)
	t.Errorf("%d goroutines, before %d\n%s", runtime.NumGoroutine(), before, all[:runtime.Stack(all, true)])
}

// However much is denied, what is written down of it is bounded.
func TestDenialsAreBounded(t *testing.T) {
	l := newLedger(sandbox.Network{})
	for i := range 1000 {
		l.deny(fmt.Sprintf("%d.test", i), 443, sandbox.DeniedSNI, strings.Repeat("\x1b", 1000))
	}
	l.deny("0.test", 443, sandbox.DeniedSNI, "again")
	u := l.use(nil)
	if len(u.Denied) != sandbox.MaxDenials || u.DeniedMore != 1000-sandbox.MaxDenials || u.Denied[0].Count != 2 || bytes.ContainsRune([]byte(u.Denied[0].Evidence), 0x1b) {
		t.Errorf("%d, and %d more; %+v", len(u.Denied), u.DeniedMore, u.Denied[0])
	}
}

// Where the operator says that a name is, hints do not tell; who is the operator gets hints
// that work as they are.
func TestHintsKeepAddresses(t *testing.T) {
	n, err := sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "db.test", Address: "10.1.2.3", Methods: []string{"GET"}}}}.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []bool{false, true} {
		l := newLedger(n)
		l.own = own
		l.deny("other.test", 0, sandbox.DeniedUndeclared, "")
		l.deny("db.test", 443, sandbox.DeniedRequest, "POST /x")
		for _, d := range l.use(n.Endpoints).Denied {
			text, err := json.Marshal(d)
			if err != nil || d.Hint == "" || strings.Contains(string(text), "10.1.2.3") != own {
				t.Errorf("own %v: %v %s", own, err, text)
			}
		}
	}
}
