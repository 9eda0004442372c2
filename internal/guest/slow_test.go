package guest_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
)

// answered reads what the host sends once begin is closed. It opens what
// it is asked to, closes what is put, grants all that comes and counts it.
func (p *peer) answered(begin <-chan struct{}, got chan<- int) {
	<-begin
	for {
		f, err := p.frames.Next()
		if err != nil {
			return
		}
		switch f.Kind {
		case wire.KindOpen:
			var req wire.Request
			if wire.Decode(f.Payload, &req) == nil && req.Op == wire.OpDial {
				p.send(message(wire.KindEvent, f.Channel, opened))
			} else {
				p.send(message(wire.KindClose, f.Channel, `{"Size":1}`))
			}
		case wire.KindData:
			_, content, _ := f.Stream()
			p.send(wire.AppendWindow(nil, f.Channel, wire.Stdin, len(content)))
			got <- len(content)
		}
	}
}

// dialAll opens all connections into a sandbox that there may be, to an agent that then reads
// nothing until read is called.
func dialAll(t *testing.T) (g *guest.Guest, all []net.Conn, read func(), got chan int) {
	t.Helper()
	g, p := newPeer(t)
	go func() {
		for range wire.MaxDials {
			f := p.await(wire.KindOpen)
			p.send(message(wire.KindEvent, f.Channel, opened))
		}
	}()
	for range wire.MaxDials {
		c, err := g.Dial(deadline(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	begin, got := make(chan struct{}), make(chan int, 1<<16)
	read = sync.OnceFunc(func() { close(begin) })
	t.Cleanup(read)
	go p.answered(begin, got)
	return g, all, read, got
}

// An agent that is slow is no agent that does not read: uploads on all connections that there
// may be wait for it, whatever their windows come to together, and then arrive.
func TestManyUploadsThroughASlowAgent(t *testing.T) {
	g, all, read, got := dialAll(t)
	const each = 2 * wire.WindowSize
	var uploads sync.WaitGroup
	for _, c := range all {
		uploads.Go(func() {
			if n, err := c.Write(make([]byte, each)); n != each || err != nil {
				t.Errorf("%d bytes were taken: %v", n, err)
			}
		})
	}
	puts := make(chan error, 40)
	for range cap(puts) {
		go func() {
			_, err := g.Put(deadline(t), []wire.PutFile{{Path: "f", Content: make([]byte, wire.MaxPut-1)}})
			puts <- err
		}()
	}
	time.Sleep(200 * time.Millisecond) // all of them wait
	if err := g.Err(); err != nil {
		t.Fatalf("an agent that has not read for a moment: %v", err)
	}
	read()
	for left := len(all) * each; left > 0; {
		select {
		case n := <-got:
			left -= n
		case <-g.Done():
			t.Fatalf("%d bytes did not come: %v", left, g.Err())
		}
	}
	uploads.Wait()
	for range cap(puts) {
		if err := <-puts; err != nil {
			t.Error(err)
		}
	}
}

// Who waits for a slow agent waits no longer than it wants to.
func TestWhoWaitsForASlowAgentCanStop(t *testing.T) {
	g, all, _, _ := dialAll(t)
	_ = all[1].SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	failed := make([]chan error, len(all))
	for i, c := range all {
		failed[i] = make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, wire.WindowSize))
			failed[i] <- err
		}()
	}
	// What one of them sent may have been within what the host holds; most was not.
	if err := <-failed[1]; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a deadline: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := g.Stat(ctx, "f"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a question: %v", err)
	}
	stopped := 0
	for i, c := range all {
		_ = c.Close()
		if i != 1 && errors.Is(<-failed[i], net.ErrClosed) {
			stopped++
		}
	}
	if stopped < len(all)/2 {
		t.Errorf("%d of %d waited", stopped, len(all))
	}
	if err := g.Err(); err != nil {
		t.Error(err)
	}
}

// A door that is closed waits for no agent.
func TestDoorOfASlowAgentCloses(t *testing.T) {
	g, p := newPeer(t)
	go func() {
		f := p.await(wire.KindOpen)
		p.send(message(wire.KindEvent, f.Channel, opened))
	}()
	d, err := g.OpenDoors(deadline(t), hostileDoors, netip.MustParseAddrPort("127.66.0.1:53"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 20 {
		go func() { _, _ = g.Put(ctx, []wire.PutFile{{Path: "f", Content: make([]byte, wire.MaxPut-1)}}) }()
	}
	time.Sleep(100 * time.Millisecond)
	accepted := make(chan error)
	go func() {
		_, err := d.All()[0].Accept()
		accepted <- err
	}()
	time.Sleep(50 * time.Millisecond)
	_ = d.Close()
	select {
	case err := <-accepted:
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the agent")
	}
}
