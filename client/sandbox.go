package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"pinfold/sandbox"
)

// Sandbox is a handle on a living sandbox of the server. It holds nothing: the
// sandbox lives on when the handle is forgotten, until its time is over.
type Sandbox struct {
	client *Client
	id     string
}

// Create makes a living sandbox. When the server is full it waits in the
// server's queue. The caller destroys the sandbox; its time to live does
// otherwise.
func (c *Client) Create(ctx context.Context, s sandbox.Create) (*Sandbox, error) {
	if len(s.Mounts) > 0 {
		return nil, checkSendable(sandbox.Spec{Mounts: s.Mounts})
	}
	info, err := answered[sandbox.Info](ctx, c, call{method: http.MethodPost, path: []string{"v1", "sandboxes"}, json: s})
	if err != nil {
		return nil, err
	}
	return &Sandbox{c, info.ID}, nil
}

// Sandbox returns a handle on the sandbox of that id. The server is not asked
// whether there is one; Info does.
func (c *Client) Sandbox(id string) *Sandbox { return &Sandbox{c, id} }

// Sandboxes returns the sandboxes that match, page by page as they are asked
// for: without Filter.States also those that have ended, as long as the server
// keeps them. An error is the last pair.
func (c *Client) Sandboxes(ctx context.Context, f Filter) iter.Seq2[sandbox.Info, error] {
	return pages[sandbox.Info](ctx, c, "sandboxes", f)
}

// ID returns the sandbox's id.
func (s *Sandbox) ID() string { return s.id }

// call is a request about this sandbox.
func (s *Sandbox) call(method string, path ...string) call {
	return call{method: method, path: append([]string{"v1", "sandboxes", s.id}, path...), repeat: method == http.MethodGet}
}

// Info describes the sandbox, also for a while after it has ended.
func (s *Sandbox) Info(ctx context.Context) (sandbox.Info, error) {
	return answered[sandbox.Info](ctx, s.client, s.call(http.MethodGet))
}

// Extend lets the sandbox live ttlMS milliseconds from now.
func (s *Sandbox) Extend(ctx context.Context, ttlMS int64) (sandbox.Info, error) {
	k := s.call(http.MethodPost, "extend")
	k.repeat, k.json = true, struct {
		TTLMS int64 `json:"ttl_ms"`
	}{ttlMS}
	return answered[sandbox.Info](ctx, s.client, k)
}

// ChangeNetwork changes what the sandbox can reach, at once: what is not declared any more is
// cut when it returns.
func (s *Sandbox) ChangeNetwork(ctx context.Context, c sandbox.NetworkChange) (sandbox.Info, error) {
	k := s.call(http.MethodPatch, "network")
	k.repeat, k.json = len(c.Allow) == 0, c // allowing twice what somebody denied in between is another wish
	return answered[sandbox.Info](ctx, s.client, k)
}

// WatchNetwork calls f with what has gone on with the declared endpoints since the sandbox was
// made, at once and after that whenever it has changed, until ctx or the sandbox ends, or f
// returns an error, which WatchNetwork returns. A connection that breaks is an error.
func (s *Sandbox) WatchNetwork(ctx context.Context, f func(sandbox.NetworkUse) error) error {
	return s.client.stream(ctx, s.call(http.MethodGet, "network", "events"), networkWatcher(f))
}

// networkWatcher takes the events of a network.
type networkWatcher func(sandbox.NetworkUse) error

func (w networkWatcher) take(e event) (last bool, err error) {
	if e.name == "end" {
		return true, nil
	}
	var u sandbox.NetworkUse
	if err := e.decode(&u); err != nil {
		return false, err
	}
	return false, w(u)
}

// Pause has nothing in the sandbox run any more until Resume; it keeps its memory and its
// files. What else is asked of it is an error until then. That it is paused is no error.
func (s *Sandbox) Pause(ctx context.Context) (sandbox.Info, error) {
	return s.change(ctx, "pause")
}

// Resume has what is in a paused sandbox go on. That it runs is no error.
func (s *Sandbox) Resume(ctx context.Context) (sandbox.Info, error) {
	return s.change(ctx, "resume")
}

// change asks for something that may be asked again.
func (s *Sandbox) change(ctx context.Context, what string) (sandbox.Info, error) {
	k := s.call(http.MethodPost, what)
	k.repeat = true
	return answered[sandbox.Info](ctx, s.client, k)
}

// Destroy ends the sandbox and returns when nothing of it is left on the host.
// That it has ended already is no error.
func (s *Sandbox) Destroy(ctx context.Context) (sandbox.Info, error) {
	k := s.call(http.MethodDelete)
	k.repeat = true
	return answered[sandbox.Info](ctx, s.client, k)
}

// values makes a query from pairs of names and values; empty values are left out.
func values(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}
