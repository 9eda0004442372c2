package api

import (
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// Options are what the API needs. Engine and Access must be set.
type Options struct {
	Engine *engine.Engine
	Access Authenticator
	// Version is Pinfold's, for /healthz and the OpenAPI document.
	Version string
	// Domain is where servers inside sandboxes have names of their own:
	// PORT-ID.DOMAIN. Empty: they are reached by path only.
	Domain string
	// AllowedHosts are the names under which the server may be addressed,
	// without ports, besides loopback and the address itself.
	AllowedHosts []string
	// AllowedOrigins are origins ("https://console.example.com") whose pages
	// may send requests. Without any, no page may.
	AllowedOrigins []string
	// Metrics answers /metrics; nil: there is no such route.
	Metrics http.Handler
	// Middleware stands around everything, for measuring. The request's
	// Pattern is known when the inner handler has returned.
	Middleware func(http.Handler) http.Handler
	// Log receives failures of the server and, at the debug level, requests.
	Log *slog.Logger
	// MaxRunBody and MaxBody bound JSON bodies in bytes: of runs (default
	// 96 MiB), and of everything else (1 MiB).
	MaxRunBody, MaxBody int64
	// SpoolDir is where an archive that must be read twice waits, in a file
	// without a name; default the system's temporary directory.
	SpoolDir string
	// Heartbeat is how often a silent stream sends a sign of life, default
	// 15 s. Patience is how long a client may neither send nor read what it
	// has to, default 30 s.
	Heartbeat, Patience time.Duration
}

// server is the API behind its handler.
type server struct {
	o         Options
	hosts     []string // AllowedHosts, as hostName gives them
	status    map[string]int
	portLabel *regexp.Regexp
	objectID  *regexp.Regexp
	bodies    budget
	mux       *http.ServeMux
	document  []byte // the OpenAPI document
	page      []byte // the page for readers
}

// New returns the handler of the whole API. It is safe for concurrent use and
// holds nothing that would have to be closed: when the server drains, the
// engine ends what streams wait for.
func New(o Options) (http.Handler, error) {
	s, err := newServer(o)
	if err != nil {
		return nil, err
	}
	return s.handler(), nil
}

// Document returns the OpenAPI document of this version's API.
func Document(version string) ([]byte, error) {
	s, err := newServer(Options{Version: version, Metrics: http.NotFoundHandler()})
	if err != nil {
		return nil, err
	}
	return s.document, nil
}

func newServer(o Options) (*server, error) {
	s := &server{
		o: withDefaults(o), status: statuses(), portLabel: portLabel(), mux: http.NewServeMux(),
		objectID: regexp.MustCompile(`^(run|sbx|prc)_[a-z2-7]{26}$`),
	}
	for _, h := range o.AllowedHosts {
		s.hosts = append(s.hosts, strings.TrimSuffix(strings.ToLower(strings.Trim(h, "[]")), "."))
	}
	document := s.register(s.routes())
	var err error
	if s.document, err = document.MarshalJSON(); err != nil {
		return nil, sandbox.Errorf(sandbox.CodeInternal, "the OpenAPI document: %w", err)
	}
	if s.document, err = indent(s.document); err != nil {
		return nil, err
	}
	if s.page, err = renderPage(document); err != nil {
		return nil, sandbox.Errorf(sandbox.CodeInternal, "the page of the API: %w", err)
	}
	return s, nil
}

func withDefaults(o Options) Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxRunBody == 0 {
		o.MaxRunBody = defaultMaxRunBody
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 15 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = 30 * time.Second
	}
	o.Domain = strings.TrimSuffix(strings.ToLower(o.Domain), ".")
	return o
}

// routes is the whole table.
func (s *server) routes() []route {
	var all []route
	for _, part := range [][]route{s.runRoutes(), s.sandboxRoutes(), s.processRoutes(), s.fileRoutes(), s.archiveRoutes(), s.portRoutes(), s.languageRoutes(), s.hostRoutes(), s.serverRoutes()} {
		all = append(all, part...)
	}
	return all
}

// openapi is the document before its routes.
func openapi(version string) huma.Config {
	c := huma.DefaultConfig("Pinfold", version)
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", "" // served by routes of ours
	c.CreateHooks, c.Transformers = nil, nil              // they add links to schemas to every answer
	c.AllowAdditionalPropertiesByDefault = true           // an answer may grow
	c.Info.Description = overview
	c.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"key":    {Type: "http", Scheme: "bearer", Description: "An API key (pfk_…) as Authorization: Bearer."},
		"header": {Type: "apiKey", In: "header", Name: "X-API-Key", Description: "The same key in a header of its own."},
	}
	c.Tags = []*huma.Tag{
		{Name: "Runs", Description: "One program in one fresh sandbox, one result."},
		{Name: "Sandboxes", Description: "Living sandboxes: they stay until you end them, their time is over, or nobody has used them for long."},
		{Name: "Processes", Description: "Commands in a living sandbox. A client that goes away never ends one."},
		{Name: "Files", Description: "Files of a living sandbox, as streams of any size. Paths are absolute or relative to /home/user."},
		{Name: "Ports", Description: "Servers that listen inside a sandbox."},
		{Name: "Host", Description: "What this host offers, and what you have used."},
		{Name: "Server", Description: "The server itself."},
	}
	return c
}

const overview = `Pinfold runs code that nobody has read yet in sandboxes with declared limits, and says honestly what became of it.

Every request but those for the server's health needs an API key: "Authorization: Bearer pfk_…" or "X-API-Key: pfk_…". Over the unix socket no key is needed.

Every error has the same form: {"error": {"code", "message", "hint", "field"}}. The code never changes its meaning; the hint says what to do; the field is the one at fault. Objects of other tenants are not found.

JSON is read strictly: unknown fields, fields given twice and unknown parameters are errors that name what was probably meant. Absent limits mean the defaults, never infinity.`
