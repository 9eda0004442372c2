package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"pinfold/sandbox"
)

// A proxy is a door for programs that speak through a proxy only. What it is asked for is
// looked up among the doors, and goes on as if it had come through that one: nothing passes
// here that does not pass there.

// Proxy is what is spoken at a door that is for all that is declared.
type Proxy string

// The proxies. The zero value is none: the door is for one name at one port.
const (
	ProxyHTTP  Proxy = "http"  // CONNECT, and targets in absolute form (RFC 9110, 9112)
	ProxySOCKS Proxy = "socks" // version 5, CONNECT to names (RFC 1928)
)

// proxied reads what a program wants of a proxy, in time, and goes on with that.
func (c *connection) proxied() error {
	c.undecided = true
	_ = c.guest.SetDeadline(c.begun.Add(decideTimeout))
	if c.door.Proxy == ProxySOCKS {
		return c.socks()
	}
	in := bufio.NewReaderSize(c.guest, maxHead)
	head, err := readHead(in)
	if err != nil && !errors.Is(err, errRequest) {
		return err
	}
	var wanted proxyRequest
	if err == nil {
		wanted, err = parseProxyHead(head)
	}
	if err != nil {
		return c.refuseProxied(err, answer("400 Bad Request", err.Error()))
	}
	if reason, err := c.direct(wanted.host, wanted.port); err != nil {
		return c.deniedBy(err, answer("403 Forbidden", err.Error()+" ("+string(reason)+")"))
	}
	come, _ := in.Peek(in.Buffered())
	if wanted.connect {
		if _, err := c.guest.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
			return err
		}
		c.goOn(come)
		return c.through()
	}
	c.single = true
	c.goOn(append(wanted.head, come...))
	return c.http(c.soon(c.guest))
}

// goOn has the connection be as if nothing but this had come.
func (c *connection) goOn(come []byte) {
	_ = c.guest.SetDeadline(time.Time{})
	c.begun, c.guest = time.Now(), &begun{Conn: c.guest, come: bytes.Clone(come)}
}

// direct has the connection be one to a name at a port, or writes down why not.
func (c *connection) direct(name string, port int) (sandbox.DenialReason, error) {
	reason, err := c.directed(name, port)
	if err != nil {
		c.relay.ledger.deny(name, port, reason, "")
	}
	return reason, err
}

// directed has the connection be one through the door for a name at a port, if there is one
// and it is declared now. A wildcard's is that of the name from then on.
func (c *connection) directed(name string, port int) (sandbox.DenialReason, error) {
	r := c.relay
	host := standsFor(name, r.made)
	at := slices.IndexFunc(r.doors, func(d Door) bool { return d.Proxy == "" && d.Host == host && d.Port == port })
	switch {
	case at < 0:
		return sandbox.DeniedUndeclared, fmt.Errorf("%s:%d is not declared", name, port)
	case sandbox.IsPattern(host) && !r.name(name):
		return sandbox.DeniedNames, errNames
	}
	r.mu.Lock() // with which what is open is looked at when that changes
	defer r.mu.Unlock()
	if len(r.now.Load().at(host, port)) == 0 {
		return sandbox.DeniedNarrowed, errNarrowed
	}
	c.endpoint, c.door = r.ledger.find(host), r.doors[at]
	c.door.Host = name
	c.endpoint.connections.Add(1)
	return "", nil
}

// refuseProxied writes down what a proxy could not read, and says why.
func (c *connection) refuseProxied(why error, text []byte) error {
	c.relay.ledger.deny(c.door.Host, c.door.Port, sandbox.DeniedMalformed, why.Error())
	return c.deniedBy(why, text)
}

// deniedBy tells the program, in its protocol, and ends.
func (c *connection) deniedBy(why error, text []byte) error {
	c.undecided = false
	c.say(text)
	return why
}

// proxyRequest is what an HTTP proxy is asked for.
type proxyRequest struct {
	connect bool
	host    string // canonical
	port    int
	head    []byte // of a request that is passed on: as its server gets it
}

