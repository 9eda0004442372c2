//go:build linux

package netdoor

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/linux/unixpair"
)

// A socket that was made in another network namespace is served from here: what is
// connected to there arrives, and here there is nothing at that address.
func TestDoorsOfAnotherNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("as an ordinary user the driver's tests do this, with a user namespace")
	}
	ours, theirs, err := unixpair.New(unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	tcp, udp := netip.MustParseAddrPort("127.66.0.2:443"), netip.MustParseAddrPort("127.66.0.1:53")
	p := spawn.New(int(theirs.Fd()))
	up := make([]byte, 40) // struct ifreq
	copy(up, "lo")
	up[16] = unix.IFF_UP
	lo := p.Result("open network", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM, 0)
	p.Call("start loopback", unix.SYS_IOCTL, lo.Ref(), unix.SIOCSIFFLAGS, up)
	doors := []spawn.Cell{TCP(p, tcp), UDP(p, udp)}
	// A program inside: it connects, says something and hears the answer, in both ways.
	address := func(at netip.AddrPort) []byte {
		a := at.Addr().As4()
		return append([]byte{unix.AF_INET, 0, byte(at.Port() >> 8), byte(at.Port())}, append(a[:], make([]byte, 8)...)...)
	}
	p.SendDescriptors(int(theirs.Fd()), doors)
	client := p.Result("socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0)
	p.Call("connect", unix.SYS_CONNECT, client.Ref(), address(tcp), 16)
	p.Positive("say", unix.SYS_WRITE, client.Ref(), "ping", 4)
	p.Positive("hear", unix.SYS_READ, client.Ref(), make([]byte, 4), 4)
	asking := p.Result("socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM, 0)
	p.Call("connect", unix.SYS_CONNECT, asking.Ref(), address(udp), 16)
	p.Positive("ask", unix.SYS_WRITE, asking.Ref(), "who", 3)
	p.Positive("hear", unix.SYS_READ, asking.Ref(), make([]byte, 4), 4)
	p.Exec("/bin/true", []string{"true"}, nil)
	child, err := p.Start(spawn.Clone{Flags: unix.CLONE_NEWNET, CopyLow: true})
	_ = theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	fds, err := ours.ReceiveDescriptors()
	if err != nil || len(fds) != 2 {
		t.Fatal(fds, err)
	}
	l, packets := NewListener(fds[0]), NewPackets(fds[1])
	guest, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := guest.(*net.TCPConn); !ok {
		t.Errorf("%T", guest)
	}
	said := make([]byte, 4)
	if _, err := io.ReadFull(guest, said); err != nil || string(said) != "ping" {
		t.Fatal(string(said), err)
	}
	if _, err := io.WriteString(guest, "pong"); err != nil {
		t.Fatal(err)
	}
	n, from, err := packets.ReadFrom(said)
	if err != nil || string(said[:n]) != "who" || !from.Addr().IsLoopback() {
		t.Fatal(string(said[:n]), from, err)
	}
	if err := packets.WriteTo([]byte("you"), from); err != nil {
		t.Fatal(err)
	}
	if err := child.WaitExec(); err != nil {
		t.Fatal("a step of the program inside: ", err)
	}
	child.Wait()
	child.Release()
	if c, err := net.DialTimeout("tcp", tcp.String(), time.Second); err == nil {
		_ = c.Close()
		t.Error("the door is open here, too")
	}
	_ = guest.Close()
	closedWhileWaiting(t, l, packets)
}

// Sockets can be made in the namespace of a process that is there, and the thread that makes
// them is back where it was; a process that has ended has none.
func TestDoorsOfAProcessThatIsThere(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may go into another network namespace")
	}
	p := spawn.New()
	up := make([]byte, 40) // struct ifreq
	copy(up, "lo")
	up[16] = unix.IFF_UP
	lo := p.Result("open network", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM, 0)
	p.Call("start loopback", unix.SYS_IOCTL, lo.Ref(), unix.SIOCSIFFLAGS, up)
	p.Exec("/bin/sleep", []string{"sleep", "60"}, nil)
	child, err := p.Start(spawn.Clone{Flags: unix.CLONE_NEWNET, CopyLow: true})
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			_ = unix.Kill(child.PID, unix.SIGKILL)
			child.Wait()
			child.Release()
		}
		ended = true
	}
	defer end()
	if err := child.WaitExec(); err != nil {
		t.Fatal(err)
	}
	tcp, udp := netip.MustParseAddrPort("127.66.0.2:443"), netip.MustParseAddrPort("127.66.0.1:53")
	var fds []int
	open := func() error {
		fd, err := OpenTCP(tcp)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
		if fd, err = OpenUDP(udp); err == nil {
			fds = append(fds, fd)
		}
		return err
	}
	runtime.LockOSThread()
	before, _ := os.Readlink("/proc/thread-self/ns/net")
	err = child.InNetwork(open)
	after, _ := os.Readlink("/proc/thread-self/ns/net")
	runtime.UnlockOSThread()
	if err != nil || len(fds) != 2 || before == "" || before != after {
		t.Fatal(err, fds, before, after)
	}
	l, packets := NewListener(fds[0]), NewPackets(fds[1])
	if c, err := net.DialTimeout("tcp", tcp.String(), time.Second); err == nil {
		_ = c.Close()
		t.Error("the door is open here, too")
	}
	client := -1
	err = child.InNetwork(func() (err error) {
		if client, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Connect(client, &unix.SockaddrInet4{Port: int(tcp.Port()), Addr: tcp.Addr().As4()})
	})
	if err != nil {
		t.Fatal("from inside: ", err)
	}
	guest, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = guest.Close(), unix.Close(client)
	if err := child.InNetwork(open); !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), tcp.String()) {
		t.Errorf("twice: %v", err)
	}
	closedWhileWaiting(t, l, packets)
	end()
	if err := child.InNetwork(open); !errors.Is(err, unix.ESRCH) {
		t.Errorf("after its end: %v", err)
	}
}

// Who waits at a socket that is closed goes on.
func closedWhileWaiting(t *testing.T, l *Listener, p *Packets) {
	ended := make(chan error, 2)
	go func() { _, err := l.Accept(); ended <- err }()
	go func() { _, _, err := p.ReadFrom(make([]byte, 1)); ended <- err }()
	time.Sleep(10 * time.Millisecond) // likely they wait by then; sooner is right as well
	_, _ = l.Close(), p.Close()
	for range 2 {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("something arrived")
			}
		case <-time.After(10 * time.Second):
			t.Fatal("somebody waits at a closed socket")
		}
	}
}
