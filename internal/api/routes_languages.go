package api

import (
	"net/http"

	"pinfold/internal/engine/runs"
)

func (s *server) languageRoutes() []route {
	anyKey := []string{scopeAny}
	return []route{
		{
			method: http.MethodGet, path: "/v1/languages", id: "listLanguages", tag: "Host", summary: "List languages", scopes: anyKey,
			answers: []reply{jsonReply[List[runs.LanguageInfo]](http.StatusOK, "The languages, and which of them the template has.")},
			example: `curl -s $SERVER/v1/languages -H "Authorization: Bearer $KEY"`,
			handle:  (*call).listLanguages,
		},
	}
}

func (c *call) listLanguages() error {
	all, err := c.o.Engine.Languages(c.r.Context())
	return c.ok(items(all), err)
}