// parseProxyHead reads the head of a request to a proxy. What of it is passed on is not looked
// at here: connection.http does, as everywhere.
func parseProxyHead(head []byte) (p proxyRequest, err error) {
	first, rest, _ := bytes.Cut(head, []byte("\r\n"))
	parts := strings.Split(string(first), " ")
	if len(parts) != 3 || !isToken(parts[0]) || parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0" || strings.ContainsFunc(parts[1], notOfURL) {
		return p, malformed("the first line is no request")
	}
	authority, path := parts[1], ""
	if p.connect = parts[0] == "CONNECT"; !p.connect {
		var plain bool
		if authority, plain = strings.CutPrefix(authority, "http://"); !plain {
			return p, malformed("a proxy is asked for http://…, and by CONNECT for everything else")
		}
		if i := strings.IndexAny(authority, "/?#"); i >= 0 {
			authority, path = authority[:i], authority[i:]
		}
	}
	if p.host, p.port, err = splitHost(authority); err != nil {
		return p, err
	}
	if host, err := sandbox.CanonicalHost(p.host); err != nil || host != p.host {
		return p, malformed("%q is no name", sandbox.SafeText(p.host, 80))
	}
	switch {
	case p.connect:
		return p, p.checkConnect(rest)
	case strings.Contains(path, "#"):
		return p, malformed("the target has a fragment")
	case !strings.HasPrefix(path, "/"):
		path = "/" + path
	}
	if p.port == 0 {
		p.port = portHTTP
	}
	// One request for each connection: the next one may be for another name.
	p.head = fmt.Appendf(nil, "%s %s %s\r\nConnection: close\r\n", parts[0], path, parts[2])
	for line := range bytes.Lines(rest) {
		if name, _, _ := strings.Cut(strings.ToLower(string(line)), ":"); !slices.Contains(ofProxies, name) {
			p.head = append(p.head, line...)
		}
	}
	return p, nil
}

// ofProxies are the headers that are for the proxy and no server.
var ofProxies = []string{"connection", "keep-alive", "proxy-connection", "proxy-authorization", "upgrade", "http2-settings"}

// checkConnect refuses a CONNECT that somebody could read as something else.
func (p proxyRequest) checkConnect(headers []byte) error {
	named := bytes.Contains(bytes.ToLower(append([]byte("\r\n"), headers...)), []byte("\r\nhost:"))
	text := "GET / HTTP/1.1\r\n"
	if !named { // HTTP/1.0 does without
		text += "Host: " + p.host + "\r\n"
	}
	r, err := parseHead(append([]byte(text), headers...))
	switch {
	case err != nil:
		return err
	case p.port == 0:
		return malformed("CONNECT needs a port")
	case r.length != 0 || r.chunked || r.upgrade || r.h2c:
		return malformed("CONNECT has no body and asks for no other protocol")
	case r.host != p.host || r.port != 0 && r.port != p.port:
		return malformed("its Host is not its target")
	}
	return nil
}

// Numbers of SOCKS (RFC 1928).
const (
	socksVersion   = 5
	socksOpen      = 0 // method: whoever asks
	socksNone      = 0xff
	socksConnect   = 1
	socksName      = 3
	socksDone      = 0
	socksFailed    = 1
	socksForbidden = 2
	socksNoCommand = 7
	socksNoAddress = 8
)

var errSOCKS = errors.New("it is not SOCKS 5 without authentication")

// socks reads what a program wants of the SOCKS proxy.
func (c *connection) socks() error {
	greeting, err := c.take(2)
	if err != nil {
		return err
	}
	methods, err := c.take(int(greeting[1]))
	switch {
	case err != nil:
		return err
	case greeting[0] != socksVersion || !bytes.Contains(methods, []byte{socksOpen}):
		return c.refuseProxied(errSOCKS, []byte{socksVersion, socksNone})
	}
	if _, err := c.guest.Write([]byte{socksVersion, socksOpen}); err != nil {
		return err
	}
	wanted, err := c.take(4)
	switch {
	case err != nil:
		return err
	case wanted[0] != socksVersion || wanted[2] != 0:
		return c.refuseProxied(errSOCKS, socksReply(socksFailed))
	case wanted[1] != socksConnect:
		return c.refuseProxied(errors.New("SOCKS is for CONNECT alone"), socksReply(socksNoCommand))
	case wanted[3] != socksName:
		return c.refuseProxied(errors.New("SOCKS is asked for names, and not for addresses: have the proxy look them up (socks5h)"), socksReply(socksNoAddress))
	}
	size, err := c.take(1)
	if err != nil {
		return err
	}
	name, err := c.take(int(size[0]) + 2)
	if err != nil {
		return err
	}
	port := int(name[size[0]])<<8 | int(name[size[0]+1])
	host, err := sandbox.CanonicalHost(string(name[:size[0]]))
	if err != nil || port == 0 {
		return c.refuseProxied(fmt.Errorf("SOCKS is asked for %q at port %d, which is no name with a port", sandbox.SafeText(string(name[:size[0]]), 80), port), socksReply(socksForbidden))
	}
	if _, err := c.direct(host, port); err != nil {
		return c.deniedBy(err, socksReply(socksForbidden))
	}
	if _, err := c.guest.Write(socksReply(socksDone)); err != nil {
		return err
	}
	c.goOn(nil)
	return c.through()
}

// take reads so many bytes, and none beyond.
func (c *connection) take(n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(c.guest, b)
	return b, err
}

// socksReply has the address at which nothing is.
func socksReply(code byte) []byte { return []byte{socksVersion, code, 0, 1, 0, 0, 0, 0, 0, 0} }
