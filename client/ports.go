package client

import (
	"net/http"
	"net/url"
	"strconv"

	"pinfold/sandbox"
)

// Transport returns a way to speak HTTP with a server inside the sandbox that
// listens on the port. Use it in an http.Client: the scheme and host of a
// request's URL do not matter, its path, query, header and body reach the
// server. WebSockets work too.
//
//	web := &http.Client{Transport: box.Transport(8000)}
//	resp, err := web.Get("http://sandbox/index.html")
//
// The header Authorization belongs to Pinfold and does not get through. What
// answers is a guest: everything in an answer is hostile. That nobody listens
// there is an answer with status 502.
func (s *Sandbox) Transport(port int) http.RoundTripper { return portTransport{s, port} }

type portTransport struct {
	sandbox *Sandbox
	port    int
}

// RoundTrip implements http.RoundTripper.
func (p portTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := p.sandbox.client
	u, err := p.sandbox.portURL(p.port, req.URL)
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.URL, out.Host = u, c.base.Host
	c.authorize(out.Header)
	resp, err := c.transport.RoundTrip(out)
	if err != nil {
		return nil, disconnected(c.base, cause(req.Context(), err))
	}
	resp.Request = req
	return resp, nil
}

// portURL is where the server shows a port of a sandbox.
func (s *Sandbox) portURL(port int, in *url.URL) (*url.URL, error) {
	k := s.call(http.MethodGet, "ports", strconv.Itoa(port))
	u, err := k.url(s.client.base)
	if err != nil {
		return nil, err
	}
	path, raw := in.Path, in.EscapedPath()
	if path == "" {
		path, raw = "/", "/"
	}
	u.Path, u.RawPath, u.RawQuery = u.Path+path, u.EscapedPath()+raw, in.RawQuery
	return u, nil
}

// URL returns the address under which the server shows a port of the sandbox,
// for other programs. They must send the key themselves, and a client of a
// unix socket must connect to that.
func (s *Sandbox) URL(port int) (string, error) {
	if port < 1 || port > 65535 {
		return "", &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "port", Message: "must be 1 to 65535"}
	}
	u, err := s.portURL(port, &url.URL{})
	if err != nil {
		return "", err
	}
	return u.String(), nil
}
