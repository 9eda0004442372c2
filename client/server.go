package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"pinfold/sandbox"
)

// Language is one language that the server knows.
type Language struct {
	Name       string   `json:"name"`
	Title      string   `json:"title"`
	Available  bool     `json:"available"` // the template has what it needs
	Version    string   `json:"version,omitempty"`
	Programs   []string `json:"programs,omitempty"` // what runs it, where they lie inside
	Aliases    []string `json:"aliases"`
	Extensions []string `json:"extensions"`
	Reason     string   `json:"reason,omitempty"` // why it is not available
}

// Day is what the key's tenant used on one day.
type Day struct {
	Day           string `json:"day"` // 2006-01-02, UTC
	Runs          int64  `json:"runs"`
	Sandboxes     int64  `json:"sandboxes"`
	CPUMS         int64  `json:"cpu_ms"`
	WallMS        int64  `json:"wall_ms"`
	MemoryMiBMS   int64  `json:"memory_mib_ms"` // peak MiB times milliseconds
	OutputBytes   int64  `json:"output_bytes"`
	ArtifactBytes int64  `json:"artifact_bytes"`
}

// Identity is who the server takes the caller for.
type Identity struct {
	Tenant string   `json:"tenant"`
	KeyID  string   `json:"key_id"`
	Scopes []string `json:"scopes"`
	// Allow are the endpoints that requests with the key may declare; nil: all that its
	// tenant may.
	Allow []string `json:"allow,omitzero"`
	// Most is the most that a request may ask for, where the operator allows less than a
	// limit's range.
	Most sandbox.Limits `json:"most,omitzero"`
}

func get(path ...string) call {
	return call{method: http.MethodGet, path: append([]string{"v1"}, path...), repeat: true}
}

// Languages lists the languages and which of them the server's default
// template has.
func (c *Client) Languages(ctx context.Context) ([]Language, error) {
	return listed[Language](ctx, c, get("languages"))
}

// Scan looks at a program and runs nothing of it. It is advice; what holds a program is
// the sandbox.
func (c *Client) Scan(ctx context.Context, req sandbox.ScanRequest) (*sandbox.ScanReport, error) {
	return answered[*sandbox.ScanReport](ctx, c, call{method: http.MethodPost, path: []string{"v1", "scan"}, json: req, repeat: true})
}

// Templates lists the names of the templates.
func (c *Client) Templates(ctx context.Context) ([]string, error) {
	return listed[string](ctx, c, get("templates"))
}

// Drivers returns what each driver can do on the server's host, as JSON: the
// report of "pinfold doctor" grows with the kernels that it asks about.
func (c *Client) Drivers(ctx context.Context) ([]json.RawMessage, error) {
	return listed[json.RawMessage](ctx, c, get("drivers"))
}

// Pools lists the pools of warm sandboxes and how they do.
func (c *Client) Pools(ctx context.Context) ([]sandbox.PoolInfo, error) {
	return listed[sandbox.PoolInfo](ctx, c, get("pools"))
}

// SetPool adds a pool or changes the one of that name. The key needs the scope
// admin.
func (c *Client) SetPool(ctx context.Context, p sandbox.PoolSpec) (sandbox.PoolInfo, error) {
	return answered[sandbox.PoolInfo](ctx, c, call{method: http.MethodPut, path: []string{"v1", "pools", p.Name}, json: p, repeat: true})
}

// RemovePool ends a pool. Sandboxes that it has handed out live on. The key
// needs the scope admin.
func (c *Client) RemovePool(ctx context.Context, name string) error {
	return c.ask(ctx, call{method: http.MethodDelete, path: []string{"v1", "pools", name}, repeat: true}, nil)
}

// Usage returns what the key's tenant used on the days from and to, both
// included and in UTC. A zero time leaves the choice to the server.
func (c *Client) Usage(ctx context.Context, from, to time.Time) ([]Day, error) {
	k := get("usage")
	k.query = values("from", date(from), "to", date(to))
	return listed[Day](ctx, c, k)
}

func date(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateOnly)
}

// WhoAmI returns who the server takes the caller for.
func (c *Client) WhoAmI(ctx context.Context) (Identity, error) {
	return answered[Identity](ctx, c, get("whoami"))
}

// Health returns nil when the server is there. It needs no key.
func (c *Client) Health(ctx context.Context) error {
	return c.ask(ctx, call{method: http.MethodGet, path: []string{"healthz"}, accept: "*/*"}, nil)
}

// Ready returns nil when the server takes new work, or why it does not.
func (c *Client) Ready(ctx context.Context) error {
	return c.ask(ctx, call{method: http.MethodGet, path: []string{"readyz"}, accept: "*/*"}, nil)
}
