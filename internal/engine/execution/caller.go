package execution

import (
	"context"
	"errors"
	"time"

	"pinfold/sandbox"
)

// CallerGone makes an error of ours of the end of the caller's context.
func CallerGone(ctx context.Context, err error) error {
	var known *sandbox.Error
	if ctx.Err() != nil && !errors.As(err, &known) {
		return &sandbox.Error{Code: sandbox.CodeDisconnected, Message: "the caller went away", Err: err}
	}
	return sandbox.AsError(err)
}

// Milliseconds is a time as results show it.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}
