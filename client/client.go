// Package client speaks to a Pinfold server. It has the types of package
// sandbox and the method names of package pinfold, which does the same work in
// this process.
//
// Every error is a *sandbox.Error as the server said it. One of code
// disconnected means that no complete answer came; its cause (errors.Is) is
// what the network or the context reported. Requests that may safely be
// repeated are repeated when the server is full. Everything that comes from a
// server is bounded before it is read; texts from sandboxes are handed over as
// they are and must be escaped before they reach a terminal
// (sandbox.SafeText).
//
// It needs the standard library and a WebSocket, and starts nothing until a
// method is called. A Client and everything made from it is safe for
// concurrent use, except where a method says otherwise.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pinfold/sandbox"
)

// Environment variables that New reads where its arguments say nothing.
const (
	ServerEnv = "PINFOLD_SERVER"
	KeyEnv    = "PINFOLD_KEY"
)

// Client is a connection to one server, with one key. Close it to free its
// idle connections.
type Client struct {
	base      *url.URL
	key       string
	agent     string
	http      *http.Client
	transport *http.Transport
	patience  time.Duration // for 429 and 503
	silence   time.Duration // on a stream, before it counts as broken
}

// Option changes how a Client works.
type Option func(*settings)

type settings struct {
	key      string
	agent    string
	tls      *tls.Config
	patience time.Duration
	silence  time.Duration
}

// WithKey sets the API key. Without it New takes PINFOLD_KEY; a unix socket of
// the server needs none.
func WithKey(key string) Option { return func(s *settings) { s.key = key } }

// WithUserAgent says who is calling, for the server's log.
func WithUserAgent(name string) Option { return func(s *settings) { s.agent = name } }

// WithTLS sets how a server with https:// is verified, for example by a
// certificate authority of your own.
func WithTLS(c *tls.Config) Option { return func(s *settings) { s.tls = c } }

// WithPatience bounds how long one call waits in all while the server answers
// that it is full (429) or shutting down (503). The default is 30 seconds; zero
// hands such an answer over at once.
func WithPatience(d time.Duration) Option { return func(s *settings) { s.patience = d } }

// WithSilence sets how long a stream of events may be silent before it counts
// as broken. Servers send something every 15 seconds. The default is one
// minute.
func WithSilence(d time.Duration) Option { return func(s *settings) { s.silence = d } }

const (
	defaultTimeout  = 30 * time.Second
	defaultSilence  = time.Minute
	dialTimeout     = 10 * time.Second
	idleConnections = 64
)

// New returns a client of a server: http://HOST:PORT, https://HOST[:PORT] or
// unix:/PATH. An empty server means PINFOLD_SERVER. Nothing is sent yet.
func New(server string, opts ...Option) (*Client, error) {
	server = cmp.Or(server, os.Getenv(ServerEnv))
	s := settings{key: os.Getenv(KeyEnv), agent: "pinfold-go", patience: defaultTimeout, silence: defaultSilence}
	for _, o := range opts {
		o(&s)
	}
	if strings.ContainsFunc(s.key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &sandbox.Error{
			Code: sandbox.CodeUnauthorized, Message: "the key contains characters that no key has",
			Hint: "give the key alone, without spaces or line ends",
		}
	}
	base, socket, err := parseServer(server)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     s.tls,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns:        idleConnections,
		MaxIdleConnsPerHost: idleConnections,
		IdleConnTimeout:     90 * time.Second,
		// HTTP/1.1 only: a terminal cannot be upgraded from anything newer.
		// What a guest's server sends through a port passes here too.
		MaxResponseHeaderBytes: 256 << 10,
		DisableCompression:     true,
		WriteBufferSize:        transferBytes,
		ReadBufferSize:         transferBytes,
	}
	if socket != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	return &Client{
		base: base, key: s.key, agent: s.agent, transport: t, patience: s.patience, silence: s.silence,
		// A redirect would carry the key to where the server points.
		http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

// transferBytes is the size of the buffers of a connection: large, because
// files pass through it.
const transferBytes = 128 << 10

// Close frees idle connections. Calls that are under way go on.
func (c *Client) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}

// parseServer reads a server's address. For a unix socket the URL's host is
// only a name.
func parseServer(server string) (base *url.URL, socket string, err error) {
	if server == "" {
		return nil, "", &sandbox.Error{
			Code: sandbox.CodeSpecInvalid, Field: "server", Message: "no server is named",
			Hint: "set " + ServerEnv + "=http://127.0.0.1:7463",
		}
	}
	if path, ok := strings.CutPrefix(server, "unix:"); ok {
		if whole, err := filepath.Abs(path); path != "" && path[0] != '/' && err == nil {
			return nil, "", serverError(server, "is not the absolute path of a socket").WithHint("write unix:" + sandbox.SafeText(whole, 200))
		}
		path = "/" + strings.TrimLeft(path, "/") // unix:///run/… means the same
		if path == "/" || filepath.Clean(path) != path || strings.IndexByte(path, 0) >= 0 {
			return nil, "", serverError(server, "is not the path of a socket")
		}
		return &url.URL{Scheme: "http", Host: "localhost"}, path, nil
	}
	base, err = parseAddress(server)
	return base, "", err
}

// parseAddress reads the address of a server that is reached by HTTP.
func parseAddress(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		e := serverError(server, "is not a server's address")
		if u, err := url.Parse("http://" + server); err == nil && u.Hostname() != "" && u.Port() != "" && u.User == nil {
			e = e.WithHint("write http://" + sandbox.SafeText(server, 200))
		}
		return nil, e
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, serverError(u.Redacted(), "has more than a host, a port and a path")
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}, nil
}

func serverError(server, why string) *sandbox.Error {
	return &sandbox.Error{
		Code: sandbox.CodeSpecInvalid, Field: "server",
		Message: fmt.Sprintf("\"%s\" %s", sandbox.SafeText(server, 200), why),
		Hint:    "write http://127.0.0.1:7463, https://HOST or unix:/run/pinfold/pinfold.sock",
	}
}
