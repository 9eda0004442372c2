package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"time"

	"pinfold/internal/engine/living"
	"pinfold/sandbox"
)

const (
	portPathPattern = "/v1/sandboxes/{id}/ports/{port}/{path}"
	portHostPattern = "{port}-{id}.{domain}"
)

const portDescription = `Passes the request to a server that listens inside the sandbox on 127.0.0.1 or [::1], whatever its method, and brings back the answer. WebSockets work too. Where the server has a domain for ports, {port}-{sandbox id without sbx_}.DOMAIN reaches the same and gives each server an origin of its own.

The key goes in a header, and is not passed on; neither are cookies of this server. Pages that come by path cannot act as this server's: they get "Content-Security-Policy: sandbox", and cannot set cookies.

A redirect within the server inside is rewritten to be followed here. One to anywhere else is not passed on, because clients would follow it with the key: it comes without Location, and X-Pinfold-Location says where it would have led.`

// portRoutes describes the way into servers inside sandboxes. Requests get
// there before the mux, which would clean their paths.
func (s *server) portRoutes() []route {
	var all []route
	for method, id := range map[string]string{
		http.MethodGet: "getPort", http.MethodPost: "postPort", http.MethodPut: "putPort", http.MethodPatch: "patchPort", http.MethodDelete: "deletePort",
		http.MethodHead: "headPort", http.MethodOptions: "optionsPort",
	} {
		r := route{
			method: method, path: portPathPattern, id: id, tag: "Ports", summary: "Speak to a server inside (" + method + ")",
			description: portDescription, scopes: []string{scopeSandbox},
			answers: []reply{{http.StatusOK, "*/*", nil, "Whatever the server inside answers."}},
			errors:  []int{http.StatusBadRequest, http.StatusBadGateway},
		}
		if method == http.MethodGet {
			r.example = `curl -s $SERVER/v1/sandboxes/$ID/ports/8000/ -H "Authorization: Bearer $KEY"`
		}
		all = append(all, r)
	}
	return all
}

// portRoot leads from a port to its "/": relative links in a page are resolved
// against the directory that the address names. The address is relative itself,
// for proxies in front of us that have a prefix of their own.
func portRoot(a *answer, r *http.Request) {
	to := path.Base(r.URL.Path) + "/"
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	a.Header().Set("Location", to)
	a.WriteHeader(http.StatusPermanentRedirect)
}

// portPath cuts a path into the target and what is behind it, which is empty
// where not even a slash follows. prefix is where the target begins. Nothing is decoded: what follows is the guest's business.
func (s *server) portPath(escaped string) (target portTarget, rest, prefix string, ok bool) {
	after, ok := strings.CutPrefix(escaped, "/v1/sandboxes/")
	if !ok {
		return target, "", "", false
	}
	id, after, _ := strings.Cut(after, "/")
	after, ok = strings.CutPrefix(after, "ports/")
	if !ok {
		return target, "", "", false
	}
	text, rest, below := strings.Cut(after, "/")
	if below {
		rest = "/" + rest
	}
	port, err := parsePort(text)
	if err != nil {
		port = 0 // refused once the caller is known
	}
	return portTarget{id, port}, rest, "/v1/sandboxes/" + id + "/ports/" + text, true
}

// maxPortHeader bounds the header of an answer from inside.
const maxPortHeader = 64 << 10

// servePort passes a request on. prefix is empty where the server inside has a
// host name of its own.
func (s *server) servePort(a *answer, r *http.Request, target portTarget, rest, prefix string) {
	inside, err := s.openPort(r, target)
	if err != nil {
		s.fail(a, r, err)
		return
	}
	if rest == "" {
		portRoot(a, r)
		return
	}
	unescaped, err := url.PathUnescape(rest)
	if err != nil {
		s.fail(a, r, badRequest("", "the path is malformed", ""))
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	r = r.WithContext(ctx)
	defer s.watchKey(r, []string{scopeSandbox}, cancel)()
	go cancelWith(ctx, inside, cancel)
	p := &portProxy{server: s, request: r, host: r.Host, prefix: prefix, port: target.port, path: unescaped, rawPath: rest, body: s.timed(a, r.Body)}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return polite(s.dialPort(ctx, target.port, inside.Dial))
		},
		DisableKeepAlives:      true, // a connection holds the sandbox awake
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxPortHeader,
		WriteBufferSize:        32 << 10,
		ReadBufferSize:         32 << 10,
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: p.rewrite, Transport: transport, ModifyResponse: p.modify, ErrorHandler: p.failed,
		FlushInterval: -1, ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	r.Body = patientBody{p.body, r.Body}
	proxy.ServeHTTP(newPortAnswer(ctx, a), r)
}

// portTimeout is how long a server inside may take to accept, at most as long
// as the server's own timeout.
const portTimeout = 10 * time.Second

// dialPort connects. That our own timeout ended is not the caller's doing.
func (s *server) dialPort(ctx context.Context, port int, dial func(context.Context, int) (net.Conn, error)) (net.Conn, error) {
	timeout := min(portTimeout, s.o.ClientTimeout)
	dialing, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dial(dialing, port)
	if err != nil && dialing.Err() != nil && ctx.Err() == nil {
		return nil, &sandbox.Error{
			Code: sandbox.CodePortClosed, Message: fmt.Sprintf("nothing answered on port %d in %s", port, timeout),
			Hint: "see whether the server inside is stuck: it must accept connections", Err: err,
		}
	}
	return conn, err
}

func (s *server) openPort(r *http.Request, target portTarget) (*living.Sandbox, error) {
	c := &call{server: s, r: r}
	var err error
	if c.who, err = s.identify(r); err != nil {
		return nil, err
	}
	if err = allow(c.who, []string{scopeSandbox}); err != nil {
		return nil, err
	}
	if !s.objectID.MatchString(target.sandbox) || !strings.HasPrefix(target.sandbox, "sbx_") {
		return nil, notFound()
	}
	inside, err := s.o.Engine.Sandbox(c.tenant(), target.sandbox)
	if err != nil {
		return nil, hide(err)
	}
	if target.port == 0 {
		return nil, badPort()
	}
	return inside, nil
}
