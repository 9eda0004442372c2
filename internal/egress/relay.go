package egress

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pinfold/sandbox"
)

// Door is a listener of one machine, for a declared name at a port of its, or a proxy.
type Door struct {
	Listener net.Listener
	Host     string // canonical; of a proxy where it is inside
	Port     int
	Proxy    Proxy
	At       netip.Addr // inside
}

// Packets is a socket at which packets of programs inside arrive.
type Packets interface {
	ReadFrom(b []byte) (n int, from netip.AddrPort, err error)
	WriteTo(b []byte, to netip.AddrPort) error
	Close() error
}

// Relay is the way out of one machine. It is safe for concurrent use.
type Relay struct {
	host  *Host
	means Means

	made   []sandbox.Endpoint // what was declared at first: by these, a name is one host's for ever
	now    atomic.Pointer[terms]
	ledger *ledger
	doors  []Door
	names  Packets // where programs look names up; nil: nowhere
	life   context.Context
	end    context.CancelFunc

	going sync.WaitGroup

	taken, asked atomic.Int64 // of the host's connections and requests

	mu         sync.Mutex
	servers    int64 // connections of forwarders, also those that are being made
	closed     bool
	begun      int64 // connections, ever
	open       map[*connection]bool
	asking     map[*asking]bool
	dialled    map[*dialled]bool // by forwarders
	forwarders []*forwarder
	named      map[string]bool // names that wildcards have stood for
}

// Open begins to pass on what arrives at the doors. They are the relay's from now on, also
// after an error, and so is names, where programs look up names; it may be nil. The
// declaration must be canonical, and the doors and the means be of it.
func Open(h *Host, n sandbox.Network, m Means, doors []Door, names Packets) (*Relay, error) {
	if n.Asks() { // there is nothing that they are for
		n.Limits = sandbox.DefaultNetworkLimits()
	}
	r := &Relay{host: h, means: m, made: n.Endpoints, ledger: newLedger(n), doors: doors, names: names, open: map[*connection]bool{}, asking: map[*asking]bool{}, dialled: map[*dialled]bool{}, named: map[string]bool{}}
	r.now.Store(&terms{declared: n.Endpoints, limits: n.Limits, secrets: m.Secrets})
	r.ledger.own = h.Own
	r.life, r.end = context.WithCancel(context.Background())
	at := map[string]netip.Addr{}
	for _, d := range doors {
		if d.Proxy != "" {
			continue
		}
		at[d.Host] = d.At
		if r.ledger.find(d.Host) == nil {
			r.Close()
			return nil, fmt.Errorf("egress: a door for %s, which is not declared", d.Host)
		}
	}
	if err := m.serve(n); err != nil {
		r.Close()
		return nil, err
	}
	for _, d := range doors {
		r.going.Go(func() { r.accept(d) })
	}
	if names != nil {
		r.going.Go(func() { r.lookUps(at) })
	}
	return r, nil
}

// Close ends everything: connections break off, listeners close. It returns when nothing
// goes on any more, and may be called again.
func (r *Relay) Close() {
	r.end()
	r.mu.Lock()
	r.closed = true
	for c := range r.open {
		c.cut()
	}
	servers := slices.Collect(maps.Keys(r.dialled))
	forwarders := r.forwarders
	r.mu.Unlock()
	for _, f := range forwarders {
		f.transport.CloseIdleConnections()
	}
	for _, d := range servers {
		_ = d.Close()
	}
	for _, d := range r.doors {
		_ = d.Listener.Close()
	}
	if r.names != nil {
		_ = r.names.Close()
	}
	r.going.Wait()
}

// Use is what went on until now.
func (r *Relay) Use() *sandbox.NetworkUse { return r.ledger.use(r.now.Load().declared) }

// acceptPause is between two attempts where the host is short of something.
const acceptPause = 20 * time.Millisecond

// accept takes what arrives at a door, until the end.
func (r *Relay) accept(d Door) {
	for {
		guest, err := d.Listener.Accept()
		if err == nil && r.admit(guest, d) {
			continue
		}
		if r.life.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		select {
		case <-r.life.Done():
			return
		case <-time.After(acceptPause):
		}
	}
}

// admit begins with a connection, where there is room for it, or says that there is none.
// Then others wait in the kernel for a moment, at the cost of who made them.
func (r *Relay) admit(guest net.Conn, d Door) (admitted bool) {
	e := &endpoint{Host: d.Host} // a proxy's, until it knows more
	if d.Proxy == "" {
		e = r.ledger.find(d.Host)
		e.connections.Add(1)
	}
	c := &connection{relay: r, endpoint: e, door: d, raw: guest, guest: guest, scheme: "http"}
	r.mu.Lock()
	now := r.now.Load()
	full, closed, denied := int64(len(r.open)) >= now.limits.Connections, r.closed, d.Proxy == "" && len(now.at(d.Host, d.Port)) == 0
	switch {
	case closed:
	case denied:
		r.ledger.deny(d.Host, d.Port, sandbox.DeniedNarrowed, "")
	case full:
		r.ledger.deny(d.Host, d.Port, sandbox.DeniedConnections, "")
	case !r.enter():
		full = true
		r.ledger.deny(d.Host, d.Port, sandbox.DeniedBusy, "")
	default:
		r.begun++
		c.number = r.begun
		r.open[c] = true
		r.going.Go(func() {
			defer r.forget(c)
			c.serve()
		})
	}
	r.mu.Unlock()
	if full || closed || denied {
		breakOff(guest)
	}
	return !full && !closed && !denied
}

// forget ends with a connection that is over.
func (r *Relay) forget(c *connection) {
	c.cut()
	r.mu.Lock()
	delete(r.open, c)
	r.mu.Unlock()
	r.leave()
}

// breakOff closes a connection so that the other end learns that it did not end well.
func breakOff(c net.Conn) {
	if tcp, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
