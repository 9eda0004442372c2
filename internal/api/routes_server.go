package api

import (
	"net/http"
)

type health struct {
	Status  string `json:"status"`
	Version string `json:"version,omitempty"`
}

func (s *server) serverRoutes() []route {
	all := []route{
		{
			method: http.MethodGet, path: "/healthz", id: "health", tag: "Server", summary: "Whether the server lives", head: true,
			answers: []reply{jsonReply[health](http.StatusOK, "It does.")}, example: `curl -s $SERVER/healthz`,
			handle: func(c *call) error { return c.reply(http.StatusOK, health{"ok", c.o.Version}) },
		},
		{
			method: http.MethodGet, path: "/readyz", id: "ready", tag: "Server", summary: "Whether the server takes new work", head: true,
			answers: []reply{jsonReply[health](http.StatusOK, "It does.")}, errors: []int{http.StatusServiceUnavailable}, example: `curl -s $SERVER/readyz`,
			handle: func(c *call) error {
				if err := c.o.Engine.Ready(c.r.Context()); err != nil {
					return &statusError{http.StatusServiceUnavailable, c.shown(c.r, err)}
				}
				return c.reply(http.StatusOK, health{Status: "ready"})
			},
		},
		{
			method: http.MethodGet, path: "/openapi.json", id: "openapi", tag: "Server", summary: "This API as an OpenAPI 3.1 document", head: true,
			answers: []reply{{http.StatusOK, typeJSON, nil, "The document."}}, example: `curl -s $SERVER/openapi.json`,
			handle: func(c *call) error { return c.fixed(typeJSON, c.document) },
		},
		{
			method: http.MethodGet, path: "/docs", id: "docs", tag: "Server", summary: "This API as a page", head: true,
			answers: []reply{{http.StatusOK, "text/html", nil, "The page."}},
			handle: func(c *call) error {
				c.w.Header().Set("Content-Security-Policy", pagePolicy)
				return c.fixed("text/html; charset=utf-8", c.page)
			},
		},
	}
	all = append(all, route{
		method: http.MethodGet, path: "/{$}", head: true, hidden: true,
		handle: func(c *call) error {
			c.w.Header().Set("Location", "docs") // relative: a proxy may have a prefix of its own
			c.w.WriteHeader(http.StatusFound)
			return nil
		},
	})
	if s.o.Metrics != nil {
		all = append(all, route{
			method: http.MethodGet, path: "/metrics", id: "metrics", tag: "Server", summary: "Counts for Prometheus", scopes: []string{scopeAdmin},
			answers: []reply{{http.StatusOK, "text/plain", nil, "In Prometheus' text format."}},
			example: `curl -s $SERVER/metrics -H "Authorization: Bearer $KEY"`,
			handle: func(c *call) error {
				s.o.Metrics.ServeHTTP(c.w, c.r)
				return nil
			},
		})
	}
	return all
}

// fixed answers with something made beforehand.
func (c *call) fixed(mediaType string, b []byte) error {
	c.w.Header().Set("Content-Type", mediaType)
	_, err := c.w.Write(b)
	return err
}
