package profile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// Manifest shows tools in one of the forms.
func Manifest(form string, tools []sandbox.Tool) (sandbox.Manifest, error) {
	shape, known := map[string]func(sandbox.Tool) any{
		sandbox.FormPinfold: func(t sandbox.Tool) any { return t }, sandbox.FormOpenAI: openAI, sandbox.FormAnthropic: anthropic, sandbox.FormMCP: mcp,
	}[form]
	if !known {
		return sandbox.Manifest{}, (&sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "form", Message: fmt.Sprintf("no form \"%s\"", sandbox.SafeText(form, 40))}).
			WithHint("the forms are " + strings.Join(sandbox.ManifestForms(), ", "))
	}
	m := sandbox.Manifest{V: 1, Form: form, Profiles: []sandbox.ProfileRef{}, Tools: []json.RawMessage{}}
	for _, t := range tools {
		m.Profiles = append(m.Profiles, sandbox.ProfileRef{Name: t.Profile.Name, Digest: t.Digest})
		m.Tools = append(m.Tools, encoded(shape(t)))
	}
	return m, nil
}

// openAI is a tool as OpenAI's API takes it, strict.
func openAI(t sandbox.Tool) any {
	return object{"type": "function", "function": object{"name": t.Profile.Name, "description": summary(t), "parameters": input(true), "strict": true}}
}

// anthropic is a tool as Anthropic's API takes it.
func anthropic(t sandbox.Tool) any {
	return object{"name": t.Profile.Name, "description": summary(t), "input_schema": t.Input}
}

// mcp is a tool as MCP has it. What a program does in its sandbox changes nothing outside;
// what it does at endpoints may, unless they take nothing but GET and HEAD.
func mcp(t sandbox.Tool) any {
	endpoints := t.Profile.Network.Endpoints
	changes := slices.ContainsFunc(endpoints, func(e sandbox.Endpoint) bool {
		return len(e.Methods) == 0 || slices.ContainsFunc(e.Methods, func(m string) bool { return m != "GET" && m != "HEAD" })
	})
	return object{
		"name": t.Profile.Name, "title": t.Profile.Name, "description": summary(t), "inputSchema": t.Input, "outputSchema": t.Output,
		"annotations": object{"readOnlyHint": !changes, "destructiveHint": changes, "idempotentHint": false, "openWorldHint": len(endpoints) > 0},
		"_meta":       object{"pinfold/digest": t.Digest, "pinfold/blast_radius": t.BlastRadius},
	}
}
