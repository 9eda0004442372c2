package api

import (
	"net/http"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// secretRoutes are about what is kept for a tenant and never given back.
func (s *server) secretRoutes() []route {
	return []route{
		{
			method: http.MethodGet, path: "/v1/secrets", id: "listSecrets", tag: "Secrets", summary: "List secrets",
			scopes:      []string{scopeRun, scopeSandbox, scopeRead},
			description: "All that the tenant has, by name, without their values: nothing gives these back.",
			answers:     []reply{jsonReply[List[sandbox.Secret]](http.StatusOK, "The secrets.")},
			example:     `curl -s $SERVER/v1/secrets -H "Authorization: Bearer $KEY"`,
			handle: func(c *call) error {
				all, err := c.o.Secrets.List(c.r.Context(), c.tenant())
				return c.ok(items(all), err)
			},
		},
		{
			method: http.MethodPut, path: "/v1/secrets/{secret}", id: "setSecret", tag: "Secrets", summary: "Set a secret",
			scopes:      []string{scopeAdmin},
			description: "Makes it, or takes the place of the one of that name. Requests name it in an endpoint; then the host puts it into the program's requests to one of its hosts, in TLS, and the program never has it. What runs already goes on with the old one.",
			body:        jsonBody[sandbox.SetSecret]("For which hosts it is, where it stands in a request, and its value."),
			answers:     []reply{jsonReply[sandbox.Secret](http.StatusOK, "What can be known of it from now on.")},
			errors:      []int{http.StatusServiceUnavailable},
			example:     `curl -s -X PUT $SERVER/v1/secrets/github -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d @secret.json`,
			handle: withBody((*call).secretName, func(c *call, name string, b *sandbox.SetSecret) error {
				var made sandbox.Secret
				err := c.attested(sandbox.AuditSecretSet, name, func() (err error) {
					made, err = c.o.Secrets.Set(c.r.Context(), c.tenant(), name, *b)
					return err
				})
				return c.ok(made, err)
			}),
		},
		{
			method: http.MethodDelete, path: "/v1/secrets/{secret}", id: "removeSecret", tag: "Secrets", summary: "Remove a secret",
			scopes:      []string{scopeAdmin},
			description: "What runs already goes on with it.",
			answers:     []reply{{http.StatusNoContent, "", nil, "It is gone."}}, errors: []int{http.StatusNotFound},
			example: `curl -s -X DELETE $SERVER/v1/secrets/github -H "Authorization: Bearer $KEY"`,
			handle: func(c *call) error {
				name := c.r.PathValue("secret")
				return c.done(c.attested(sandbox.AuditSecretRemoved, name, func() error {
					return c.o.Secrets.Remove(c.r.Context(), c.tenant(), name)
				}))
			},
		},
	}
}

// attested changes a secret and records that in the audit log, where there is one. Where
// nothing can be recorded, and all must be, it changes nothing.
func (c *call) attested(kind sandbox.AuditKind, name string, change func() error) error {
	l, ctx := c.o.Audit, c.r.Context()
	if l != nil && l.Strict() {
		if err := l.Check(); err != nil {
			return err
		}
	}
	asked := time.Now()
	if err := change(); err != nil || l == nil {
		return err
	}
	if _, err := l.Record(ctx, records.SecretEvent(kind, c.tenant(), records.KeyOf(ctx), name, asked)); err != nil && l.Strict() {
		missing := sandbox.AsError(err)
		return &sandbox.Error{Code: missing.Code, Message: "the secret was changed, and that is not in the audit log yet: " + missing.Message, Hint: missing.Hint, Err: err}
	}
	return nil // the log counts what it could not write, and tells of it
}

// secretName is the name of the path, which the store checks.
func (c *call) secretName() (string, error) { return c.r.PathValue("secret"), nil }
