package client

import (
	"context"
	"net/http"

	"pinfold/sandbox"
)

// Snapshot keeps what the sandbox holds at this moment on the server, until it expires or is
// removed. Its Holds say what that is. sandbox.Create's Snapshot makes a sandbox of it.
func (s *Sandbox) Snapshot(ctx context.Context, t sandbox.TakeSnapshot) (sandbox.Snapshot, error) {
	k := s.call(http.MethodPost, "snapshots")
	k.json = t
	return answered[sandbox.Snapshot](ctx, s.client, k)
}

// Fork makes sandboxes that begin with what this one holds at this moment: all that are
// asked for, or none.
func (s *Sandbox) Fork(ctx context.Context, f sandbox.ForkSandbox) ([]*Sandbox, error) {
	k := s.call(http.MethodPost, "fork")
	k.json = f
	made, err := listed[sandbox.Info](ctx, s.client, k)
	var forks []*Sandbox
	for _, info := range made {
		forks = append(forks, s.client.Sandbox(info.ID))
	}
	return forks, err
}

// Snapshots lists the tenant's snapshots, the oldest first.
func (c *Client) Snapshots(ctx context.Context) ([]sandbox.Snapshot, error) {
	return listed[sandbox.Snapshot](ctx, c, get("snapshots"))
}

// Snapshot describes the snapshot of that id.
func (c *Client) Snapshot(ctx context.Context, id string) (sandbox.Snapshot, error) {
	return answered[sandbox.Snapshot](ctx, c, get("snapshots", id))
}

// RemoveSnapshot removes the snapshot of that id. Sandboxes that were made of it live on.
func (c *Client) RemoveSnapshot(ctx context.Context, id string) error {
	return c.ask(ctx, call{method: http.MethodDelete, path: []string{"v1", "snapshots", id}, repeat: true}, nil)
}
