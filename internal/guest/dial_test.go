package guest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// The agents of these tests share the network of the test, so a listener here
// stands for a server in a sandbox.
func server(t *testing.T, network, addr string, serve func(net.Conn)) int {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.Addr().(*net.TCPAddr).Port
}

func echo(c net.Conn) {
	_, _ = io.Copy(c, c)
	_ = c.(*net.TCPConn).CloseWrite()
}

func dial(t *testing.T, l *live, port int) *guest.Conn {
	t.Helper()
	c, err := l.Dial(deadline(t), port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*guest.Conn)
}

func TestDial(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		for network, addr := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"} {
			c := dial(t, l, server(t, network, addr, echo))
			content := bytes.Repeat([]byte("0123456789"), 300_000)
			go func() {
				_, _ = c.Write(content)
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, content) {
				t.Fatalf("%s: %d bytes came back, %v", network, len(got), err)
			}
			if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Write after CloseWrite: %v", err)
			}
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Read after Close: %v", err)
			}
		}
	})
}

func TestDialRefused(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	_, err = l.Dial(deadline(t), port)
	if code(err) != sandbox.CodePortClosed || sandbox.AsError(err).Hint == "" {
		t.Errorf("%v", err)
	}
	for _, port := range []int{0, -1, 65536} {
		if _, err := l.Dial(deadline(t), port); code(err) != sandbox.CodeSpecInvalid {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

// A client of net/http works over it, keep-alive and deadlines included.
func TestDialHTTP(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %d", r.URL.Path, r.ContentLength)
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer web.Close()
	port := web.Listener.Addr().(*net.TCPAddr).Port
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx, port) }}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for j := range 10 {
				body := strings.Repeat("x", i*j*1000)
				answer, err := client.Post(fmt.Sprintf("http://inside/%d/%d", i, j), "text/plain", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				if want := fmt.Sprintf("/%d/%d %d", i, j, len(body)); err != nil || string(b) != want {
					t.Errorf("%q, %v, want %q", b, err, want)
				}
			}
		})
	}
	wg.Wait()
}

func TestDialDeadlines(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	stop := make(chan struct{})
	c := dial(t, l, server(t, "tcp", "127.0.0.1:0", func(net.Conn) { <-stop }))
	defer close(stop)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Read: %v", err)
	}
	much := make([]byte, 64<<20)
	_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	n, err := c.Write(much) // a server that does not read
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n > 32<<20 {
		t.Fatalf("Write: %d, %v", n, err)
	}
	_ = c.SetDeadline(time.Time{})
	read := make(chan error)
	go func() { _, err := c.Read(make([]byte, 1)); read <- err }()
	_ = c.SetReadDeadline(time.Unix(1, 0)) // while it waits, or before
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Read with a deadline from outside: %v", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	go func() { _, err := c.Read(make([]byte, 1)); read <- err }()
	_ = c.Close()
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("Read while it is closed: %v", err)
	}
}

// What was written before Close arrives.
func TestDialCloseDelivers(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	sums := make(chan [32]byte, 1)
	port := server(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		time.Sleep(30 * time.Millisecond)
		b, _ := io.ReadAll(c)
		sums <- sha256.Sum256(b)
	})
	c := dial(t, l, port)
	content := bytes.Repeat([]byte("pinfold"), 20_000)
	if _, err := c.Write(content); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if <-sums != sha256.Sum256(content) {
		t.Error("something else arrived")
	}
}

// Many at once work, one more is refused, and all are given back.
func TestDialBound(t *testing.T) {
	port := server(t, "tcp", "127.0.0.1:0", echo)
	keepsToItsThreads(t, func(t *testing.T, l *live) {
		for range 2 {
			var all []net.Conn
			for range wire.MaxDials {
				c, err := l.Dial(deadline(t), port)
				if err != nil {
					t.Fatalf("connection %d: %v", len(all), err)
				}
				all = append(all, c)
			}
			if _, err := l.Dial(deadline(t), port); code(err) != sandbox.CodeResourceUnavailable {
				t.Errorf("one more: %v", err)
			}
			for _, c := range all {
				_ = c.Close()
			}
			for again := time.Now(); ; { // closing takes a moment
				c, err := l.Dial(deadline(t), port)
				if err == nil {
					_ = c.Close()
					break
				}
				if time.Since(again) > time.Minute {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(300 * time.Millisecond)
		}
	})
}

// A server that goes away ends the reading; the sandbox's end does too.
func TestDialEnds(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	c := dial(t, l, server(t, "tcp", "127.0.0.1:0", func(net.Conn) {}))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the server is gone: %v", err)
	}
	stop := make(chan struct{})
	defer close(stop)
	c = dial(t, l, server(t, "tcp", "127.0.0.1:0", func(net.Conn) { <-stop }))
	_ = l.Close()
	if _, err := c.Read(make([]byte, 1)); code(err) != sandbox.CodeProtocol {
		t.Errorf("the sandbox is gone: %v", err)
	}
	if _, err := c.Write(make([]byte, 1)); code(err) != sandbox.CodeProtocol {
		t.Errorf("the sandbox is gone: %v", err)
	}
}
