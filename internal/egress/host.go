package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"pinfold/sandbox"
)

// How long the way to a server may take.
const (
	lookUpTimeout  = 5 * time.Second
	dialTimeout    = 10 * time.Second // for all addresses of a name
	addressTimeout = 4 * time.Second  // for one
	maxAddresses   = 16
)

// How many connections may be open at once, of all sandboxes together.
const leastConnections, mostConnections = 16, 4096

// How many requests may be under way at once where they are read, of one sandbox and of all
// together: of each answer the host may have maxStreamBuffer in its memory.
const maxRequests, mostRequests = 256, 4096

// Host is what all relays of a process have in common. It is safe for concurrent use.
type Host struct {
	// Own says that who declares endpoints says where they are. Else the operator does, and
	// nobody is told.
	Own bool

	resolver interface {
		LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	}
	roots *x509.CertPool // whom to trust where TLS is ended; nil: whom this system trusts
	own   own
	most  int64 // connections
	open  atomic.Int64
	asked atomic.Int64 // requests under way

	port func(int) int // of tests: where a server really listens; nil: where it says
}

// NewHost returns a Host. So many connections may be open at once, of all sandboxes
// together; 0: what the limit on open files allows.
func NewHost(connections int) *Host {
	h := &Host{resolver: &net.Resolver{PreferGo: true}, most: int64(connections)}
	if h.most == 0 {
		h.most = max(leastConnections, min(mostConnections, openFiles()/8)) // each has two descriptors, and most are for others
	}
	return h
}

// within counts one more, if there is room for it.
func within(n *atomic.Int64, most int64) bool {
	if n.Add(1) <= most {
		return true
	}
	n.Add(-1)
	return false
}

// enter counts a connection, if there is room for it on the host, of which one sandbox may
// have half. leave follows.
func (r *Relay) enter() bool {
	if !within(&r.taken, (r.host.most+1)/2) {
		return false
	}
	if !within(&r.host.open, r.host.most) {
		r.taken.Add(-1)
		return false
	}
	return true
}

func (r *Relay) leave() {
	r.taken.Add(-1)
	r.host.open.Add(-1)
}

// ask counts a request, if there is room for it. answered follows.
func (r *Relay) ask() bool {
	if !within(&r.asked, maxRequests) {
		return false
	}
	if !within(&r.host.asked, mostRequests) {
		r.asked.Add(-1)
		return false
	}
	return true
}

func (r *Relay) answered() {
	r.asked.Add(-1)
	r.host.asked.Add(-1)
}

// forbidden is an address that may not be dialled.
type forbidden struct{ why error }

func (f *forbidden) Error() string { return f.why.Error() }

// Why a connection to a server cannot be had, as programs and results say it.
var (
	errNoName  = errors.New("the name was not found")
	errLookUp  = errors.New("the name could not be looked up")
	errSlowDNS = errors.New("looking the name up took too long")
	errRefused = errors.New("the server refused the connection")
	errNoRoute = errors.New("there is no way to the server")
	errSlow    = errors.New("the server did not answer in time")
	errDial    = errors.New("the connection to the server failed")
)

// dial connects to a name's server. given, if it is valid, is where the operator says it is.
func (h *Host) dial(ctx context.Context, host string, port int, given netip.Addr) (net.Conn, error) {
	if sandbox.IsPattern(host) { // nobody has said which name
		return nil, errNoName
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addresses := []netip.Addr{given}
	if !given.IsValid() {
		var err error
		if addresses, err = h.lookUp(ctx, host); err != nil {
			return nil, err
		}
	}
	if h.port != nil {
		port = h.port(port)
	}
	last := errNoName
	for _, a := range addresses {
		conn, err := h.dialOne(ctx, a, port, given.IsValid())
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, last
}

// dialOne connects to one address. It is checked where the system call is about to be
// made, so that there is no way around it.
func (h *Host) dialOne(ctx context.Context, a netip.Addr, port int, named bool) (net.Conn, error) {
	d := net.Dialer{
		Timeout: addressTimeout,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return &forbidden{err}
			}
			if named {
				return nil
			}
			return h.check(to.Addr())
		},
	}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(a.String(), strconv.Itoa(port)))
	if err == nil {
		return conn, nil
	}
	var denied *forbidden
	var slow net.Error
	switch {
	case errors.As(err, &denied):
		return nil, denied
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, errRefused
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return nil, errNoRoute
	case errors.As(err, &slow) && slow.Timeout():
		return nil, errSlow
	}
	return nil, errDial
}

// check says whether an address may be dialled of which the operator has said nothing.
func (h *Host) check(a netip.Addr) error {
	if err := Public(a); err != nil {
		return &forbidden{err}
	}
	ours, err := h.own.has(a)
	switch {
	case err != nil:
		return &forbidden{errors.New("the addresses of this machine cannot be read")}
	case ours:
		return &forbidden{errors.New(a.String() + " is this machine's own")}
	}
	return nil
}

// lookUp asks the host's resolver. The dot at the end keeps it from adding domains of the
// host's.
func (h *Host) lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	found, err := h.resolver.LookupNetIP(ctx, "ip", host+".")
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return nil, errNoName
	case err != nil && ctx.Err() != nil, errors.As(err, &dns) && dns.IsTimeout:
		return nil, errSlowDNS
	case err != nil:
		return nil, errLookUp
	}
	var all []netip.Addr
	for _, a := range found[:min(len(found), maxAddresses)] {
		if a = a.Unmap(); !slices.Contains(all, a) { // resolvers give IPv4 in either form
			all = append(all, a)
		}
	}
	return all, nil
}
