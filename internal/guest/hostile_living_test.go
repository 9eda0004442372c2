package guest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// entry is one entry of a listing; rest are further fields.
func entry(path, rest string) string {
	if rest == "" {
		rest = `"type":"file","size":1,"mode":420,"MtimeNS":1,"uid":1,"gid":1`
	}
	return `{"path":"` + path + `",` + rest + `}`
}

func entries(list ...string) []byte {
	return event(`{"kind":"entries","entries":[` + strings.Join(list, ",") + `]}`)
}

// watched is changes of a watch as data.
func watched(changes ...string) []byte {
	var b []byte
	for _, text := range changes {
		var e wire.WatchEvent
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			panic(text + ": " + err.Error())
		}
		b = wire.AppendWatchEvent(b, &e)
	}
	return wire.AppendData(nil, 1, wire.Stdout, b)
}

const (
	watchReady = `{"kind":"ready"}`
	opened     = `{"kind":"opened"}`
)

// Each attack is what an agent sends after it has been asked. All of them must
// end the connection with a violation.
func TestLivingViolations(t *testing.T) {
	long := strings.Repeat("n", 250) + "/"
	var many []byte // entries of long names, more bytes than a listing may have
	for range 10 {
		many = append(many, entries(entry(strings.Repeat(long, 3)+"x", ""))...)
	}
	for _, test := range []struct {
		name, call string
		attack     []byte
	}{
		{"more than the range", "ReadRange", data(1, 11)},
		{"range of another size", "ReadRange", join(data(1, 5), wire.AppendEOF(nil, 1, 1), closing(`{"size":4}`))},
		{"negative range", "ReadRange", closing(`{"size":-1}`)},

		{"too many entries", "List", entries(entry("a", ""), entry("b", ""), entry("c", ""), entry("d", ""), entry("e", ""), entry("f", ""))},
		{"too many entries, in parts", "List", join(entries(entry("a", ""), entry("b", ""), entry("c", "")), entries(entry("d", ""), entry("e", ""), entry("f", "")))},
		{"entries without end", "List", many},
		{"no entries", "List", entries()},
		{"an entry twice", "List", join(entries(entry("a", "")), entries(entry("a", "")), closing(`{}`))},
		{"an entry too deep", "List", entries(entry("a/b/c", ""))},
		{"an entry outside", "List", entries(entry("../x", ""))},
		{"an absolute entry", "List", entries(entry("/etc/passwd", ""))},
		{"an entry with an escape", "List", entries(entry(`a\u001b[2J`, ""))},
		{"an entry without a name", "List", entries(entry("", ""))},
		{"an unknown type", "List", entries(entry("a", `"type":"door"`))},
		{"a negative size", "List", entries(entry("a", `"type":"file","size":-1`))},
		{"a negative user", "List", entries(entry("a", `"type":"file","uid":-1`))},
		{"a mode beyond", "List", entries(entry("a", `"type":"file","mode":65535`))},
		{"a target of no link", "List", entries(entry("a", `"type":"file","target":"/etc"`))},
		{"a long target", "List", entries(entry("a", `"type":"symlink","target":"`+strings.Repeat("t", wire.MaxPath+1)+`"`))},
		{"files of a listing", "List", event(`{"kind":"files","files":[{"path":"a","type":"file","size":1,"MtimeNS":1}]}`)},
		{"entries of a glob", "Glob", entries(entry("a", ""))},
		{"data of a listing", "List", data(1, 1)},

		{"event of a move", "Move", entries(entry("a", ""))},
		{"data of a move", "Move", data(1, 1)},
		{"target of a file", "Stat", closing(`{"stat":{"type":"file","size":1,"mode":0,"MtimeNS":0,"uid":0,"gid":0,"target":"x"}}`)},

		{"changes before ready", "Watch", watched(`{"kind":"created","path":"a"}`)},
		{"ready twice", "Watch", watched(watchReady, watchReady)},
		{"ready with a path", "Watch", watched(`{"kind":"ready","path":"a"}`)},
		{"overflow with a path", "Watch", watched(watchReady, `{"kind":"overflow","path":"a"}`)},
		{"unknown change", "Watch", watched(watchReady, `{"kind":"owned","path":"a"}`)},
		{"change without a path", "Watch", watched(watchReady, `{"kind":"created"}`)},
		{"change outside", "Watch", watched(watchReady, `{"kind":"created","path":"../a"}`)},
		{"change with an escape", "Watch", watched(watchReady, `{"kind":"created","path":"a\u001b[2J"}`)},
		{"change with one field more", "Watch", wire.AppendData(nil, 1, 1, []byte("\x00\x09\x05ready\x00\x00\x00"))},
		{"change of nothing", "Watch", wire.AppendData(nil, 1, 1, []byte{0, 0})},
		{"change that is too long", "Watch", wire.AppendData(nil, 1, 1, []byte{(wire.MaxWatchEvent + 1) >> 8, 1})},
		{"change of the longest kind", "Watch", wire.AppendData(nil, 1, 1, append([]byte{wire.MaxWatchEvent >> 8, 0}, make([]byte, wire.MaxWatchEvent)...))},
		{"a watch that just ends", "Watch", join(watched(watchReady), closing(`{}`))},
		{"event of a watch", "Watch", event(started)},
		{"error stream of a watch", "Watch", data(2, 1)},

		{"a connection that was never opened", "Dial", closing(`{}`)},
		{"opened twice", "Dial", join(event(opened), event(opened))},
		{"a fault after opened", "Dial", join(event(opened), closing(`{"error":{"code":"port_closed","message":"x"}}`))},
		{"another event of a connection", "Dial", event(started)},
		{"error stream of a connection", "Dial", join(event(opened), data(2, 1))},
		{"data after its end", keeping, join(event(opened), wire.AppendEOF(nil, 1, 1), data(1, 1))},
		{"an end twice", keeping, join(event(opened), wire.AppendEOF(nil, 1, 1), wire.AppendEOF(nil, 1, 1))},
		{"a window too large", "Dial", join(event(opened), wire.AppendWindow(nil, 1, 0, 1))},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, p := newPeer(t)
			go func() {
				p.await(wire.KindOpen)
				p.send(test.attack)
			}()
			call := calls[test.call]
			if test.call == keeping {
				call = dialAndKeep
			}
			err := call(deadline(t), g)
			var v *wire.Violation
			if !errors.As(err, &v) && !errors.As(g.Err(), &v) {
				t.Fatalf("%s: %v, want a violation", test.call, err)
			}
		})
	}
}

