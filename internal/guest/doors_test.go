package guest_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// free is an address of loopback's that nobody uses, at which doors of a test may be.
func free(t *testing.T, network, ip string) netip.AddrPort {
	t.Helper()
	if network == "udp" {
		c, err := net.ListenPacket(network, ip+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return netip.MustParseAddrPort(c.LocalAddr().String())
	}
	l, err := net.Listen(network, ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

// openDoors opens two doors and a resolver with a real agent.
func openDoors(t *testing.T) (d *guest.Doors, at []netip.AddrPort, resolver netip.AddrPort, l *live) {
	t.Helper()
	l = startAgent(t, mode{name: "process"})
	at = []netip.AddrPort{free(t, "tcp", "127.66.0.2"), free(t, "tcp", "127.66.0.3")}
	resolver = free(t, "udp", "127.66.0.1")
	d, err := l.OpenDoors(deadline(t), at, resolver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, at, resolver, l
}

func knock(t *testing.T, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

func TestDoors(t *testing.T) {
	d, at, _, _ := openDoors(t)
	for i, door := range d.All() {
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				c, err := door.Accept()
				if err != nil {
					t.Errorf("Accept: %v", err)
					return
				}
				defer c.Close()
				_, _ = c.Write([]byte{byte('0' + i)}) // which door it was
				_, _ = io.Copy(c, c)
				_ = c.(*guest.Conn).CloseWrite()
			})
			wg.Go(func() {
				content := bytes.Repeat([]byte("0123456789"), 100_000)
				c := knock(t, at[i])
				go func() {
					_, _ = c.Write(content)
					_ = c.CloseWrite()
				}()
				got, err := io.ReadAll(c)
				if err != nil || len(got) != 1+len(content) || got[0] != byte('0'+i) || !bytes.Equal(got[1:], content) {
					t.Errorf("door %d: %d bytes came back, %v", i, len(got), err)
				}
			})
		}
		wg.Wait()
	}
}

// A connection that was broken off is that for the program, too: it cannot take what came
// for the whole. One that was closed is whole.
func TestDoorBreaksOff(t *testing.T) {
	d, at, _, _ := openDoors(t)
	for _, linger := range []int{0, -1} {
		c := knock(t, at[0])
		ours, err := d.All()[0].Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = ours.Write([]byte("half"))
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		_ = ours.(*guest.Conn).SetLinger(linger)
		_ = ours.Close()
		if _, err := io.ReadAll(c); (err == nil) != (linger != 0) {
			t.Errorf("linger %d: %v", linger, err)
		}
	}
}

func TestDoorPackets(t *testing.T) {
	d, _, resolver, _ := openDoors(t)
	program, err := net.Dial("udp", resolver.String())
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	_ = program.SetDeadline(time.Now().Add(time.Minute))
	for _, packet := range [][]byte{make([]byte, wire.MaxPacketContent+1), []byte("question"), bytes.Repeat([]byte("x"), wire.MaxPacketContent)} {
		if _, err := program.Write(packet); err != nil {
			t.Fatal(err)
		}
		if len(packet) > wire.MaxPacketContent {
			continue // dropped: the next is what comes
		}
		b := make([]byte, wire.MaxPacketContent)
		n, from, err := d.ReadFrom(b)
		if err != nil || !bytes.Equal(b[:n], packet) {
			t.Fatalf("%q, %v", b[:n], err)
		}
		if err := d.WriteTo(append([]byte("re "), b[:n]...)[:min(n+3, len(b))], from); err != nil {
			t.Fatal(err)
		}
		if n, err = program.Read(b); err != nil || !bytes.HasPrefix(b[:n], []byte("re ")) {
			t.Fatalf("%q, %v", b[:n], err)
		}
	}
	_ = d.Close()
	if _, _, err := d.ReadFrom(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// What is not accepted waits inside, and nothing can connect once the doors are closed.
func TestDoorsClose(t *testing.T) {
	d, at, _, l := openDoors(t)
	first := knock(t, at[0])
	ours, err := d.All()[0].Accept()
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := d.All()[1].Accept()
		failed <- err
	}()
	_ = d.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := d.All()[0].Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	for soon := deadline(t); ; time.Sleep(time.Millisecond) { // the agent learns of it
		c, err := net.Dial("tcp", at[1].String())
		if err != nil {
			break
		}
		_ = c.Close()
		if soon.Err() != nil {
			t.Fatal("a door is open after Close")
		}
	}
	_, _ = ours.Write([]byte("x"))
	if _, err := io.ReadFull(first, make([]byte, 1)); err != nil {
		t.Errorf("a connection that was open: %v", err)
	}
	if _, err := l.OpenDoors(deadline(t), at, free(t, "udp", "127.66.0.1")); code(err) != sandbox.CodeConflict {
		t.Errorf("doors opened twice: %v", err)
	}
}

// Where one address cannot be had there are no doors at all.
func TestDoorsRefused(t *testing.T) {
	l := startAgent(t, mode{name: "process"})
	taken, err := net.Listen("tcp", "127.66.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good, resolver := free(t, "tcp", "127.66.0.3"), free(t, "udp", "127.66.0.1")
	for what, at := range map[string]netip.AddrPort{"taken": netip.MustParseAddrPort(taken.Addr().String()), "not loopback": netip.MustParseAddrPort("0.0.0.0:1")} {
		if _, err := l.OpenDoors(deadline(t), []netip.AddrPort{good, at}, resolver); err == nil {
			t.Errorf("%s: no error", what)
		}
		if c, err := net.Dial("tcp", good.String()); err == nil {
			_ = c.Close()
			t.Errorf("%s: the other door is open", what)
		}
	}
	if _, err := l.OpenDoors(deadline(t), []netip.AddrPort{good}, resolver); err != nil {
		t.Errorf("without it: %v", err)
	}
}

// A program that does not read stops the host's Write, and costs it no more than a window.
func TestDoorBackPressure(t *testing.T) {
	d, at, _, _ := openDoors(t)
	program := knock(t, at[0])
	ours, err := d.All()[0].Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.SetWriteDeadline(time.Now().Add(time.Second))
	const most = 64 << 20 // the kernel has less in its buffers
	n, err := ours.Write(make([]byte, most))
	if err == nil || n == most {
		t.Fatalf("%d bytes were taken, %v", n, err)
	}
	_ = ours.SetWriteDeadline(time.Time{})
	go func() { _ = ours.(*guest.Conn).CloseWrite() }()
	if got, err := io.Copy(io.Discard, program); err != nil || got != int64(n) {
		t.Errorf("%d bytes of %d came, %v", got, n, err)
	}
}
