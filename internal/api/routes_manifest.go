package api

import (
	"net/http"

	"pinfold/internal/profile"
	"pinfold/sandbox"
)

const manifestDescription = `The profiles of the server's configuration that the key may use, each as a tool: JSON Schemas of what it takes and gives, and its blast radius, the most that it can touch and cost. "tools" is in the form that is asked for: Pinfold's, or what OpenAI's and Anthropic's APIs and MCP take as they are. To call a tool, post its arguments to /v1/runs with "profile": its name beside them.

Each profile has a digest, which results repeat: another digest says that something the profile fixes has changed. "pinfold manifest verify" checks the signature, offline.`

func (s *server) manifestRoutes() []route {
	return []route{{
		method: http.MethodGet, path: "/v1/manifest", id: "getManifest", tag: "Profiles", summary: "The profiles as tools, signed", description: manifestDescription, scopes: []string{scopeAny},
		params:  []param{{name: "form", kind: kindText, words: sandbox.ManifestForms(), fallback: sandbox.FormPinfold, doc: "The form of the tools."}},
		answers: []reply{jsonReply[sandbox.SignedManifest](http.StatusOK, "The manifest and its signature.")},
		example: `curl -s "$SERVER/v1/manifest?form=mcp" -H "Authorization: Bearer $KEY"`,
		handle:  (*call).manifest,
	}}
}

func (c *call) manifest() error {
	m, err := profile.Manifest(c.query.text("form"), c.o.Engine.Tools(c.tenant(), c.who.Profiles))
	if err != nil {
		return err
	}
	if c.o.Signer == nil {
		return c.ok(profile.Seal(m, nil))
	}
	signed, err := profile.Seal(m, c.o.Signer.Sign)
	signed.PublicKey = c.o.Signer.PublicKey()
	return c.ok(signed, err)
}
