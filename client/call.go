package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"pinfold/sandbox"
)

// Bounds on what is read from a server.
const (
	maxErrorBytes  = 256 << 10 // an error's JSON
	maxAnswerBytes = 64 << 20  // a JSON answer without program output
	maxResultBytes = 512 << 20 // one with it: both streams and files in line
)

const (
	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
	typeBytes  = "application/octet-stream"
)

// call is one request.
type call struct {
	method string
	path   []string // segments; each is escaped
	query  url.Values
	json   any       // the body, or
	stream io.Reader // the body, which can be sent once only
	size   int64     // of stream; -1: unknown
	accept string
	header http.Header
	// repeat says that sending it twice does no more than sending it once.
	repeat bool
	also   int   // another status that is no error
	limit  int64 // of the JSON answer; 0: maxAnswerBytes
}

// url puts the path below the server's address.
func (k call) url(base *url.URL) (*url.URL, error) {
	u := *base
	u.RawPath = strings.TrimRight(base.EscapedPath(), "/")
	for _, segment := range k.path {
		if segment == "" || segment == "." || segment == ".." { // would be another route
			return nil, &sandbox.Error{Code: sandbox.CodeNotFound, Message: fmt.Sprintf("nothing has the id \"%s\"", segment)}
		}
		u.Path += "/" + segment
		u.RawPath += "/" + url.PathEscape(segment)
	}
	u.RawQuery = k.query.Encode()
	return &u, nil
}

// send sends the request, repeatedly while the server is full and that is safe,
// and returns its successful answer. The caller closes the body.
func (c *Client) send(ctx context.Context, k call) (*http.Response, error) {
	body, err := k.body()
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(c.patience)
	for attempt := 0; ; attempt++ {
		resp, err := c.once(ctx, k, body)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 && resp.StatusCode < 300 || resp.StatusCode == k.also {
			return resp, nil
		}
		refusal := readError(resp)
		full := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable
		wait := retryAfter(resp.Header, attempt)
		if !full || !k.repeat || k.stream != nil || time.Now().Add(wait).After(deadline) {
			return nil, refusal
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, disconnected(c.base, err)
		}
	}
}

// body is the JSON body. Encoding it once makes it the same at every attempt.
func (k call) body() ([]byte, error) {
	if k.json == nil {
		return nil, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(k.json); err != nil {
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Message: "the request cannot be written as JSON", Err: err}
	}
	return b.Bytes(), nil
}

// once sends the request one time. Its error says that no answer came.
func (c *Client) once(ctx context.Context, k call, body []byte) (*http.Response, error) {
	req, err := c.request(ctx, k, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, disconnected(c.base, cause(ctx, err))
	}
	return resp, nil
}

func (c *Client) request(ctx context.Context, k call, body []byte) (*http.Request, error) {
	var r io.Reader
	switch {
	case k.stream != nil && k.size == 0:
		r = http.NoBody
	case k.stream != nil:
		r = io.NopCloser(k.stream) // closing it is its owner's business
	case body != nil:
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, "", r)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.CodeSpecInvalid, "the request cannot be made: %w", err)
	}
	if req.URL, err = k.url(c.base); err != nil {
		return nil, err
	}
	req.Host = c.base.Host
	maps.Copy(req.Header, k.header)
	switch {
	case k.stream != nil:
		req.Header.Set("Content-Type", typeBytes)
		req.ContentLength = k.size
	case body != nil:
		req.Header.Set("Content-Type", typeJSON)
	}
	req.Header.Set("Accept", cmp.Or(k.accept, typeJSON))
	req.Header.Set("User-Agent", c.agent)
	c.authorize(req.Header)
	return req, nil
}

func (c *Client) authorize(h http.Header) {
	if c.key != "" {
		h.Set("Authorization", "Bearer "+c.key)
	}
}

// ask sends the request and decodes the JSON answer into out, which may be nil.
func (c *Client) ask(ctx context.Context, k call, out any) error {
	resp, err := c.send(ctx, k)
	if err != nil {
		return err
	}
	defer drain(resp)
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	return c.decode(ctx, resp, k.limit, out)
}

// answered sends the request and returns its answer. What has come of it when there is an
// error is returned as well.
func answered[T any](ctx context.Context, c *Client, k call) (T, error) {
	var out T
	err := c.ask(ctx, k, &out)
	return out, err
}

// listed is answered for a list in one page.
func listed[T any](ctx context.Context, c *Client, k call) ([]T, error) {
	list, err := answered[page[T]](ctx, c, k)
	return list.Items, err
}

