package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pinfold/sandbox"
)

// forwarder takes requests to one door, holds each against the rules, and says it anew to
// the server. What a guest wrote is not what the server gets, so that there is nothing that
// the two of them and we could read in different ways. It is safe for concurrent use.
type forwarder struct {
	relay     *Relay
	endpoint  *endpoint
	door      Door
	scheme    string
	transport *http.Transport
	proxy     *httputil.ReverseProxy
}

const (
	maxAnswerHead = 64 << 10
	maxIdleConns  = 8
	idleConnLife  = time.Minute
)

var quiet = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

// forwarder is the one for a door and a scheme.
func (r *Relay) forwarder(d Door, e *endpoint, scheme string) *forwarder {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.forwarders {
		if f.scheme == scheme && f.door.Host == d.Host && f.door.Port == d.Port {
			return f
		}
	}
	f := &forwarder{relay: r, endpoint: e, door: d, scheme: scheme}
	f.transport = &http.Transport{
		DialContext:     f.dial,
		TLSClientConfig: &tls.Config{ServerName: d.Host, RootCAs: r.host.roots, MinVersion: tls.VersionTLS12},
		// What is compressed stays so.
		DisableCompression: true, ForceAttemptHTTP2: true,
		MaxConnsPerHost: int(r.now.Load().limits.Connections), MaxIdleConnsPerHost: maxIdleConns, IdleConnTimeout: idleConnLife,
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: idleTimeout, ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: maxAnswerHead,
		// What a program does not read stops its server, and no other answer on the connection.
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: maxStreamBuffer, MaxReceiveBufferPerConnection: maxStreams * maxStreamBuffer},
	}
	f.proxy = &httputil.ReverseProxy{
		Transport: finalAnswers{f.transport}, ModifyResponse: check, FlushInterval: -1, ErrorLog: quiet, ErrorHandler: f.failed,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = scheme, net.JoinHostPort(d.Host, strconv.Itoa(d.Port))
			p.Out.URL.RawQuery = p.In.URL.RawQuery
			p.Out.Host = d.authority(scheme)
			inject(p.Out)
		},
	}
	r.forwarders = append(r.forwarders, f)
	return f
}

// authority is how requests name the door.
func (d Door) authority(scheme string) string {
	if scheme == "https" && d.Port == portTLS || scheme == "http" && d.Port == portHTTP {
		return d.Host
	}
	return net.JoinHostPort(d.Host, strconv.Itoa(d.Port))
}

// dial connects to the server. The relay's end closes the connection.
func (f *forwarder) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := f.relay.reserve(ctx); err != nil {
		return nil, err
	}
	conn, err := f.connect(ctx)
	if err != nil {
		f.relay.free()
		return nil, err
	}
	d := &dialled{Conn: conn, relay: f.relay}
	if !f.relay.keep(d) {
		_ = d.Close()
		return nil, errOver
	}
	return d, nil
}

func (f *forwarder) connect(ctx context.Context) (net.Conn, error) {
	given, err := f.endpoint.given()
	if err != nil {
		return nil, err
	}
	return f.relay.host.dial(ctx, f.door.Host, f.door.Port, given)
}

// given is where the operator says that the host is; not valid: it is looked up.
func (e *endpoint) given() (netip.Addr, error) {
	if e.Address == "" {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(e.Address)
	if err != nil {
		return a, &forbidden{err}
	}
	return a, nil
}

// dialled is a connection to a server that ends with the relay.
type dialled struct {
	net.Conn
	relay *Relay
	once  sync.Once
}

// Close implements net.Conn.
func (d *dialled) Close() error {
	d.once.Do(func() {
		d.relay.mu.Lock()
		delete(d.relay.dialled, d)
		d.relay.mu.Unlock()
		d.relay.free()
	})
	return d.Conn.Close()
}

// reserveTries times acceptPause is how long a connection to a server waits for room.
const reserveTries = 50

// reserve takes room for a connection to a server; free follows. Where there is none, those
// that nobody uses are closed, and it waits a moment for others.
func (r *Relay) reserve(ctx context.Context) error {
	for try := 1; ; try++ {
		err := r.reserveNow()
		if err == nil || errors.Is(err, errOver) || try == reserveTries {
			return err
		}
		r.mu.Lock()
		forwarders := slices.Clone(r.forwarders)
		r.mu.Unlock()
		for _, f := range forwarders {
			f.transport.CloseIdleConnections()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.life.Done():
			return errOver
		case <-time.After(acceptPause):
		}
	}
}

func (r *Relay) reserveNow() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errOver
	case r.servers >= r.now.Load().limits.Connections:
		return errConnections
	case !r.enter():
		return errBusy
	}
	r.servers++
	return nil
}

func (r *Relay) free() {
	r.mu.Lock()
	r.servers--
	r.mu.Unlock()
	r.leave()
}

// keep has a connection end with the relay, which may be over already.
func (r *Relay) keep(d *dialled) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.dialled[d] = true
	}
	return !r.closed
}

