package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"pinfold/sandbox"
)

// portProxy is what is done to one request and its answer on the way through.
type portProxy struct {
	*server

	prefix        string // of the path; empty with a host name of its own
	port          int
	path, rawPath string
	id            string // the request's
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
	if v := out.Header.Get("Authorization"); !isLocalPeer(pr.In.Context()) && (!keyInHeader || isOurKey(strings.TrimPrefix(v, "Bearer"))) {
		out.Header.Del("Authorization")
	}
	if p.byPath() {
		out.Header.Del("Cookie")
		out.Header.Set("X-Forwarded-Prefix", p.prefix)
	}
}

// modify makes the answer harmless to who shows it: by path it comes from our
// own origin, where a guest may set no cookie, policy or page that acts as us.
func (p *portProxy) modify(resp *http.Response) error {
	h := resp.Header
	h.Del("X-Request-Id")
	h.Del("Clear-Site-Data")
	h.Del("Strict-Transport-Security")
	h.Del("Alt-Svc")
	if !p.byPath() {
		h["Set-Cookie"] = ownCookies(h["Set-Cookie"])
		return nil
	}
	for name := range h {
		if name == "Set-Cookie" || name == "Service-Worker-Allowed" || strings.HasPrefix(name, "Access-Control-") {
			delete(h, name)
		}
	}
	h.Add("Content-Security-Policy", "sandbox allow-scripts allow-forms")
	h.Set("X-Content-Type-Options", "nosniff")
	if to := h.Get("Location"); to != "" {
		h.Set("Location", p.location(to))
	}
	return nil
}

// location keeps a redirection within the server inside.
func (p *portProxy) location(to string) string {
	for _, origin := range []string{"http://localhost:", "http://127.0.0.1:"} {
		if rest, ok := strings.CutPrefix(to, origin+strconv.Itoa(p.port)); ok && (rest == "" || rest[0] == '/') {
			to = "/" + strings.TrimPrefix(rest, "/")
		}
	}
	if strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") {
		return p.prefix + to
	}
	return to
}

// ownCookies leaves out cookies for more than the very host: they would reach
// the servers of other sandboxes.
func ownCookies(cookies []string) []string {
	var own []string
	for _, c := range cookies {
		if !strings.Contains(strings.ReplaceAll(strings.ToLower(c), " ", ""), ";domain=") {
			own = append(own, c)
		}
	}
	return own
}

// failed answers when the server inside did not.
func (p *portProxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	var known *sandbox.Error
	switch {
	case errors.Is(err, context.Canceled):
		panic(http.ErrAbortHandler) // the client is gone
	case !errors.As(err, &known):
		known = &sandbox.Error{
			Code: sandbox.CodePortClosed, Message: "the server inside does not speak HTTP, or broke off: " + sandbox.SafeText(err.Error(), 160),
			Hint: "look at its output",
		}
	}
	p.fail(w, r, known)
}

// portAnswer holds back what a server inside must not decide: it has a header
// of its own until the final status, so that interim answers change nothing.
// Trailers are lost.
type portAnswer struct {
	http.ResponseWriter

	header http.Header
	final  bool
}

func newPortAnswer(w http.ResponseWriter) *portAnswer {
	return &portAnswer{ResponseWriter: w, header: http.Header{}}
}

// Header is the answer's header so far.
func (a *portAnswer) Header() http.Header { return a.header }

// WriteHeader sends the header, unless the status is an interim one.
func (a *portAnswer) WriteHeader(status int) {
	if a.final || (status < 200 && status != http.StatusSwitchingProtocols) {
		return
	}
	a.final = true
	h := a.ResponseWriter.Header()
	for name, values := range a.header {
		h[name] = values
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body.
func (a *portAnswer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (a *portAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

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

// portPatience bounds how long a server inside may take to accept.
const portPatience = 10 * time.Second
