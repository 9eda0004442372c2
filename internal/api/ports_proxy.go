package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"

	"pinfold/sandbox"
)

// portProxy is what is done to one request and its answer on the way through.
type portProxy struct {
	*server

	request       *http.Request // as it came
	host          string        // under which the caller reached us
	prefix        string        // of the path; empty with a host name of its own
	port          int
	path, rawPath string
	body          *timedReader // the request's
}

func (p *portProxy) byPath() bool { return p.prefix != "" }

// rewrite makes the request that goes in. What is ours stays outside: keys and
// the cookies of our own host.
func (p *portProxy) rewrite(pr *httputil.ProxyRequest) {
	out := pr.Out
	out.URL.Scheme, out.URL.Host = "http", "localhost:"+strconv.Itoa(p.port)
	out.URL.Path, out.URL.RawPath = p.path, p.rawPath
	out.URL.RawQuery = pr.In.URL.RawQuery // as it is: the guest parses it its own way
	out.Host = out.URL.Host
	pr.SetXForwarded()
	keyInHeader := out.Header.Get("X-Api-Key") != ""
	out.Header.Del("X-Api-Key")
	theirs := keyInHeader || isLocalPeer(pr.In.Context())
	if !theirs || slices.ContainsFunc(out.Header.Values("Authorization"), holdsOurKey) {
		out.Header.Del("Authorization")
	}
	if _, byLink := pr.In.Context().Value(linkKey{}).(link); byLink && out.Header.Get("Origin") == "null" {
		out.Header.Del("Origin") // of a page that we have sandboxed: to the server inside it is its own
	}
	if p.byPath() {
		out.Header.Del("Cookie")
		out.Header.Set("X-Forwarded-Prefix", p.prefix)
	}
}

// modify makes the answer harmless to who shows it: by path it comes from our
// own origin, where a guest may set no cookie, policy or page that acts as us.
func (p *portProxy) modify(resp *http.Response) error {
	if code := resp.StatusCode; (code < 200 && code != http.StatusSwitchingProtocols) || code > 599 {
		return portBroken("it answered with the status " + strconv.Itoa(code))
	}
	h := resp.Header
	resp.Trailer = nil // what comes after the body is not looked at, and not passed on
	for name := range h {
		if !p.passes(name) {
			delete(h, name)
		}
	}
	h.Del(elsewhere)
	if to := h.Get("Location"); to != "" {
		h.Del("Location")
		if within := p.location(resp.Request, to); within != "" {
			h.Set("Location", within)
		} else { // for who wants to know, and to go there without the key
			h.Set(elsewhere, sandbox.SafeText(to, maxElsewhere))
		}
	}
	if !p.byPath() {
		h["Set-Cookie"] = ownCookies(h["Set-Cookie"])
		return nil
	}
	h.Add("Content-Security-Policy", "sandbox allow-scripts allow-forms")
	return nil
}

// elsewhere is the header that has the place of a redirection which is not
// passed on as one.
const (
	elsewhere    = "X-Pinfold-Location"
	maxElsewhere = 2000
)

// passes says whether a header of an answer goes out. By path those pass that
// are known to speak of nothing but the answer; with a host name of its own, a
// server inside may say what it likes, except what reaches beyond that name.
func (p *portProxy) passes(name string) bool {
	switch name {
	case "X-Request-Id", "X-Content-Type-Options", "X-Sendfile", "X-Reproxy-Url", "X-Output-Offset", "X-Archive-Skipped", gateHeader:
		return false // ours, or words to a proxy in front of us
	case "Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "Public-Key-Pins", "Trailer":
		return false // about more than this name
	}
	if strings.HasPrefix(name, "X-Accel-") || strings.HasPrefix(name, "X-Lighttpd-") {
		return false
	}
	if !p.byPath() {
		return true
	}
	switch name {
	case "Content-Security-Policy-Report-Only", "X-Sourcemap", "X-Permitted-Cross-Domain-Policies":
		return false
	case "Cache-Control", "Etag", "Last-Modified", "Date", "Vary", "Accept-Ranges", "Age", "Expires", "Location", "Retry-After", "Allow", "Upgrade", "Connection":
		return true
	}
	return strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "X-") || strings.HasPrefix(name, "Sec-Websocket-")
}

// ownCookies leaves out cookies for more than the very host: they would reach
// the servers of other sandboxes.
func ownCookies(cookies []string) []string {
	var own []string
	for _, c := range cookies {
		_, attributes, _ := strings.Cut(c, ";")
		wide := false
		for a := range strings.SplitSeq(attributes, ";") {
			name, _, _ := strings.Cut(a, "=")
			wide = wide || strings.EqualFold(strings.TrimSpace(name), "domain")
		}
		if !wide {
			own = append(own, c)
		}
	}
	return own
}

// portBroken says that a server inside is none that one can speak to.
func portBroken(how string) *sandbox.Error {
	return &sandbox.Error{
		Code: sandbox.CodePortClosed, Message: "the server inside does not speak HTTP, or broke off: " + sandbox.SafeText(how, 160),
		Hint: "look at its output",
	}
}

// failed answers when the server inside did not.
func (p *portProxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	var known *sandbox.Error
	switch {
	case r.Context().Err() != nil && errors.Is(context.Cause(r.Context()), context.Canceled):
		panic(http.ErrAbortHandler) // the client is gone
	case r.Context().Err() != nil:
		err = context.Cause(r.Context())
	case p.body.err != nil:
		err = readError(p.body.err)
	case !errors.As(err, &known):
		err = portBroken(err.Error())
	}
	p.fail(w, r, err)
}

// politeConn reads nothing before something was written: net/http writes what
// a server says unasked into the process's own log.
type politeConn struct {
	net.Conn

	spoken chan struct{} // closed by the first Write, or by Close
	once   sync.Once
}

func polite(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &politeConn{Conn: conn, spoken: make(chan struct{})}, nil
}

func (c *politeConn) speak() { c.once.Do(func() { close(c.spoken) }) }

// Read waits for the first Write.
func (c *politeConn) Read(b []byte) (int, error) {
	<-c.spoken
	return c.Conn.Read(b)
}

// Write lets Read begin.
func (c *politeConn) Write(b []byte) (int, error) {
	c.speak()
	return c.Conn.Write(b)
}

// Close ends a Read that waits.
func (c *politeConn) Close() error {
	defer c.speak()
	return c.Conn.Close()
}

// patientBody reads a request's body on its way in.
type patientBody struct {
	io.Reader
	io.Closer
}
