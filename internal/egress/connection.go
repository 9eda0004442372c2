package egress

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"pinfold/sandbox"
)

const (
	// decideTimeout is how long a guest may take to say what decides.
	decideTimeout = 10 * time.Second
	// idleTimeout ends a connection on which nothing moves.
	idleTimeout = 5 * time.Minute

	portHTTP, portTLS = 80, 443
)

// connection is one connection of a guest's, and the one to the server.
type connection struct {
	relay    *Relay
	endpoint *endpoint
	number   int64    // among the relay's
	door     Door     // whose host becomes the name that is meant, behind a wildcard
	raw      net.Conn // the guest's
	guest    net.Conn // the same, or what is in its TLS
	scheme   string   // of what is passed on by requests

	single  bool           // it has one request, and is over when that is answered
	answers sync.WaitGroup // what comes back
	said    bool           // to the guest: why not
	begun   time.Time

	undecided bool         // the guest has begun and not said enough
	moved     atomic.Int64 // when something did last, in nanoseconds

	mu     sync.Mutex
	server net.Conn // nil: not there yet
	// answered is that of the forwarder in the server's place; passed counts the HTTP/1
	// requests that it got.
	answered *answered
	passed   int
	over     bool
}

var (
	errOver   = errors.New("the connection is over")
	errLimits = errors.New("a limit is reached")
	errMute   = errors.New("the program did not say in time what it wants")
)

// serve passes a connection on as long as it may.
func (c *connection) serve() {
	c.touch()
	c.begun = time.Now()
	var err error
	if c.door.Proxy != "" {
		err = c.proxied()
	} else {
		err = c.through()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && c.undecided {
		c.endpoint.fail(errMute)
	}
	if err != nil && !c.said {
		c.cut()
	}
	c.answers.Wait()
	c.finish()
}

// through passes on what comes through a door for a name at a port.
func (c *connection) through() error {
	switch c.door.Port {
	case portTLS:
		return c.tls(nil)
	case portHTTP:
		return c.http(c.soon(c.guest))
	}
	return c.any()
}

// finish closes what has come to its end: the kernel still delivers what is on its way.
func (c *connection) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	_ = c.raw.Close()
	if c.server != nil {
		_ = c.server.Close()
	}
}

// any passes on what has no port of its own. The server may be who speaks first, but where
// requests are held against rules, or the program has to say a name.
func (c *connection) any() error {
	if c.decidesFirst() {
		c.undecided = true
		_ = c.guest.SetReadDeadline(c.begun.Add(decideTimeout))
	} else if err := c.connect(); err != nil {
		return c.refuseDial(false, err)
	}
	buffer := takeBuffer()
	defer giveBuffer(buffer)
	data := (*buffer)[:0]
	for {
		n, err := c.guest.Read((*buffer)[len(data):])
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) && c.server != nil { // no line of HTTP will come of it
				if err := c.up(data); err != nil {
					return err
				}
				return c.endOfGuest()
			}
			if errors.Is(err, os.ErrDeadlineExceeded) && len(data) == 0 && c.server != nil && c.waits() {
				continue
			}
			return err
		}
		if len(data) == 0 {
			c.undecided, c.begun = true, time.Now()
			_ = c.guest.SetReadDeadline(c.begun.Add(decideTimeout))
		}
		data = (*buffer)[:len(data)+n]
		switch recognize(data) {
		case speaksTLS:
			return c.tls(data)
		case speaksHTTP:
			return c.http(io.MultiReader(bytes.NewReader(bytes.Clone(data)), c.soon(c.guest)))
		case speaksOther:
			return c.other(data)
		}
		if len(data) == len(*buffer) {
			return c.refuse(false, sandbox.DeniedMalformed, errRequest)
		}
	}
}

// decidesFirst says whether there is no server before the program has said something.
func (c *connection) decidesFirst() bool { return c.ruled() || sandbox.IsPattern(c.door.Host) }

// other passes on what begins like no protocol that is looked at.
func (c *connection) other(come []byte) error {
	c.undecided = false
	switch {
	case c.ruled():
		return c.refuse(false, sandbox.DeniedNotHTTP, errNotHTTP)
	case sandbox.IsPattern(c.door.Host):
		return c.refuse(false, sandbox.DeniedNoName, errNamesNone)
	}
	if err := c.up(come); err != nil {
		return err
	}
	return c.copyUp(c.guest)
}

