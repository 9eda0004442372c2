package api

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"io"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"pinfold/sandbox"
)

type requestIDKey struct{}

// requestID is the name under which a request stands in the log.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

func newRequestID() string {
	b := make([]byte, 10)
	_, _ = rand.Read(b) // never fails
	return "req_" + strings.ToLower(base32.StdEncoding.EncodeToString(b))
}

// answer is a response writer that knows whether anything was written, and
// gives every write a deadline: a client that does not read what it asked for
// is dropped instead of holding whatever makes the answer. net/http takes the
// deadline back after each request, and when a connection is taken over.
type answer struct {
	http.ResponseWriter

	rc      *http.ResponseController
	timeout time.Duration
	body    *seenBody // nil: the request has none
	wrote   bool
}

func (s *server) newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	a := &answer{ResponseWriter: w, rc: http.NewResponseController(w), timeout: s.o.ClientTimeout}
	if r.ContentLength != 0 {
		a.body = &seenBody{ReadCloser: r.Body}
		r.Body = a.body
	}
	return a
}

func (a *answer) extend() {
	_ = a.rc.SetWriteDeadline(time.Now().Add(a.timeout)) // not every connection has deadlines
}

func (a *answer) WriteHeader(status int) {
	a.begin()
	a.wrote = a.wrote || status >= 200 || status == http.StatusSwitchingProtocols
	a.extend()
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	a.begin()
	a.wrote = true
	a.extend()
	return a.ResponseWriter.Write(b)
}

// begin sees to it that the answer does not wait for the client: before it
// sends a header, net/http reads what is left of a small body.
func (a *answer) begin() {
	if !a.wrote && a.body != nil && !a.body.ended.Load() {
		_ = a.rc.SetReadDeadline(time.Now().Add(a.timeout / 2)) // before the write's deadline
	}
}

// maxSwallowed is how much of a body is read before an error is answered. A
// connection that is closed over unread bytes is reset, and the client may
// never see why.
const maxSwallowed = 256 << 10

// swallow reads some of a body that nobody wanted: before the answer, or in after, which
// is for when it is written. Who announces more than is read is answered first. Who asked
// whether to send it is told by the answer.
func (a *answer) swallow(r *http.Request) (after func()) {
	if a.body == nil || a.body.ended.Load() || a.wrote || r.Header.Get("Expect") != "" {
		return func() {}
	}
	read := func() {
		_ = a.rc.SetReadDeadline(time.Now().Add(a.timeout / 2))
		_, _ = io.CopyN(io.Discard, a.body, maxSwallowed)
	}
	if r.ContentLength > maxSwallowed {
		return func() {
			_ = a.rc.Flush() // who does not read it is dropped later
			read()
		}
	}
	read()
	return func() {}
}

// seenBody knows whether a request's body has been read to its end.
type seenBody struct {
	io.ReadCloser

	ended atomic.Bool
}

func (b *seenBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended.Store(true)
	}
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// handler is everything from the connection inwards.
func (s *server) handler() http.Handler {
	var inner http.Handler = http.HandlerFunc(s.admit)
	if s.o.Middleware != nil {
		inner = s.o.Middleware(inner)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := newRequestID()
		w.Header().Set("X-Request-Id", id)
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
		inner.ServeHTTP(w, r)
	})
}

// admit survives whatever happens inside, and looks at who speaks to whom
// before anything else.
func (s *server) admit(w http.ResponseWriter, r *http.Request) {
	a := s.newAnswer(w, r)
	start := time.Now()
	defer func() {
		p := recover()
		s.o.Log.DebugContext(r.Context(), "request", "request", requestID(r.Context()), "method", r.Method, "route", r.Pattern, "ms", time.Since(start).Milliseconds())
		if p != nil {
			s.panicked(a, r, p)
		}
	}()
	h := a.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if err := s.checkHost(r); err != nil {
		s.fail(a, r, err)
		return
	}
	if err := s.checkOrigin(a, r); err != nil {
		s.fail(a, r, err)
		return
	}
	if target, ok := s.portHost(hostName(r)); ok {
		r.Pattern = portHostPattern
		s.servePort(a, r, target, r.URL.EscapedPath(), "")
		return
	}
	if s.preflight(a, r) {
		return
	}
	s.dispatch(a, r)
}

// panicked answers for a handler that broke. The stack goes to the log only.
func (s *server) panicked(a *answer, r *http.Request, p any) {
	if p == http.ErrAbortHandler { //nolint:errorlint // the very value is the sign, by net/http's contract
		panic(p)
	}
	s.o.Log.ErrorContext(r.Context(), "panic", "request", requestID(r.Context()), "route", r.Pattern, "panic", p, "stack", string(debug.Stack()))
	if a.wrote {
		panic(http.ErrAbortHandler) // the client must not take half an answer for a whole one
	}
	s.fail(a, r, &sandbox.Error{Code: sandbox.CodeInternal, Message: "the server failed"})
}

// dispatch finds the route. Paths into servers inside sandboxes are cut here,
// because the mux would clean what follows them.
func (s *server) dispatch(a *answer, r *http.Request) {
	h := a.Header()
	if target, rest, prefix, ok := s.portPath(r.URL.EscapedPath()); ok {
		r.Pattern = portPathPattern
		s.servePort(a, r, target, rest, prefix)
		return
	}
	if token, rest, prefix, ok := linkPath(r.URL.EscapedPath()); ok {
		s.serveLink(a, r, token, rest, prefix)
		return
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if !strings.HasPrefix(r.URL.Path, "/") || path.Clean(r.URL.Path) != r.URL.Path {
		s.fail(a, r, noRoute())
		return
	}
	if s.answersTo(r, r.Method) {
		s.mux.ServeHTTP(a, r)
		return
	}
	if allow := s.allowed(r); allow != "" {
		h.Set("Allow", allow)
		s.fail(a, r, wrongMethod(r.Method, allow))
		return
	}
	s.fail(a, r, noRoute())
}

// answersTo says whether a route of the request's path takes the method. The mux takes
// HEAD for every GET.
func (s *server) answersTo(r *http.Request, method string) bool {
	asked := *r
	asked.Method = method
	_, pattern := s.mux.Handler(&asked)
	return pattern != "" && (method != http.MethodHead || s.heads[pattern])
}

// allowed lists the methods that the routes of the request's path take.
func (s *server) allowed(r *http.Request) string {
	methods := []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost, http.MethodPut}
	return strings.Join(slices.DeleteFunc(methods, func(method string) bool { return !s.answersTo(r, method) }), ", ")
}

func noRoute() error {
	return &sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such route", Hint: "GET /docs lists the routes"}
}

func wrongMethod(method, allow string) error {
	return &sandbox.Error{
		Code: sandbox.CodeMethodForbidden, Message: sandbox.SafeText(method, 20) + " is not for this route",
		Hint: "use " + allow,
	}
}
