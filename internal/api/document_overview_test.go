package api

import "github.com/danielgtaylor/huma/v2"

// openapi is the document before its routes.
func openapi(version string) huma.Config {
	c := huma.DefaultConfig("Pinfold", version)
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", "" // served by routes of ours
	c.CreateHooks, c.Transformers = nil, nil              // they add links to schemas to every answer
	c.AllowAdditionalPropertiesByDefault = true           // an answer may grow
	c.Info.Description = overview
	c.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	c.Components.Responses = map[string]*huma.Response{}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"key":    {Type: "http", Scheme: "bearer", Description: "An API key (pfk_…) as Authorization: Bearer."},
		"header": {Type: "apiKey", In: "header", Name: "X-API-Key", Description: "The same key in a header of its own."},
	}
	c.Tags = []*huma.Tag{
		{Name: "Runs", Description: "One program in one fresh sandbox, one result."},
		{Name: "Sandboxes", Description: "Living sandboxes: they stay until you end them, their time is over, or nobody has used them for long."},
		{Name: "Secrets", Description: "What the host puts into programs' requests to declared endpoints, and programs never have."},
		{Name: "Profiles", Description: "Tools that the operator declares: requests that name one may narrow it and not widen it."},
		{Name: "Snapshots", Description: "What a living sandbox holds at one moment, kept on the server; and sandboxes that begin with it."},
		{Name: "Processes", Description: "Commands in a living sandbox. A client that goes away never ends one."},
		{Name: "Files", Description: "Files of a living sandbox, as streams of any size. Paths are absolute or relative to /home/user."},
		{Name: "Ports", Description: "Servers that listen inside a sandbox."},
		{Name: "Audit", Description: "The record that nobody can rewrite unnoticed, and what proves it (docs/audit.md)."},
		{Name: "Approval", Description: "Runs that wait for a person, because a rule of the operator has one asked, and what a policy would have done (docs/policy.md)."},
		{Name: "Host", Description: "What this host offers, and what you have used."},
		{Name: "Server", Description: "The server itself."},
	}
	return c
}

const overview = `Pinfold runs code that nobody has read yet in sandboxes with declared limits, and says honestly what became of it.

Every request but those for the server's health needs an API key: "Authorization: Bearer pfk_…" or "X-API-Key: pfk_…". Over the unix socket no key is needed.

Every error has the same form: {"error": {"code", "message", "hint", "field"}}. The code never changes its meaning; the hint says what to do; the field is the one at fault. docs/errors.md in the source has them all, with what to do. Objects of other tenants are not found.

JSON is read strictly: unknown fields, fields given twice and unknown parameters are errors that name what was probably meant. Absent limits mean the defaults, never infinity.`
