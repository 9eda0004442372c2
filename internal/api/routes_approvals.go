package api

import (
	"context"
	"net/http"

	"pinfold/internal/policy"
	"pinfold/internal/scan"
	"pinfold/sandbox"
)

const decideDescription = `It waits because a rule of the operator's policy has a person asked. The key needs the scope approve for its own tenant's runs, or admin for all; it may not be the one that asked, unless policy.approval.own is set. The decision is in the run's result and in the audit log, with the key and the reason.`

// approvalRoutes are about runs that wait for a person, and about policies.
func (s *server) approvalRoutes() []route {
	approves, reads := []string{scopeApprove}, []string{scopeApprove, scopeRead}
	decide := func(word, summary string, v sandbox.Verdict) route {
		return route{
			method: http.MethodPost, path: runPath + "/" + word, id: word + "Run", tag: "Approval", summary: summary, description: decideDescription,
			scopes: approves, body: jsonBody[sandbox.Decide]("Why; {} is enough."),
			answers: []reply{jsonReply[sandbox.Approval](http.StatusOK, "What was decided on.")}, errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable},
			example: `curl -s -X POST $SERVER/v1/runs/$RUN/` + word + ` -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"reason": "looked at it"}'`,
			handle: withBody((*call).runID, func(c *call, id string, b *sandbox.Decide) error {
				a, err := c.o.Engine.Decide(c.r.Context(), c.decidesFor(), id, v, b.Reason)
				return c.ok(a, err)
			}),
		}
	}
	return []route{
		{
			method: http.MethodGet, path: "/v1/approvals", id: "listApprovals", tag: "Approval", summary: "List runs that wait for a person", scopes: reads,
			description: "The oldest first: those of the key's tenant, or with the scope admin of all.",
			answers:     []reply{jsonReply[List[sandbox.Approval]](http.StatusOK, "The runs.")},
			example:     `curl -s $SERVER/v1/approvals -H "Authorization: Bearer $KEY"`,
			handle:      func(c *call) error { return c.ok(items(c.o.Engine.Approvals(c.decidesFor())), nil) },
		},
		{
			method: http.MethodGet, path: "/v1/approvals/{run}", id: "getApproval", tag: "Approval", summary: "Get a run that waits for a person", scopes: reads,
			description: "With what will run: the whole request, or, where that is very large, without the contents of its files.",
			answers:     []reply{jsonReply[sandbox.Approval](http.StatusOK, "The run.")}, errors: []int{http.StatusNotFound},
			example: `curl -s $SERVER/v1/approvals/$RUN -H "Authorization: Bearer $KEY"`,
			handle: on((*call).runID, func(c *call, id string) error {
				a, err := c.o.Engine.Approval(c.decidesFor(), id)
				return c.ok(a, err)
			}),
		},
		decide("approve", "Approve a run", sandbox.VerdictApproved),
		decide("deny", "Deny a run", sandbox.VerdictDenied),
		{
			method: http.MethodPost, path: "/v1/policy/test", id: "testPolicy", tag: "Approval", summary: "What a policy would have done to the last runs", scopes: []string{scopeAdmin},
			description: "To those of all tenants that have finished and are kept. Nothing is changed. Of a run that nobody scanned its findings are not known.",
			body:        jsonBody[sandbox.PolicyTrial]("The policy, and how many runs."),
			answers:     []reply{jsonReply[sandbox.PolicyReport](http.StatusOK, "What it would have done.")},
			example:     `curl -s $SERVER/v1/policy/test -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"policy": {"rules": [{"id": "no-network", "when": {"network": "any"}, "then": {"network": "none"}}]}}'`,
			handle: withBody(nobody, func(c *call, _ struct{}, b *sandbox.PolicyTrial) error {
				r, err := c.tryPolicy(c.r.Context(), b)
				return c.ok(r, err)
			}),
		},
	}
}

// nobody is the object of a route that is about none.
func nobody(*call) (struct{}, error) { return struct{}{}, nil }

// decidesFor is the tenant on whose runs the key decides, or empty for all.
func (c *call) decidesFor() string {
	if c.who.Allows(scopeAdmin) {
		return ""
	}
	return c.tenant()
}

func (c *call) tryPolicy(ctx context.Context, b *sandbox.PolicyTrial) (sandbox.PolicyReport, error) {
	last := b.Last
	if last == 0 {
		last = sandbox.MaxTrial
	}
	if last < 1 || last > sandbox.MaxTrial {
		return sandbox.PolicyReport{}, badRequest("last", "is outside 1 to 1000", "leave it out for all that are looked at")
	}
	p, err := policy.New(b.Policy)
	if err == nil {
		err = policy.CheckFindings(b.Policy, scan.RuleIDs())
	}
	if err != nil {
		e := sandbox.AsError(err)
		return sandbox.PolicyReport{}, e.WithField("policy." + e.Field)
	}
	return c.o.Engine.TryPolicy(ctx, p, last)
}
