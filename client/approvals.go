package client

import (
	"context"
	"net/http"

	"pinfold/sandbox"
)

// Approvals lists the runs that wait for a person, the oldest first: those of the key's
// tenant, or with the scope admin of all.
func (c *Client) Approvals(ctx context.Context) ([]sandbox.Approval, error) {
	return listed[sandbox.Approval](ctx, c, get("approvals"))
}

// Approval returns a run that waits, with what will run.
func (c *Client) Approval(ctx context.Context, run string) (sandbox.Approval, error) {
	return answered[sandbox.Approval](ctx, c, get("approvals", run))
}

// ApproveRun lets a run that waits go on; DenyRun refuses it. The key needs the scope
// approve, and is not the one that asked.
func (c *Client) ApproveRun(ctx context.Context, run, reason string) (sandbox.Approval, error) {
	return c.decide(ctx, run, "approve", reason)
}

// DenyRun refuses a run that waits.
func (c *Client) DenyRun(ctx context.Context, run, reason string) (sandbox.Approval, error) {
	return c.decide(ctx, run, "deny", reason)
}

func (c *Client) decide(ctx context.Context, run, word, reason string) (sandbox.Approval, error) {
	k := runCall(http.MethodPost, run, word)
	k.json, k.repeat = sandbox.Decide{Reason: reason}, false
	return answered[sandbox.Approval](ctx, c, k)
}

// TestPolicy says what a policy would have done to the server's last runs. It takes the
// scope admin, and changes nothing.
func (c *Client) TestPolicy(ctx context.Context, t sandbox.PolicyTrial) (sandbox.PolicyReport, error) {
	return answered[sandbox.PolicyReport](ctx, c, call{method: http.MethodPost, path: []string{"v1", "policy", "test"}, json: t, repeat: true})
}