// keeping calls dialAndKeep.
const keeping = "Dial and keep"

// dialAndKeep keeps the connection when it has ended: what comes after that is looked at as
// long as somebody has it.
func dialAndKeep(ctx context.Context, g *guest.Guest) error {
	c, err := g.Dial(ctx, 80)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err = io.Copy(io.Discard, c); err != nil {
		return err
	}
	select {
	case <-g.Done():
	case <-ctx.Done():
	}
	return nil
}

// What a good agent would send must pass, so that the test above proves
// something.
func TestLivingWellBehaved(t *testing.T) {
	for call, good := range map[string][]byte{
		"ReadRange": join(data(1, 10), wire.AppendEOF(nil, 1, 1), closing(`{"size":10}`)),
		"List":      join(entries(entry("a", ""), entry("a/b", "")), entries(entry("c", `"type":"symlink","mode":511,"target":"\u001b"`)), closing(`{"more":true}`)),
		"Move":      closing(`{}`),
		"Dial":      join(event(opened), data(1, 10), wire.AppendWindow(nil, 1, 0, 1)[:0], wire.AppendEOF(nil, 1, 1), closing(`{}`)),
	} {
		g, p := newPeer(t)
		go func() {
			p.await(wire.KindOpen)
			p.send(good)
		}()
		if err := calls[call](deadline(t), g); err != nil || g.Err() != nil {
			t.Errorf("%s: %v, %v", call, err, g.Err())
		}
	}
	g, p := newPeer(t)
	go func() {
		p.await(wire.KindOpen)
		lines := watched(watchReady, `{"kind":"created","path":"a","dir":true}`, `{"kind":"overflow"}`)
		p.send(lines[:20]) // frames in pieces
		p.send(lines[20:])
		p.send(closing(`{"error":{"code":"file_not_found","message":"gone"}}`))
	}()
	n := 0
	err := g.Watch(deadline(t), ".", true, func(wire.WatchEvent) error { n++; return nil })
	if code(err) != sandbox.CodeFileNotFound || n != 3 {
		t.Errorf("Watch: %d changes, %v", n, err)
	}
}

