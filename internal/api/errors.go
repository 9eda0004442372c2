package api

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"pinfold/sandbox"
)

// statuses is the one place that knows which HTTP status a code of error has.
// A code that is not here is our own fault: 500.
func statuses() map[string]int {
	return map[string]int{
		sandbox.CodeSpecInvalid:         http.StatusBadRequest,
		sandbox.CodeLimitInvalid:        http.StatusBadRequest,
		sandbox.CodePathInvalid:         http.StatusBadRequest,
		sandbox.CodeRequestInvalid:      http.StatusBadRequest,
		sandbox.CodeFeatureUnknown:      http.StatusBadRequest,
		sandbox.CodeConfigInvalid:       http.StatusBadRequest,
		sandbox.CodeUnauthorized:        http.StatusUnauthorized,
		sandbox.CodeForbidden:           http.StatusForbidden,
		sandbox.CodeNotFound:            http.StatusNotFound,
		sandbox.CodeFileNotFound:        http.StatusNotFound,
		sandbox.CodeMethodForbidden:     http.StatusMethodNotAllowed,
		sandbox.CodeConflict:            http.StatusConflict,
		sandbox.CodeIdempotency:         http.StatusConflict,
		sandbox.CodeGone:                http.StatusGone,
		sandbox.CodeOffsetGone:          http.StatusGone,
		sandbox.CodeTooLarge:            http.StatusRequestEntityTooLarge,
		sandbox.CodeNotRegularFile:      http.StatusUnprocessableEntity,
		sandbox.CodeUnsafeArchive:       http.StatusUnprocessableEntity,
		sandbox.CodeWithheld:            http.StatusUnprocessableEntity,
		sandbox.CodeRequirementUnmet:    http.StatusUnprocessableEntity,
		sandbox.CodeLanguageUnknown:     http.StatusUnprocessableEntity,
		sandbox.CodeLanguageMissing:     http.StatusUnprocessableEntity,
		sandbox.CodeDriverUnknown:       http.StatusUnprocessableEntity,
		sandbox.CodeDriverUnavailable:   http.StatusUnprocessableEntity,
		sandbox.CodeTemplateUnknown:     http.StatusUnprocessableEntity,
		sandbox.CodeBuildFailed:         http.StatusUnprocessableEntity,
		sandbox.CodePackagesFailed:      http.StatusUnprocessableEntity,
		sandbox.CodeStartFailed:         http.StatusUnprocessableEntity,
		sandbox.CodeNetworkUnsupported:  http.StatusUnprocessableEntity,
		sandbox.CodeEndpointDenied:      http.StatusForbidden,
		sandbox.CodeProfileUnknown:      http.StatusUnprocessableEntity,
		sandbox.CodeProfileDenied:       http.StatusForbidden,
		sandbox.CodeManifestInvalid:     http.StatusUnprocessableEntity,
		sandbox.CodePolicyRefused:       http.StatusForbidden,
		sandbox.CodeApprovalDenied:      http.StatusForbidden,
		sandbox.CodeApprovalTimeout:     http.StatusForbidden,
		sandbox.CodeCommandNotFound:     http.StatusUnprocessableEntity,
		sandbox.CodeCommandNotRunnable:  http.StatusUnprocessableEntity,
		sandbox.CodeBusy:                http.StatusTooManyRequests,
		sandbox.CodeQuotaExceeded:       http.StatusTooManyRequests,
		sandbox.CodePortClosed:          http.StatusBadGateway,
		sandbox.CodeProtocol:            http.StatusBadGateway,
		sandbox.CodeDisconnected:        http.StatusBadGateway,
		sandbox.CodeShuttingDown:        http.StatusServiceUnavailable,
		sandbox.CodeResourceUnavailable: http.StatusServiceUnavailable,
		sandbox.CodeInsufficient:        http.StatusInsufficientStorage,
		sandbox.CodeAuditUnavailable:    http.StatusServiceUnavailable,
		sandbox.CodeReceiptInvalid:      http.StatusUnprocessableEntity,
	}
}

