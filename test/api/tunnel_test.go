package api

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"pinfold/internal/driver/fake"
)

// rawTunnel opens a tunnel whose frames are written by hand.
func (w *world) rawTunnel(path string) net.Conn {
	w.t.Helper()
	conn := w.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + w.keys["alpha"] + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	head := ""
	for !strings.HasSuffix(head, "\r\n\r\n") {
		var b [1]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			w.t.Fatalf("%v after %s", err, head)
		}
		head += string(b[:])
	}
	if !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		w.t.Fatalf("%s", head)
	}
	return conn
}

// binaryFrame begins a frame of so many bytes, whose mask changes nothing.
func binaryFrame(size int) []byte {
	b := binary.BigEndian.AppendUint64([]byte{0x82, 0xff}, uint64(size)) //nolint:gosec // a length
	return append(b, 0, 0, 0, 0)
}

// Whoever sends the greater part of a frame and then nothing makes the server gather
// more of it than a chunk: what has come is inside, and the rest goes there when it comes.
func TestTunnelsGatherNoFrames(t *testing.T) {
	const tunnels, size, chunk = 100, 256 << 10, 32 << 10
	var inside atomic.Int64
	w := newWorld(t, func(s *settings) {
		s.script = always(fake.Script{Ports: map[int]func(net.Conn){9000: func(c net.Conn) {
			for b := make([]byte, 4<<10); ; {
				n, err := c.Read(b)
				inside.Add(int64(n))
				if err != nil {
					_ = c.Close()
					return
				}
			}
		}}})
	})
	path := w.create("alpha") + "/tunnel/9000"
	var all []net.Conn
	for range tunnels {
		all = append(all, w.rawTunnel(path))
	}
	arrived := func(want int64) {
		t.Helper()
		for soon := soon(t); inside.Load() != want; time.Sleep(time.Millisecond) {
			if soon.Err() != nil {
				t.Fatalf("%d bytes inside, want %d", inside.Load(), want)
			}
		}
	}
	head := binaryFrame(size)
	before := heap()
	for sent := 0; sent < size; sent += chunk { // in turns, so that nothing gathers on the way either
		part := slices.Concat(head, make([]byte, min(chunk, size-1-sent)))
		for _, conn := range all {
			if _, err := conn.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		head = nil
		arrived(tunnels * int64(min(sent+chunk, size-chunk)))
	}
	grown := heap() - before
	t.Logf("%d bytes for each tunnel", grown/tunnels)
	if grown > 10<<20 {
		t.Errorf("%d tunnels in the middle of a frame cost %d bytes", tunnels, grown)
	}
	for _, conn := range all { // the frames become whole
		if _, err := conn.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	arrived(tunnels * size)
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools keep, too
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below 2^63
}

// A server inside that takes no more is not the end of the client: what it sends is
// read on, and when it goes away the tunnel ends.
func TestTunnelsIntoServersThatTakeNoMore(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	w := newWorld(t, func(s *settings) {
		s.script = always(fake.Script{Ports: map[int]func(net.Conn){9000: func(c net.Conn) {
			if half, ok := c.(interface{ CloseRead() error }); !ok || half.CloseRead() != nil {
				t.Error("cannot close half of the connection")
			}
			<-stop
		}}})
	})
	ws := w.dial("alpha", w.create("alpha")+"/tunnel/9000")
	for range 500 {
		_ = soon // more than lies between us and the server inside
		if err := ws.Write(soon(t), websocket.MessageBinary, make([]byte, 32<<10)); err != nil {
			t.Fatal(err)
		}
	}
	_ = ws.CloseNow()
	w.finished("/tunnel/{port}")
}

// A client that answers no ping is not taken for one that is gone: whoever it reads
// for may have paused.
func TestTunnelsOutliveUnansweredPings(t *testing.T) {
	w := newWorld(t, func(s *settings) {
		s.api.Heartbeat, s.api.ClientTimeout = time.Millisecond, 10*time.Millisecond
		s.script = always(fake.Script{Ports: talkers()})
	})
	conn := w.rawTunnel(w.create("alpha") + "/tunnel/9001")
	frame := func() (kind byte, payload string) {
		t.Helper()
		var head [2]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, head[1])
		if _, err := io.ReadFull(conn, b); err != nil {
			t.Fatal(err)
		}
		return head[0], string(b)
	}
	for pings := 0; pings < 10; {
		if kind, payload := frame(); kind != 0x89 {
			t.Fatalf("%x %q", kind, payload)
		}
		pings++
	}
	if _, err := conn.Write(append(binaryFrame(2), "a\n"...)); err != nil {
		t.Fatal(err)
	}
	for {
		kind, payload := frame()
		if kind == 0x89 {
			continue
		}
		if kind != 0x82 || payload != "echo a\n" {
			t.Errorf("%x %q", kind, payload)
		}
		return
	}
}