// An agent that sends more than the window of a connection that nobody reads is
// found out, and what it could send is no more than that.
func TestDialWindowOverrun(t *testing.T) {
	g, p := newPeer(t)
	go func() {
		p.await(wire.KindOpen)
		p.send(event(opened))
		p.send(flood(5))
	}()
	c, err := g.Dial(deadline(t), 80)
	if err != nil && code(err) != sandbox.CodeProtocol {
		t.Fatal(err)
	}
	<-g.Done()
	var v *wire.Violation
	if !errors.As(g.Err(), &v) {
		t.Errorf("%v, want a violation", g.Err())
	}
	if c != nil {
		_ = c.Close()
	}
}

// However many connections an agent would open, the host counts for itself; what is
// over makes room.
func TestDialsAreCountedOutside(t *testing.T) {
	g, p := newPeer(t)
	go func() {
		for range wire.MaxDials + 1 {
			f := p.await(wire.KindOpen)
			p.send(message(wire.KindEvent, f.Channel, opened))
		}
	}()
	var all []net.Conn
	for range wire.MaxDials {
		c, err := g.Dial(deadline(t), 80)
		if err != nil {
			t.Fatalf("connection %d: %v", len(all), err)
		}
		all = append(all, c)
	}
	if _, err := g.Dial(deadline(t), 80); code(err) != sandbox.CodeResourceUnavailable {
		t.Fatalf("one more: %v", err)
	}
	p.send(join(wire.AppendEOF(nil, 1, 1), closing(`{}`))) // the agent ends the first
	if _, err := all[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for soon := deadline(t); ; time.Sleep(time.Millisecond) {
		c, err := g.Dial(soon, 80)
		if err == nil {
			all = append(all, c)
			break
		}
		if code(err) != sandbox.CodeResourceUnavailable {
			t.Fatal(err)
		}
	}
	for _, c := range all {
		_ = c.Close()
	}
}

// A connection that was closed may still get what was under way; all of it is
// dropped, and an agent that never closes is given up.
func TestDialLateData(t *testing.T) {
	g, p := newPeer(t)
	go func() {
		p.await(wire.KindOpen)
		p.send(event(opened))
	}()
	c, err := g.Dial(deadline(t), 80)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	p.await(wire.KindEOF)
	p.send(flood(8))
	p.send(join(wire.AppendEOF(nil, 1, 1), closing(`{}`)))
	go func() {
		p.await(wire.KindOpen)
		p.send(message(wire.KindClose, 2, `{}`))
	}()
	if err := g.KillAll(deadline(t)); err != nil {
		t.Fatalf("the next operation: %v", err)
	}
}

// A watch whose caller is slow holds no more than a window and one line.
func TestWatchWindowOverrun(t *testing.T) {
	g, p := newPeer(t)
	stuck := make(chan struct{})
	go func() {
		p.await(wire.KindOpen)
		p.send(watched(watchReady))
		line := watched(`{"kind":"created","path":"` + strings.Repeat("n", 200) + `"}`)
		for range 3 * wire.WindowSize / len(line) {
			p.send(line)
		}
	}()
	ended := make(chan error, 1)
	go func() {
		ended <- g.Watch(deadline(t), ".", true, func(wire.WatchEvent) error { <-stuck; return nil })
	}()
	select {
	case <-g.Done():
	case <-time.After(time.Minute):
		t.Error("not found out")
	}
	close(stuck)
	if err := <-ended; code(err) != sandbox.CodeProtocol {
		t.Errorf("Watch: %v", err)
	}
}

// A listing that keeps to its number of entries and not to its bytes is found
// out.
func TestListingBytes(t *testing.T) {
	g, p := newPeer(t)
	go func() {
		p.await(wire.KindOpen)
		long := entry(strings.Repeat(strings.Repeat("n", 250)+"/", 3)+"x", "")
		some := make([]string, 60)
		for i := range some {
			some[i] = long
		}
		frame := entries(some...)
		for range wire.MaxListBytes/(750*len(some)) + 2 {
			p.send(frame)
		}
	}()
	_, err := g.List(deadline(t), ".", 10, wire.MaxFiles)
	var v *wire.Violation
	if !errors.As(err, &v) {
		t.Errorf("%v, want a violation", err)
	}
}
