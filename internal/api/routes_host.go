package api

import (
	"net/http"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

type (
	// driverInfo is a driver and what it can do on this host.
	driverInfo struct {
		Name      string          `json:"name"`
		Level     string          `json:"level"`
		Available bool            `json:"available"`
		Error     *sandbox.Error  `json:"error,omitempty"`
		Features  []driverFeature `json:"features"`
	}
	driverFeature struct {
		Feature string `json:"feature"`
		Answer  string `json:"answer"`
		Because string `json:"because"`
		Fix     string `json:"fix,omitempty"`
	}
	whoami struct {
		Tenant string   `json:"tenant"`
		KeyID  string   `json:"key_id"`
		Scopes []string `json:"scopes"`
		// Allow are the endpoints that requests with the key may declare; nil: all that
		// the tenant may.
		Allow []string `json:"allow,omitzero"`
		// Most is the most that a request may ask for, where a limit has less than its range.
		Most sandbox.Limits `json:"most,omitzero"`
	}
)

func (s *server) hostRoutes() []route {
	anyKey, admin := []string{scopeAny}, []string{scopeAdmin}
	return append([]route{
		{
			method: http.MethodGet, path: "/v1/templates", id: "listTemplates", tag: "Host", summary: "List templates", scopes: anyKey,
			answers: []reply{jsonReply[List[string]](http.StatusOK, "Their names.")},
			example: `curl -s $SERVER/v1/templates -H "Authorization: Bearer $KEY"`,
			handle: func(c *call) error {
				names, err := c.o.Engine.Templates(c.r.Context())
				return c.ok(items(names), err)
			},
		},
		{
			method: http.MethodGet, path: "/v1/drivers", id: "listDrivers", tag: "Host", summary: "List drivers, and what they can enforce here", scopes: anyKey,
			answers: []reply{jsonReply[List[driverInfo]](http.StatusOK, "The drivers, the strongest first.")},
			example: `curl -s $SERVER/v1/drivers -H "Authorization: Bearer $KEY"`,
			handle:  (*call).listDrivers,
		},
		{
			method: http.MethodGet, path: "/v1/usage", id: "getUsage", tag: "Host", summary: "What you have used, day by day", scopes: []string{scopeRead, scopeRun, scopeSandbox},
			description: "Days are in UTC; days without use are left out.",
			params: []param{
				{name: "from", kind: kindDate, doc: "The first day; default 30 days before the last."}, {name: "to", kind: kindDate, doc: "The last day, included; default today."},
			},
			answers: []reply{jsonReply[List[records.DayUsage]](http.StatusOK, "The days.")},
			example: `curl -s "$SERVER/v1/usage?from=2026-01-01" -H "Authorization: Bearer $KEY"`,
			handle:  (*call).usage,
		},
		{
			method: http.MethodGet, path: "/v1/whoami", id: "whoAmI", tag: "Host", summary: "Whose key this is", scopes: anyKey,
			answers: []reply{jsonReply[whoami](http.StatusOK, "The tenant, and what the key may do.")},
			example: `curl -s $SERVER/v1/whoami -H "Authorization: Bearer $KEY"`,
			handle: func(c *call) error {
				who := whoami{Tenant: c.who.Tenant, KeyID: c.who.KeyID, Scopes: append([]string{}, c.who.Scopes...), Most: c.o.Engine.Most()}
				if c.who.Allow != nil {
					who.Allow = []string{}
				}
				for _, e := range c.who.Allow {
					who.Allow = append(who.Allow, e.Words()...)
				}
				return c.reply(http.StatusOK, who)
			},
		},
	}, append(poolRoutes(admin), s.templateRoutes(admin)...)...)
}

func poolRoutes(admin []string) []route {
	return []route{
		{
			method: http.MethodGet, path: "/v1/pools", id: "listPools", tag: "Host", summary: "List pools of warm sandboxes", scopes: admin,
			answers: []reply{jsonReply[List[sandbox.PoolInfo]](http.StatusOK, "The pools.")},
			example: `curl -s $SERVER/v1/pools -H "Authorization: Bearer $KEY"`,
			handle:  func(c *call) error { return c.ok(items(c.o.Engine.Pools()), nil) },
		},
		{
			method: http.MethodPut, path: "/v1/pools/{name}", id: "setPool", tag: "Host", summary: "Add or change a pool", scopes: admin,
			description: "Until the server starts again; the configuration file is for longer.",
			body:        jsonBody[sandbox.PoolSpec]("The pool; its name is the path's."),
			answers:     []reply{jsonReply[sandbox.PoolInfo](http.StatusOK, "The pool as it is now.")},
			errors:      []int{http.StatusUnprocessableEntity},
			example:     `curl -s -X PUT $SERVER/v1/pools/small -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"min": 4, "max": 16}'`,
			handle:      (*call).setPool,
		},
		{
			method: http.MethodDelete, path: "/v1/pools/{name}", id: "removePool", tag: "Host", summary: "Remove a pool", scopes: admin,
			description: "Its waiting sandboxes end; those that it has handed out live on.",
			answers:     []reply{{http.StatusNoContent, "", nil, "It is gone."}}, errors: []int{http.StatusNotFound},
			example: `curl -s -X DELETE $SERVER/v1/pools/small -H "Authorization: Bearer $KEY"`,
			handle:  func(c *call) error { return c.done(c.o.Engine.RemovePool(c.r.Context(), c.r.PathValue("name"))) },
		},
	}
}

func (c *call) listDrivers() error {
	reports, err := c.o.Engine.Reports(c.r.Context())
	if err != nil {
		return err
	}
	out := List[driverInfo]{Items: []driverInfo{}}
	for _, r := range reports {
		out.Items = append(out.Items, shownDriver(r))
	}
	return c.reply(http.StatusOK, out)
}

func shownDriver(r driver.Report) driverInfo {
	d := driverInfo{Name: r.Driver, Level: r.Level, Available: r.Blocked == nil, Error: r.Blocked, Features: []driverFeature{}}
	for _, f := range r.Findings {
		d.Features = append(d.Features, driverFeature{f.Feature, f.Answer.String(), f.Because, f.Fix.JSON()})
	}
	return d
}

// maxUsageDays bounds one answer.
const maxUsageDays = 3660

func (c *call) usage() error {
	to, given := c.query.date("to")
	if !given {
		to = time.Now().UTC().Truncate(24 * time.Hour)
	}
	from, given := c.query.date("from")
	if !given {
		from = to.AddDate(0, 0, -30)
	}
	if from.After(to) || to.Sub(from) > maxUsageDays*24*time.Hour {
		return badRequest("from", "is after to, or too long before it", "")
	}
	days, err := c.o.Engine.Usage(c.r.Context(), c.tenant(), from, to)
	return c.ok(items(days), err)
}

func (c *call) setPool() error {
	var spec sandbox.PoolSpec
	done, err := c.decode(0, &spec)
	if err != nil {
		return err
	}
	defer done()
	name := c.r.PathValue("name")
	if spec.Name != "" && spec.Name != name {
		return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "name", Message: "is not the name in the path", Hint: "leave it out"}
	}
	spec.Name = name
	return c.ok(c.o.Engine.SetPool(c.r.Context(), spec))
}
