package client

import (
	"context"
	"net/http"

	"pinfold/sandbox"
)

// SetSecret keeps a secret on the server under a name, or takes the place of the one of that
// name. Nothing gives its value back; an Endpoint names it.
func (c *Client) SetSecret(ctx context.Context, name string, s sandbox.SetSecret) (sandbox.Secret, error) {
	return answered[sandbox.Secret](ctx, c, call{method: http.MethodPut, path: []string{"v1", "secrets", name}, json: s, repeat: true})
}

// Secrets lists the tenant's secrets by name, without their values.
func (c *Client) Secrets(ctx context.Context) ([]sandbox.Secret, error) {
	return listed[sandbox.Secret](ctx, c, get("secrets"))
}

// RemoveSecret removes the secret of that name. What runs already goes on with it.
func (c *Client) RemoveSecret(ctx context.Context, name string) error {
	return c.ask(ctx, call{method: http.MethodDelete, path: []string{"v1", "secrets", name}, repeat: true}, nil)
}
