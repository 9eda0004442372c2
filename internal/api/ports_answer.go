package api

import (
	"bufio"
	"context"
	"maps"
	"net"
	"net/http"
)

// portAnswer holds back what a server inside must not decide: it has a header
// of its own until the final status, so that interim answers change nothing.
// Trailers are lost.
type portAnswer struct {
	http.ResponseWriter

	ctx    context.Context //nolint:containedctx // the request's: a connection that was taken over ends with it
	header http.Header
	final  bool
}

func newPortAnswer(ctx context.Context, w http.ResponseWriter) *portAnswer {
	return &portAnswer{ResponseWriter: w, ctx: ctx, header: http.Header{}}
}

// Header is the answer's header so far.
func (a *portAnswer) Header() http.Header { return a.header }

// WriteHeader sends the header, unless the status is an interim one.
func (a *portAnswer) WriteHeader(status int) {
	if a.final || (status < 200 && status != http.StatusSwitchingProtocols) {
		return
	}
	a.final = true
	maps.Copy(a.ResponseWriter.Header(), a.header)
	a.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body.
func (a *portAnswer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.ResponseWriter.Write(b)
}

// FlushError sends what there is. The header goes first: the writer below
// would otherwise begin with an empty one.
func (a *portAnswer) FlushError() error {
	a.WriteHeader(http.StatusOK)
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack hands the connection over, for as long as the request's context lasts:
// whoever copies between two connections notices the end of one only when it
// next has something for it.
func (a *portAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		context.AfterFunc(a.ctx, func() { _ = conn.Close() }) // the context ends with the request
	}
	return conn, buffered, err
}

// Unwrap lets http.ResponseController reach the connection.
func (a *portAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
