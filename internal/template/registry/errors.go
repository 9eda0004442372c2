package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"pinfold/sandbox"
)

// errTooSlow means that too little came for too long.
var errTooSlow = errors.New("too little came for too long")

// transient says whether it may go better the next time.
func transient(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	if answer := new(transport.Error); errors.As(err, &answer) {
		return answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= http.StatusInternalServerError
	}
	known := new(sandbox.Error)
	return !errors.As(err, &known)
}

// unreachable says what became of a question, for people.
func (r *repository) unreachable(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if known := new(sandbox.Error); errors.As(err, &known) {
		return known
	}
	// Whoever reads a layer must not take the end of a connection, which the chain of err
	// may hold, for the end of the layer.
	cause := errors.New(err.Error())
	registry, image := r.ref.Context().RegistryStr(), sandbox.SafeText(r.ref.Name(), 150)
	answer := new(transport.Error)
	if !errors.As(err, &answer) {
		return &sandbox.Error{
			Code: sandbox.CodeDisconnected, Message: fmt.Sprintf("the registry %s cannot be reached, or breaks off: %s", registry, sandbox.SafeText(err.Error(), 300)), Err: cause,
			Hint: "what came whole is kept; run it again to go on, or bring the image as an archive: pinfold template import FILE",
		}
	}
	said := sandbox.SafeText(answer.Error(), 300)
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return &sandbox.Error{
			Code: sandbox.CodeForbidden, Message: fmt.Sprintf("the registry %s does not give us %s: %s", registry, image, said), Err: cause,
			Hint: "check the name; if the image is private: docker login " + registry,
		}
	case http.StatusNotFound:
		return &sandbox.Error{Code: sandbox.CodeNotFound, Message: fmt.Sprintf("%s is not there: %s", image, said), Err: cause, Hint: "check the name and the tag"}
	}
	return &sandbox.Error{
		Code: sandbox.CodeDisconnected, Message: fmt.Sprintf("the registry %s cannot answer: %s", registry, said), Err: cause,
		Hint: "what came whole is kept; run it again to go on",
	}
}
