package api

import (
	"context"
	"net/http"
	"time"

	"pinfold/sandbox"
)

// keyCheck is how often the key of a stream is looked at. Together with what
// the keys are remembered for (half a second) it makes a second: looking costs
// a hash.
const keyCheck = 400 * time.Millisecond

// watchKey looks at the key of a request again and again while it is served,
// and cancels it with the reason once the key opens nothing any more. Streams
// last for hours: a key that was revoked must not go on reading for so long.
// That the keys cannot be read at the moment ends nothing. The returned
// function ends the watch.
func (s *server) watchKey(r *http.Request, scopes []string, cancel context.CancelCauseFunc) (stop func()) {
	if _, byLink := r.Context().Value(linkKey{}).(link); isLocalPeer(r.Context()) && !byLink {
		return func() {}
	}
	ctx, end := context.WithCancel(r.Context())
	request := r.Clone(ctx) // whoever serves the request may change its header
	go func() {
		_ = every(ctx, keyCheck, func() error { // whatever ended it is said by cancel
			who, err := s.identify(request)
			if err == nil {
				err = allow(who, scopes)
			}
			if err == nil || !refusesKey(err) {
				return nil
			}
			cancel(err)
			return err
		})
	}()
	return end
}

func refusesKey(err error) bool {
	code := sandbox.AsError(err).Code
	return code == sandbox.CodeUnauthorized || code == sandbox.CodeForbidden
}