// ServeHTTP implements http.Handler.
func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !f.relay.ask() {
		f.busy(w, sandbox.DeniedBusy, errRequests)
		return
	}
	defer f.relay.answered()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer f.relay.under(&asking{f.endpoint.Host, f.door.Port, r.Method, r.RequestURI, cancel})()
	r = r.WithContext(ctx)
	now := f.relay.now.Load()
	rules := now.rules(f.endpoint.Host, f.door.Port)
	reason, err := f.holds(r, rules)
	if err == nil {
		r, reason, err = f.withSecret(r, rules, now.secrets)
	}
	if err == nil && !f.relay.ledger.ask() {
		reason, err = sandbox.DeniedRequests, errAsks
	}
	if err != nil {
		f.relay.ledger.deny(f.door.Host, f.door.Port, reason, err.Error())
		text := err.Error()
		if reason == sandbox.DeniedRequest {
			text += " is not declared"
		}
		tell(w, http.StatusForbidden, text+" ("+string(reason)+")")
		return
	}
	f.endpoint.requests.Add(1)
	if s, has := secretOf(r.Context()); has {
		f.endpoint.secrets.Add(1)
		f.endpoint.names.Store(s.Name, nil)
	}
	f.proxy.ServeHTTP(w, r)
}

// holds holds a request against the door and its rules.
func (f *forwarder) holds(r *http.Request, rules []sandbox.Endpoint) (sandbox.DenialReason, error) {
	host, port, err := splitHost(r.Host)
	switch {
	case err != nil:
		return sandbox.DeniedMalformed, err
	case host != f.door.Host, port != 0 && port != f.door.Port:
		return sandbox.DeniedHost, errors.New("the request is for " + strconv.Quote(sandbox.SafeText(r.Host, 80)))
	case r.Method == http.MethodConnect, r.URL.IsAbs(), r.URL.Host != "", r.URL.Opaque != "":
		return sandbox.DeniedMalformed, errors.New("the target is no path")
	case strings.ContainsFunc(r.RequestURI, notOfURL):
		return sandbox.DeniedMalformed, errors.New("the target has other characters than a URL")
	}
	for name := range r.Header {
		switch name = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")); {
		case name == "Host":
			return sandbox.DeniedMalformed, errors.New("it has a second Host")
		case slices.Contains(otherPaths, name):
			return sandbox.DeniedMalformed, errors.New(name + " asks for another request than this one")
		}
	}
	if other := r.Header["Upgrade"]; len(other) > 0 && (len(other) > 1 || !strings.EqualFold(other[0], websocket)) {
		return sandbox.DeniedMalformed, errUpgrade
	}
	return allows(rules, r.Method, r.RequestURI)
}

// websocket is the one other protocol that a request may go over to.
const websocket = "websocket"

var (
	errUpgrade  = errors.New("it asks for another protocol (Upgrade) than websocket")
	errBusy     = errors.New("this host passes on as many connections as it can, or as one sandbox may have of them")
	errRequests = errors.New("this host passes on as many requests at once as it can, or as one sandbox may have of them")

	errAsks        = errors.New("all the requests that network.limits.requests allows have been made")
	errConnections = errors.New("network.limits.connections are open to servers")
	errAnswer      = errors.New("the server's answer cannot be read")
	errUntrusted   = errors.New("the program does not trust the sandbox's own authority, which stands for the server here (docs/network.md)")
)

// failed answers a request that came to nothing.
func (f *forwarder) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		if errors.Is(context.Cause(r.Context()), errNarrowed) {
			tell(w, http.StatusForbidden, errNarrowed.Error()+" ("+string(sandbox.DeniedNarrowed)+")")
		}
		return
	}
	var denied *forbidden
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &denied):
		err = denied
		f.relay.ledger.deny(f.door.Host, f.door.Port, sandbox.DeniedAddress, err.Error())
	case errors.Is(err, errBusy):
		f.busy(w, sandbox.DeniedBusy, errBusy)
		return
	case errors.Is(err, errConnections):
		f.busy(w, sandbox.DeniedConnections, errConnections)
		return
	case errors.As(err, &certificate):
		err = errors.New("the server's certificate does not hold: " + sandbox.SafeText(certificate.Err.Error(), maxEvidence))
		f.endpoint.fail(err)
	default:
		known := slices.IndexFunc(toldErrors, func(e error) bool { return errors.Is(err, e) })
		if err = errAnswer; known >= 0 { // others name addresses of the host's
			err = toldErrors[known]
		}
		f.endpoint.fail(err)
	}
	tell(w, http.StatusBadGateway, err.Error())
}

// busy answers a request for which there is no room.
func (f *forwarder) busy(w http.ResponseWriter, reason sandbox.DenialReason, why error) {
	f.relay.ledger.deny(f.door.Host, f.door.Port, reason, why.Error())
	tell(w, http.StatusServiceUnavailable, why.Error()+" ("+string(reason)+")")
}

// toldErrors are those that programs are told as they are.
var toldErrors = []error{errNoName, errLookUp, errSlowDNS, errRefused, errNoRoute, errSlow, errDial, errUnasked, errCoded}

// tell says to a program why not.
func tell(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "pinfold: "+text+"\n")
}
