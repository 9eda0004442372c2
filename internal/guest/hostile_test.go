package guest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// peer is an agent that a hostile guest has taken over: it follows a script.
type peer struct {
	t      *testing.T
	conn   net.Conn
	frames *wire.Reader
}

var hello = message(wire.KindHello, 0, fmt.Sprintf(`{"version":%d,"agent":"evil"}`, wire.Version))

// newPeer returns a greeted guest and the peer behind it.
func newPeer(t *testing.T) (*guest.Guest, *peer) {
	t.Helper()
	checkGoroutines(t)
	conn, p := connect(t)
	p.send(hello)
	g, err := guest.New(deadline(t), conn, wire.Hello{UID: 1, GID: 1, Home: "/home/user"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g, p
}

func connect(t *testing.T) (host net.Conn, p *peer) {
	t.Helper()
	host, theirs := socketPair(t)
	conn, err := net.FileConn(theirs)
	_ = theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return host, &peer{t: t, conn: conn, frames: wire.NewReader(conn, wire.Host)}
}

// send writes bytes; that the host has hung up is not an error.
func (p *peer) send(b []byte) { _, _ = p.conn.Write(b) }

// message is a frame with a message, which is written as JSON here, because
// that can be read.
func message(kind wire.Kind, channel uint32, text string) []byte {
	var m wire.Message
	switch kind {
	case wire.KindHello:
		m = new(wire.Hello)
	case wire.KindEvent:
		m = new(wire.Event)
	case wire.KindClose:
		m = new(wire.Outcome)
	default:
		panic("not a kind that an agent sends")
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		panic(text + ": " + err.Error())
	}
	return wire.AppendMessage(nil, kind, channel, m)
}

// await reads frames until one of a kind comes.
func (p *peer) await(kind wire.Kind) wire.Frame {
	for {
		f, err := p.frames.Next()
		if err != nil {
			p.t.Errorf("the host sent no frame of kind %d: %v", kind, err)
			return wire.Frame{}
		}
		if f.Kind == kind {
			return f
		}
	}
}

const (
	started = `{"kind":"started","pid":7}`
	exited  = `{"kind":"exited","exit":{"code":0,"WallNS":1,"CPUNS":1}}`

	startedMessage = "\x07started\x0e\x00\x00\x00" // as it travels
)

// data is a data frame on channel 1.
func data(stream uint8, n int) []byte {
	return wire.AppendData(nil, 1, stream, bytes.Repeat([]byte("x"), n))
}

// raw is a frame on channel 1 whose header and payload need not agree.
func raw(length uint32, kind byte, payload string) []byte {
	b := []byte{byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length), kind, 0, 0, 0, 1}
	return append(b, payload...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func event(text string) []byte { return message(wire.KindEvent, 1, text) }

func closing(text string) []byte { return message(wire.KindClose, 1, text) }

// payload is an event with any bytes at all.
func payload(b string) []byte { return wire.AppendFrame(nil, wire.KindEvent, 1, []byte(b)) }

// flood is n data frames of the largest size.
func flood(n int) []byte { return bytes.Repeat(data(1, wire.MaxData), n) }

// Each attack is what the peer sends after a process has been asked for. All
// of them must end the connection with a violation, and every waiting call.
func TestViolations(t *testing.T) {
	tiny := bytes.Repeat(data(1, 1), wire.WindowSize+1)
	for name, attack := range map[string][]byte{
		"length of all ones":       raw(1<<32-1, 3, "xxxx"),
		"length 2^31":              raw(1<<31, 3, "xxxx"),
		"length one too long":      raw(wire.MaxPayload+1, 3, "xxxx"),
		"unknown kind":             raw(0, 77, ""),
		"kind of the host":         raw(2, 2, "{}"),
		"control from the guest":   raw(2, 7, "{}"),
		"second hello":             hello,
		"data on channel 0":        wire.AppendData(nil, 0, 1, []byte("x")),
		"channel never opened":     wire.AppendData(nil, 2, 1, []byte("x")),
		"channel 2^32-1":           wire.AppendData(nil, 1<<32-1, 1, []byte("x")),
		"frame after close":        join(event(started), event(exited), closing(`{}`), data(1, 1)),
		"close twice":              join(event(started), event(exited), closing(`{}`), closing(`{}`)),
		"stream 0 from the guest":  data(0, 1),
		"stream 3":                 data(3, 1),
		"stream 255":               data(255, 1),
		"no stream number":         raw(0, 3, ""),
		"empty data":               raw(1, 3, "\x01"),
		"window overrun":           flood(5),
		"window overrun, tiny":     tiny,
		"data after eof":           join(wire.AppendEOF(nil, 1, 1), data(1, 1)),
		"eof twice":                join(wire.AppendEOF(nil, 1, 1), wire.AppendEOF(nil, 1, 1)),
		"eof of no stdin":          wire.AppendEOF(nil, 1, 0),
		"window of no stdin":       wire.AppendWindow(nil, 1, 0, 5),
		"window of an output":      wire.AppendWindow(nil, 1, 1, 5),
		"short window":             raw(3, 5, "\x00\x00\x01"),
		"event without a message":  payload(""),
		"event of one field":       payload("\x07started"),
		"event as JSON":            payload(`{"kind":"started","pid":7}`),
		"unknown event":            event(`{"kind":"pwned"}`),
		"one field more":           payload(startedMessage + "\x00"),
		"trailing message":         payload(startedMessage + startedMessage),
		"text that is not UTF-8":   payload("\x07starte\xff\x0e\x00\x00\x00"),
		"text beyond the end":      payload("\x08started\x0e\x00\x00\x00"),
		"text of all ones":         payload("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"long form of a number":    payload("\x07started\x8e\x00\x00\x00\x00"),
		"neither there nor not":    payload("\x07started\x0e\x02\x00\x00"),
		"list beyond the end":      payload("\x05files\x00\x00\xff\xff\x03\x00"),
		"list without end":         payload("\x05files\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + strings.Repeat("\x00", 60_000)),
		"huge number":              payload("\x07started" + strings.Repeat("\xff", 60_000)),
		"pid 0":                    event(`{"kind":"started","pid":0}`),
		"negative pid":             event(`{"kind":"started","pid":-1}`),
		"started twice":            join(event(started), event(started)),
		"exited before started":    event(exited),
		"exited twice":             join(event(started), event(exited), event(exited)),
		"exit without a status":    join(event(started), event(`{"kind":"exited"}`)),
		"exit code 256":            join(event(started), event(`{"kind":"exited","exit":{"code":256,"WallNS":1,"CPUNS":1}}`)),
		"negative exit code":       join(event(started), event(`{"kind":"exited","exit":{"code":-1,"WallNS":1,"CPUNS":1}}`)),
		"signal 65":                join(event(started), event(`{"kind":"exited","exit":{"code":0,"signal":65,"WallNS":1,"CPUNS":1}}`)),
		"code and signal":          join(event(started), event(`{"kind":"exited","exit":{"code":1,"signal":9,"WallNS":1,"CPUNS":1}}`)),
		"negative time":            join(event(started), event(`{"kind":"exited","exit":{"code":0,"WallNS":-1,"CPUNS":1}}`)),
		"files of a process":       event(`{"kind":"files","files":[{"path":"a","type":"file","size":1,"MtimeNS":1}]}`),
		"close without started":    closing(`{}`),
		"close without exited":     join(event(started), closing(`{}`)),
		"fault after started":      join(event(started), closing(`{"error":{"code":"internal","message":"x"}}`)),
		"unknown code":             closing(`{"error":{"code":"owned","message":"x"}}`),
		"code of the host":         closing(`{"error":{"code":"requirement_unmet","message":"x"}}`),
		"code of the connection":   closing(`{"error":{"code":"protocol","message":"x"}}`),
		"long message":             closing(`{"error":{"code":"internal","message":"` + strings.Repeat("x", 5000) + `"}}`),
		"long step":                closing(`{"error":{"code":"internal","message":"x","step":"` + strings.Repeat("x", 500) + `"}}`),
		"negative size":            closing(`{"size":-1,"error":{"code":"internal","message":"x"}}`),
		"negative file":            closing(`{"stat":{"type":"file","size":-1,"mode":0,"MtimeNS":0,"uid":0,"gid":0},"error":{"code":"internal","message":"x"}}`),
		"unknown file type":        closing(`{"stat":{"type":"door","size":1,"mode":0,"MtimeNS":0,"uid":0,"gid":0},"error":{"code":"internal","message":"x"}}`),
		"absurd unprintable count": closing(`{"unprintable":99999999,"error":{"code":"internal","message":"x"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			g, p := newPeer(t)
			go func() {
				p.await(wire.KindOpen)
				p.send(attack)
			}()
			begin := time.Now()
			// A writer that takes nothing, so that nothing is granted.
			stuck := &blocked{release: make(chan struct{})}
			defer close(stuck.release)
			process, err := g.Start(deadline(t), guest.Command{Args: []string{"x"}}, guest.Streams{Stdout: stuck})
			<-g.Done()
			if d := time.Since(begin); d > time.Minute {
				t.Errorf("noticed after %v", d)
			}
			var v *wire.Violation
			if !errors.As(g.Err(), &v) || code(g.Err()) != sandbox.CodeProtocol {
				t.Fatalf("Err: %v, want a violation", g.Err())
			}
			if err == nil {
				<-process.Exited()
			}
			if _, err := g.Stat(deadline(t), "x"); code(err) != sandbox.CodeProtocol {
				t.Fatalf("Stat afterwards: %v", err)
			}
		})
	}
}

// blocked is a writer that takes nothing until it is released.
type blocked struct{ release chan struct{} }

func (b *blocked) Write(p []byte) (int, error) { <-b.release; return len(p), nil }

// What a good peer would send must pass, so that the test above proves
// something.
func TestWellBehavedPeer(t *testing.T) {
	g, p := newPeer(t)
	go func() {
		p.await(wire.KindOpen)
		p.send(join(event(started), flood(4), data(2, 5), wire.AppendEOF(nil, 1, 2), event(exited), closing(`{"held":true}`)))
	}()
	var out, errOut bytes.Buffer
	process, err := g.Start(deadline(t), guest.Command{Args: []string{"x"}}, guest.Streams{Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := process.Wait(deadline(t))
	if err != nil || exit.Code != 0 || !process.PipesHeld() || process.PID() != 7 {
		t.Fatalf("%+v, %v", exit, err)
	}
	if out.Len() != 4*wire.MaxData || errOut.String() != "xxxxx" {
		t.Fatalf("%d bytes and %q", out.Len(), errOut.String())
	}
}

// A message from the guest is made safe to print.
func TestFaultTextIsEscaped(t *testing.T) {
	g, p := newPeer(t)
	go func() {
		p.await(wire.KindOpen)
		p.send(message(wire.KindClose, 1, `{"error":{"code":"file_not_found","message":"\u001b[2J\u202egone"}}`))
	}()
	_, err := g.Stat(deadline(t), "f\x1b")
	if code(err) != sandbox.CodeFileNotFound || strings.ContainsAny(err.Error(), "\x1b\u202e") {
		t.Fatalf("%q", err)
	}
}

func TestHandshakeRefusals(t *testing.T) {
	for name, first := range map[string][]byte{
		"other version": message(wire.KindHello, 0, `{"version":1}`),
		"no message":    wire.AppendFrame(nil, wire.KindHello, 0, []byte(`hi`)),
		"JSON":          wire.AppendFrame(nil, wire.KindHello, 0, []byte(`{"version":1,"agent":"dev"}`)),
		"not hello":     event(started),
		"HTTP":          []byte("GET / HTTP/1.1\r\n\r\n"),
		"long":          raw(1<<20, 1, ""),
	} {
		t.Run(name, func(t *testing.T) {
			checkGoroutines(t)
			conn, p := connect(t)
			p.send(first)
			var v *wire.Violation
			if _, err := guest.New(deadline(t), conn, wire.Hello{}); !errors.As(err, &v) {
				t.Fatalf("New: %v", err)
			}
		})
	}
	t.Run("hangs up", func(t *testing.T) {
		conn, p := connect(t)
		_ = p.conn.Close()
		if _, err := guest.New(deadline(t), conn, wire.Hello{}); !errors.Is(err, guest.ErrGone) {
			t.Fatalf("New: %v", err)
		}
	})
	t.Run("silent", func(t *testing.T) {
		checkGoroutines(t)
		conn, _ := connect(t)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if _, err := guest.New(ctx, conn, wire.Hello{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("New: %v", err)
		}
	})
}

// calls are all the calls that wait for an answer.
var calls = map[string]func(context.Context, *guest.Guest) error{
	"Start": func(ctx context.Context, g *guest.Guest) error {
		_, err := g.Start(ctx, guest.Command{Args: []string{"x"}}, guest.Streams{Stdin: zeros{}})
		return err
	},
	"WriteFile": func(ctx context.Context, g *guest.Guest) error { return g.WriteFile(ctx, "f", 0o644, -1, zeros{}) },
	"ReadFile": func(ctx context.Context, g *guest.Guest) error {
		_, err := g.ReadFile(ctx, "f", 10, io.Discard)
		return err
	},
	"Stat":   func(ctx context.Context, g *guest.Guest) error { _, err := g.Stat(ctx, "f"); return err },
	"Mkdir":  func(ctx context.Context, g *guest.Guest) error { return g.Mkdir(ctx, "f", 0o755) },
	"Remove": func(ctx context.Context, g *guest.Guest) error { return g.Remove(ctx, "f") },
	"Glob": func(ctx context.Context, g *guest.Guest) error {
		_, err := g.Glob(ctx, ".", []string{"*"}, 5)
		return err
	},
	"KillAll": func(ctx context.Context, g *guest.Guest) error { return g.KillAll(ctx) },
	"ReadRange": func(ctx context.Context, g *guest.Guest) error {
		_, err := g.ReadRange(ctx, "f", 3, 10, io.Discard)
		return err
	},
	"List": func(ctx context.Context, g *guest.Guest) error { _, err := g.List(ctx, ".", 2, 5); return err },
	"Move": func(ctx context.Context, g *guest.Guest) error { return g.Move(ctx, "f", "g") },
	"Watch": func(ctx context.Context, g *guest.Guest) error {
		return g.Watch(ctx, ".", true, func(wire.WatchEvent) error { return nil })
	},
	"Dial": func(ctx context.Context, g *guest.Guest) error {
		c, err := g.Dial(ctx, 80)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = io.Copy(io.Discard, c)
		return err
	},
}

// A peer that never answers, and never reads, holds nobody beyond the context.
func TestSilentPeer(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			g, _ := newPeer(t)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			begin := time.Now()
			if err := call(ctx, g); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v, want the context's error", err)
			}
			if d := time.Since(begin); d > time.Minute {
				t.Fatalf("returned after %v", d)
			}
		})
	}
}

// A peer that hangs up ends every call at once.
func TestPeerHangsUp(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			g, p := newPeer(t)
			go func() {
				p.await(wire.KindOpen)
				_ = p.conn.Close()
			}()
			if err := call(deadline(t), g); !errors.Is(err, guest.ErrGone) || code(err) != sandbox.CodeProtocol {
				t.Fatalf("%v", err)
			}
		})
	}
}

// An abandoned operation's late frames are not a violation, and its close
// frees the channel.
func TestLateAnswerAfterCancel(t *testing.T) {
	g, p := newPeer(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		p.await(wire.KindOpen)
		cancel()
		p.await(wire.KindClose)
		p.send(join(flood(8), event(started), wire.AppendEOF(nil, 1, 1), closing(`{}`)))
		p.await(wire.KindOpen)
		p.send(message(wire.KindClose, 2, `{}`))
	}()
	_, err := g.Start(ctx, guest.Command{Args: []string{"x"}}, guest.Streams{})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Start: %v", err)
	}
	if err := g.KillAll(deadline(t)); err != nil {
		t.Fatalf("the next operation: %v", err)
	}
}

func TestFileViolations(t *testing.T) {
	file := func(path string) string { return `{"path":"` + path + `","type":"file","size":1,"MtimeNS":1}` }
	files := func(list ...string) []byte {
		return event(`{"kind":"files","files":[` + strings.Join(list, ",") + `]}`)
	}
	for _, test := range []struct {
		name, call string
		attack     []byte
	}{
		{"more than asked for", "ReadFile", data(1, 11)},
		{"size that differs", "ReadFile", join(data(1, 5), wire.AppendEOF(nil, 1, 1), closing(`{"size":6}`))},
		{"error stream of a file", "ReadFile", data(2, 5)},
		{"event of a file", "ReadFile", event(started)},
		{"upload from the agent", "WriteFile", data(1, 1)},
		{"window overflow", "WriteFile", join(wire.AppendWindow(nil, 1, 0, wire.WindowSize), wire.AppendWindow(nil, 1, 0, wire.WindowSize), wire.AppendWindow(nil, 1, 0, 1<<31-1))},
		{"window of zero", "WriteFile", wire.AppendWindow(nil, 1, 0, 0)},
		{"success before the end", "WriteFile", closing(`{"size":0}`)},
		{"eof twice", "WriteFile", join(wire.AppendEOF(nil, 1, 0), wire.AppendEOF(nil, 1, 0))},
		{"stat of nothing", "Stat", closing(`{}`)},
		{"too many files", "Glob", files(file("a"), file("b"), file("c"), file("d"), file("e"), file("f"))},
		{"too many files, in parts", "Glob", join(files(file("a"), file("b"), file("c")), files(file("d"), file("e"), file("f")))},
		{"no files", "Glob", files()},
		{"a file twice", "Glob", join(files(file("a"), file("b")), files(file("a")), closing(`{}`))},
		{"path that leaves", "Glob", files(file("../../etc/passwd"))},
		{"absolute path", "Glob", files(file("/etc/passwd"))},
		{"empty path", "Glob", files(file(""))},
		{"path with an escape", "Glob", files(file(`a\u001b[2J`))},
		{"long path", "Glob", files(file(strings.Repeat("a/", 600) + "b"))},
		{"unknown type", "Glob", files(`{"path":"a","type":"door","size":1,"MtimeNS":1}`)},
		{"negative size", "Glob", files(`{"path":"a","type":"file","size":-1,"MtimeNS":1}`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, p := newPeer(t)
			go func() {
				p.await(wire.KindOpen)
				p.send(test.attack)
			}()
			err := calls[test.call](deadline(t), g)
			var v *wire.Violation
			if !errors.As(err, &v) || code(err) != sandbox.CodeProtocol {
				t.Fatalf("%s: %v, want a violation", test.call, err)
			}
		})
	}
}

// A peer that lets the host send and never reads cannot make it hold more than
// the windows.
func TestPeerThatDoesNotRead(t *testing.T) {
	g, p := newPeer(t)
	go func() {
		p.await(wire.KindOpen)
		p.send(event(started))
	}()
	process, err := g.Start(deadline(t), guest.Command{Args: []string{"x"}}, guest.Streams{Stdin: zeros{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := process.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Wait: %v", err)
	}
	if err := process.Signal(9, true); err != nil {
		t.Fatalf("Signal must not wait for the peer: %v", err)
	}
}

// FuzzPeer sends anything at all to a host that waits for a process, a
// download, an upload and a listing. Every call must return.
func FuzzPeer(f *testing.F) {
	f.Add(join(event(started), data(1, 3), event(exited), closing(`{}`)))
	f.Add(message(wire.KindClose, 2, `{"size":3}`))
	f.Add(raw(1<<31, 3, "xxxx"))
	f.Fuzz(func(t *testing.T, b []byte) {
		conn, far := net.Pipe()
		defer far.Close()
		go func() {
			_, _ = far.Write(hello)
			_, _ = far.Write(b)
			_ = far.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		g, err := guest.New(ctx, conn, wire.Hello{})
		if err != nil {
			return
		}
		done := make(chan struct{})
		for _, call := range calls {
			go func() {
				_ = call(ctx, g)
				done <- struct{}{}
			}()
		}
		for range calls {
			<-done
		}
		if ctx.Err() != nil {
			t.Fatal("a call waited for its context although the peer had hung up")
		}
		_ = g.Close()
	})
}