// tls holds a ClientHello, of which some may have come, against the endpoint, and passes
// everything on.
func (c *connection) tls(come []byte) error {
	c.undecided = true
	_ = c.guest.SetReadDeadline(c.begun.Add(decideTimeout))
	hello := append(make([]byte, 0, maxHello), come...)
	for {
		name, err := helloName(hello)
		if errors.Is(err, errMore) {
			n, readErr := c.guest.Read(hello[len(hello):cap(hello)])
			if hello = hello[:len(hello)+n]; n == 0 && readErr != nil {
				return readErr
			}
			continue
		}
		if reason, why := c.holdsName(name, err); why != nil {
			return c.refuse(true, reason, why)
		}
		break
	}
	if c.ruled() {
		return c.endTLS(hello)
	}
	c.undecided = false
	if err := c.connect(); err != nil {
		return c.refuseDial(true, err)
	}
	if err := c.up(hello); err != nil {
		return err
	}
	return c.copyUp(c.guest)
}

// holdsName holds the name that TLS asks for against the endpoint.
func (c *connection) holdsName(name string, err error) (sandbox.DenialReason, error) {
	switch {
	case errors.Is(err, errNotTLS):
		return sandbox.DeniedNotTLS, err
	case errors.Is(err, errHidden):
		return sandbox.DeniedHidden, err
	case errors.Is(err, errNoNames) && c.endpoint.Address != "": // there is nobody else at the operator's address
		return "", nil
	case errors.Is(err, errNoNames):
		return sandbox.DeniedNoSNI, err
	case err != nil:
		return sandbox.DeniedMalformed, err
	}
	host, err := sandbox.CanonicalHost(name)
	if err != nil {
		return sandbox.DeniedSNI, errors.New("TLS asked for " + sandbox.SafeText(name, 80))
	}
	return c.holdsHost(host, sandbox.DeniedSNI, "TLS asked for "+host)
}

// connect connects to the server, once, and has its answers go back.
func (c *connection) connect() error {
	if c.server != nil {
		return nil
	}
	if c.isOver() {
		return errOver
	}
	given, err := c.endpoint.given()
	if err != nil {
		return err
	}
	server, err := c.relay.host.dial(c.relay.life, c.door.Host, c.door.Port, given)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		_ = server.Close()
		return errOver
	}
	c.server = server
	c.touch()
	c.answers.Go(c.copyDown)
	return nil
}

func (c *connection) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// refuse writes down a denial and ends the connection. Where nothing has gone to the guest
// yet it is told, in its protocol.
func (c *connection) refuse(first bool, reason sandbox.DenialReason, why error) error {
	c.relay.ledger.deny(c.door.Host, c.door.Port, reason, why.Error())
	if first && c.server == nil {
		switch {
		case c.door.Port == portHTTP, c.scheme == "https":
			c.say(answer("403 Forbidden", why.Error()+" ("+string(reason)+")"))
		case c.door.Port == portTLS && reason != sandbox.DeniedNotTLS:
			c.say(alert(alertUnrecognizedName))
		}
	}
	return why
}

// refuseDial says that there is no connection to the server.
func (c *connection) refuseDial(first bool, err error) error {
	var denied *forbidden
	switch {
	case errors.As(err, &denied):
		c.relay.ledger.deny(c.door.Host, c.door.Port, sandbox.DeniedAddress, err.Error())
	case c.relay.life.Err() != nil:
		return err
	default:
		c.endpoint.fail(err)
	}
	if first && c.server == nil {
		switch c.door.Port {
		case portHTTP:
			c.say(answer("502 Bad Gateway", err.Error()))
		case portTLS:
			c.say(alert(alertInternalError))
		}
	}
	return err
}

// Alerts of TLS (RFC 8446).
const (
	alertInternalError    = 80
	alertUnrecognizedName = 112
)

func alert(code byte) []byte { return []byte{21, 3, 3, 0, 2, 2, code} }

// sayTimeout is for what a guest is told at the end; it may not be reading.
const sayTimeout = time.Second

// say tells the guest why not, and ends.
func (c *connection) say(text []byte) {
	c.said = true
	_ = c.guest.SetDeadline(time.Now().Add(sayTimeout))
	if _, err := c.guest.Write(text); err != nil {
		return
	}
	// What the guest has sent and nobody read would break the connection off before it has
	// read the answer.
	_ = closeWrite(c.guest)
	_, _ = io.Copy(io.Discard, io.LimitReader(c.guest, maxHead))
}

// cut breaks the connection off at both ends. It may be called again.
func (c *connection) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	breakOff(c.raw)
	if c.server != nil {
		breakOff(c.server)
	}
}

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
