package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"pinfold/sandbox"
)

// route is a way to an echo server: direct, or through a door.
func route(b *testing.B, through bool) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, bufferSize))
				_ = c.Close()
			}()
		}
	}()
	if !through {
		return l.Addr().String()
	}
	to := netip.MustParseAddrPort(l.Addr().String())
	h := NewHost(100)
	h.port = func(int) int { return int(to.Port()) }
	n, err := sandbox.Network{
		Endpoints: []sandbox.Endpoint{{Host: "ok.test", Ports: []int{5432}, Address: "127.0.0.1"}},
		Limits:    sandbox.NetworkLimits{BytesUp: 1 << 40, BytesDown: 1 << 40},
	}.Canonical()
	if err != nil {
		b.Fatal(err)
	}
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	r, err := Open(h, n, Means{}, []Door{{Listener: door, Host: "ok.test", Port: 5432}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(r.Close)
	return door.Addr().String()
}

func ways(b *testing.B, f func(b *testing.B, address string)) {
	b.Run("direct", func(b *testing.B) { f(b, route(b, false)) })
	b.Run("through a door", func(b *testing.B) { f(b, route(b, true)) })
}

// BenchmarkRequest is one connection with one small question and answer.
func BenchmarkRequest(b *testing.B) {
	ways(b, func(b *testing.B, address string) {
		answer := make([]byte, 100)
		for b.Loop() {
			c, err := net.Dial("tcp", address)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := c.Write(answer); err != nil { // zeros: another protocol
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, answer); err != nil {
				b.Fatal(err)
			}
			_ = c.Close()
		}
	})
}

// BenchmarkRoundTrip is a small question and answer on a connection that is there.
func BenchmarkRoundTrip(b *testing.B) {
	ways(b, func(b *testing.B, address string) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		for answer := make([]byte, 100); b.Loop(); {
			if _, err := c.Write(answer); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, answer); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkStream sends as fast as the echo comes back.
func BenchmarkStream(b *testing.B) {
	ways(b, func(b *testing.B, address string) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		block := make([]byte, bufferSize)
		b.SetBytes(bufferSize)
		sent := make(chan error, 1)
		n := b.N
		go func() {
			for range n {
				if _, err := c.Write(block); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		back := make([]byte, bufferSize)
		for range n {
			if _, err := io.ReadFull(c, back); err != nil {
				b.Fatal(err)
			}
		}
		if err := <-sent; err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkRuledRequest is one small request on a TLS connection that is there, to the
// server itself and where TLS is ended.
func BenchmarkRuledRequest(b *testing.B) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	server.EnableHTTP2 = true
	server.StartTLS()
	b.Cleanup(server.Close)
	to := server.Listener.Addr().(*net.TCPAddr).AddrPort()
	n, err := sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "example.com", Address: to.Addr().String(), Methods: []string{"GET"}, Paths: []string{"/a/**"}}}}.Canonical()
	if err != nil {
		b.Fatal(err)
	}
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	authority, err := NewAuthority(n)
	if err != nil {
		b.Fatal(err)
	}
	h := NewHost(100)
	h.port = func(int) int { return int(to.Port()) }
	h.roots = x509.NewCertPool()
	h.roots.AddCert(server.Certificate())
	r, err := Open(h, n, Means{Authority: authority}, []Door{{Listener: door, Host: "example.com", Port: 443}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(r.Close)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM())
	for _, way := range []struct {
		name, address string
		roots         *x509.CertPool
	}{{"direct", to.String(), h.roots}, {"held to rules", door.Addr().String(), roots}} {
		b.Run(way.name, func(b *testing.B) {
			tr := &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: way.roots, MinVersion: tls.VersionTLS12},
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "tcp", way.address)
				},
			}
			defer tr.CloseIdleConnections()
			for b.Loop() {
				answer, err := (&http.Client{Transport: tr}).Get("https://example.com/a/b")
				if err != nil || answer.StatusCode != http.StatusOK {
					b.Fatal(answer, err)
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
		})
	}
}
