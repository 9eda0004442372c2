package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Error codes. A code never changes its meaning once released.
const (
	CodeSpecInvalid         = "spec_invalid"         // the request is malformed
	CodeLimitInvalid        = "limit_invalid"        // a limit is zero, negative, absurd or unreadable
	CodeLanguageUnknown     = "language_unknown"     // no such language in the table
	CodeLanguageMissing     = "language_missing"     // the language is known but the template lacks it
	CodePathInvalid         = "bad_path"             // a path leaves its root, is too long or has forbidden bytes
	CodeNotRegularFile      = "not_regular_file"     // a symbolic link, device, pipe or directory where a file must be
	CodeFileNotFound        = "file_not_found"       // no such file
	CodeTooLarge            = "too_large"            // over a size, count or total cap
	CodeRequirementUnmet    = "requirement_unmet"    // something asked for with require, isolation or driver cannot be had here
	CodeDriverUnknown       = "driver_unknown"       // no driver of that name
	CodeDriverUnavailable   = "driver_unavailable"   // the driver cannot work on this host
	CodeTemplateUnknown     = "template_unknown"     // no template of that name
	CodeNetworkUnsupported  = "network_unsupported"  // a network that this driver cannot give
	CodeFeatureUnknown      = "feature_unknown"      // require names something that does not exist
	CodeSetupFailed         = "setup_failed"         // making the sandbox failed at a named step
	CodeProtocol            = "protocol"             // the guest side broke the agent protocol
	CodeInternal            = "internal"             // Pinfold's own fault
	CodeCommandNotFound     = "command_not_found"    // the program to start does not exist in the sandbox
	CodeCommandNotRunnable  = "command_not_runnable" // it exists but cannot be executed
	CodeResourceUnavailable = "resource_unavailable" // the host ran out of something Pinfold needs
	CodeEndpointDenied      = "endpoint_denied"      // an endpoint that the operator, or the key, does not let the request reach
	CodeProfileUnknown      = "profile_unknown"      // no profile of that name
	CodeProfileDenied       = "profile_denied"       // the request wants more than the profile that it names has, or than its key may use
	CodeManifestInvalid     = "manifest_invalid"     // a manifest that is not what its key has signed
	CodePortClosed          = "port_closed"          // no server inside listens on that port
	CodeBuildFailed         = "build_failed"         // a step of a template's build failed
	CodePackagesFailed      = "packages_failed"      // packages could not be fetched and installed
	CodeStartFailed         = "start_failed"         // what the sandboxes of a template begin with failed
)

// Error is a refusal or a failure, said the same way at every edge. Message
// says what is wrong, Hint what to do about it (it works when pasted), and
// Field names the request field at fault, dotted from the root
// ("limits.memory_bytes").
//
// Err, when set, is the private cause: it is for logs and is never sent out.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Field   string `json:"field,omitempty"`
	// Advice is Hint as data, where it is more than a text: what to set, leave
	// out or call. Hint says it in the words of JSON.
	Advice Advice `json:"advice,omitempty"`

	Err error `json:"-"`
}

// Error returns the message with its field, without the hint.
func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error with a formatted message. A wrapped error (%w) becomes
// its private cause.
func Errorf(code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint returns a copy of e that carries the hint, a text and nothing else.
func (e *Error) WithHint(hint string) *Error {
	c := *e
	c.Hint, c.Advice = hint, nil
	return &c
}

// WithField returns a copy of e that names the field at fault.
func (e *Error) WithField(field string) *Error {
	c := *e
	c.Field = field
	return &c
}

// AsError returns err as an *Error. Any other error becomes one with
// CodeInternal, whose message is err's text. A nil err gives nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error(), Err: err}
}

// ErrorBody is the envelope in which an Error travels: {"error": {…}}.
type ErrorBody struct {
	Error *Error `json:"error"`
}

// MarshalErrorBody returns err as {"error": {…}} in JSON.
func MarshalErrorBody(err error) []byte {
	b, mErr := json.Marshal(ErrorBody{Error: AsError(err)})
	if mErr != nil { // strings only: cannot happen
		return []byte(`{"error":{"code":"internal","message":"unprintable error"}}`)
	}
	return b
}