// statusError gives an error a status that its code alone does not have.
type statusError struct {
	status int
	err    *sandbox.Error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func badRequest(field, message, hint string) error {
	return &sandbox.Error{Code: sandbox.CodeRequestInvalid, Field: field, Message: message, Hint: hint}
}

// withStatus is a malformed request that HTTP has a status of its own for.
func withStatus(status int, field, message, hint string) error {
	return &statusError{status, &sandbox.Error{Code: sandbox.CodeRequestInvalid, Field: field, Message: message, Hint: hint}}
}

// notFound is the one answer about an object that is not there. What belongs
// to somebody else has the same: nobody can learn that it exists.
func notFound() error {
	return (&sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such object"}).
		WithAdvice(sandbox.Advise("list yours with %s or %s", sandbox.Call(sandbox.CallListRuns), sandbox.Call(sandbox.CallListSandboxes)))
}

// hide replaces every "not found" about an object by the same words, so that
// whose it is makes no difference.
func hide(err error) error {
	if e := sandbox.AsError(err); e != nil && e.Code == sandbox.CodeNotFound {
		return notFound()
	}
	return err
}

// statusOf returns the HTTP status of an error.
func (s *server) statusOf(err error) int {
	var own *statusError
	if errors.As(err, &own) {
		return own.status
	}
	if status, ok := s.status[sandbox.AsError(err).Code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// shown returns what may be said of an error: the text of a failure that
// nobody foresaw may name files of the host, and stays in the log.
func (s *server) shown(r *http.Request, err error) *sandbox.Error {
	e := sandbox.AsError(err)
	if e.Code != sandbox.CodeInternal {
		return e
	}
	id, level := requestID(r.Context()), slog.LevelError
	if r.Context().Err() != nil { // what fails because the client has gone is no failure
		level = slog.LevelDebug
	}
	s.o.Log.Log(r.Context(), level, "request failed", "request", id, "route", r.Pattern, "error", err.Error())
	return &sandbox.Error{Code: sandbox.CodeInternal, Message: "the server failed", Hint: "its log says why, under request " + id}
}

// fail answers with an error. Nothing may have been written before.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, e := s.statusOf(err), s.shown(r, err)
	if a, ok := w.(*answer); ok {
		defer a.swallow(r)()
	}
	h := w.Header()
	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="pinfold"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.Itoa(retryAfter(err)))
	}
	for _, name := range []string{"Content-Length", "Content-Disposition", "Content-Encoding", "Accept-Ranges", "ETag"} {
		h.Del(name)
	}
	writeJSON(w, status, sandbox.ErrorBody{Error: s.o.Engine.Within(e)})
}

// retryAfter is when to come back, in whole seconds, at least one.
func retryAfter(err error) int {
	var known interface{ RetryAfter() time.Duration }
	if errors.As(err, &known) {
		return max(1, int(math.Ceil(known.RetryAfter().Seconds())))
	}
	return 1
}

// answerPart is how much of an answer is written at a time: a slow client has
// the server's timeout for each part.
const answerPart = 256 << 10

// writeJSON answers with a value. Text of guests stays as it is: the media type
// and nosniff keep it from being anything but data.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	begun := false
	err := encode(w, v, func(b []byte) error {
		begun = true
		if b[len(b)-1] == '\n' { // it ends the value, and is nowhere else
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		}
		w.WriteHeader(status)
		return nil
	})
	if err != nil && !begun { // our own types: cannot happen
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write(sandbox.MarshalErrorBody(err)) // nobody may be left to tell
	}
}

// encode writes a value as one line of JSON, in parts. The text is made once
// and not copied: results are large. begin is called with the first of it, and
// not at all for a value that cannot be encoded.
func encode(w io.Writer, v any, begin func(b []byte) error) error {
	return json.NewEncoder(&partWriter{w: w, begin: begin}).Encode(v)
}

// partWriter cuts large writes.
type partWriter struct {
	w     io.Writer
	begin func(b []byte) error // nil once it has begun
}

func (p *partWriter) Write(b []byte) (int, error) {
	if p.begin != nil && len(b) > 0 {
		if err := p.begin(b); err != nil {
			return 0, err
		}
		p.begin = nil
	}
	for part := range slices.Chunk(b, answerPart) {
		if _, err := p.w.Write(part); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}