func (c *Client) decode(ctx context.Context, resp *http.Response, limit int64, out any) error {
	if err := wantType(resp, typeJSON); err != nil {
		return err
	}
	limit = cmp.Or(limit, maxAnswerBytes)
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return disconnected(c.base, cause(ctx, err))
	case int64(len(data)) > limit:
		return &sandbox.Error{Code: sandbox.CodeTooLarge, Message: "the server's answer is larger than " + sandbox.FormatSize(limit)}
	}
	if err := json.Unmarshal(data, out); err != nil {
		return notOurs(resp, "is not the JSON that was expected", err)
	}
	return nil
}

// drain reads what is left of a short answer, so that the connection can be
// used again, and closes it.
func drain(resp *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10)) // a failure only costs the connection
	_ = resp.Body.Close()                                        // only read from
}

// readError returns what the server said, and closes the answer.
func readError(resp *http.Response) error {
	defer drain(resp)
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	var body sandbox.ErrorBody
	if err == nil && isType(resp, typeJSON) && json.Unmarshal(data, &body) == nil && body.Error != nil && body.Error.Code != "" {
		return body.Error
	}
	e := notOurs(resp, "does not say what is wrong", err)
	if resp.StatusCode == http.StatusBadRequest && strings.Contains(string(data), "HTTP request to an HTTPS server") { // so says package net/http
		e.Message, e.Hint = "the server speaks https, not http", "name it with https://"+resp.Request.URL.Host
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		e.Hint = "it points elsewhere; name the server's own address"
	}
	return e
}

// notOurs is the error for an answer that no Pinfold server gives.
func notOurs(resp *http.Response, what string, err error) *sandbox.Error {
	contentType := cmp.Or(sandbox.SafeText(resp.Header.Get("Content-Type"), 60), "no type")
	return &sandbox.Error{
		Code: sandbox.CodeDisconnected, Err: err,
		Message: fmt.Sprintf("the answer %s (status %d, %s)", what, resp.StatusCode, contentType),
		Hint:    "is that a Pinfold server, and not something before it? Its /healthz tells",
	}
}

func isType(resp *http.Response, want string) bool {
	got, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && (got == want || want == typeJSON && got == "application/problem+json")
}

func wantType(resp *http.Response, want string) error {
	if isType(resp, want) {
		return nil
	}
	return notOurs(resp, "is not "+want, nil)
}

// disconnected is the error for an answer that did not come, or not in full.
func disconnected(base *url.URL, err error) *sandbox.Error {
	e := &sandbox.Error{Code: sandbox.CodeDisconnected, Err: &lostError{err}, Message: "the connection to the server broke: " + plain(err)}
	var op *net.OpError
	e.Hint = "is it running? " + askHealth(base, err)
	switch {
	case errors.Is(err, context.Canceled):
		e.Hint, e.Message = "", "cancelled before the server had answered"
	case errors.Is(err, context.DeadlineExceeded):
		e.Hint, e.Message = "", "the server had not answered in time"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // of package net/http, which has no error for it
		e.Message = "the server speaks http, not https"
		plainly := *base
		plainly.Scheme = "http"
		e.Hint = "name it with " + plainly.Redacted() + ", where keys may travel in the clear; or give the server a certificate"
	case errors.As(err, &op) && op.Op == "dial":
		e.Message = "cannot reach the server: " + plain(err)
	}
	return e
}

// askHealth is the command that asks a server whether it is there.
func askHealth(base *url.URL, err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		if at, ok := op.Addr.(*net.UnixAddr); ok && at.Name != "" {
			return "curl --unix-socket '" + strings.ReplaceAll(at.Name, "'", `'\''`) + "' http://localhost/healthz"
		}
	}
	return "curl " + base.JoinPath("healthz").Redacted()
}

// lostError marks what the network did, to tell it from an answer that is not
// Pinfold's: only the former may pass by itself.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// plain is an error's text without the URL that package net/http puts before it.
func plain(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return sandbox.SafeText(err.Error(), 200)
}

// cause prefers why the context ended to what that did to the connection.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// Bounds on waiting before a request is repeated.
const (
	firstWait = 100 * time.Millisecond
	maxWait   = 10 * time.Second
)

// retryAfter is how long to wait: what the server asks for, else longer each
// time.
func retryAfter(h http.Header, attempt int) time.Duration {
	if s, err := strconv.Atoi(h.Get("Retry-After")); err == nil && s >= 0 {
		return max(firstWait, min(time.Duration(s)*time.Second, time.Hour))
	}
	return backoff(attempt)
}

func backoff(attempt int) time.Duration { return min(firstWait<<min(attempt, 10), maxWait) }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
