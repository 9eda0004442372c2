package api

import (
	"cmp"
	"crypto/cipher"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"pinfold/internal/audit"
	"pinfold/internal/engine"
	"pinfold/internal/secret/vault"
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
	// Audit is the server's audit log; nil: it keeps none.
	Audit *audit.Log
	// Watcher is a witness of others' logs; nil: the server is none.
	Watcher *audit.Watcher
	// Signer signs manifests of profiles; nil: they are not signed.
	Signer *audit.Signer
	// Build makes templates; nil: there are no images.
	Build Builder
	// Secrets keeps those of tenants; nil: none are kept, and requests for them say so.
	Secrets *vault.Store
	// Heartbeat is how often a silent stream sends a sign of life, default
	// 15 s. ClientTimeout is how long a client may neither send nor read what it
	// has to, default 30 s.
	Heartbeat, ClientTimeout time.Duration
}

// server is the API behind its handler.
type server struct {
	o         Options
	hosts     []string // AllowedHosts, as hostName gives them
	status    map[string]int
	portLabel *regexp.Regexp
	objectID  *regexp.Regexp
	bodies    budget      // what requests hold
	answers   budget      // what answers hold until they are out
	links     cipher.AEAD // seals links to ports
	mux       *http.ServeMux
	heads     map[string]bool // the patterns that take HEAD, too
	document  []byte          // the OpenAPI document
	page      []byte          // the page for readers
}

// New returns the handler of the whole API. It is safe for concurrent use and
// holds nothing that would have to be closed: when the server drains, the
// engine ends what streams wait for.
func New(o Options) (http.Handler, error) {
	return newServer(o).handler(), nil
}

func newServer(o Options) *server {
	s := &server{
		o: withDefaults(o), status: statuses(), portLabel: portLabel(), links: newSealer(), mux: http.NewServeMux(), heads: map[string]bool{},
		objectID: regexp.MustCompile(`^(run|sbx|prc|snp)_[a-z2-7]{26}$`),
	}
	for _, h := range o.AllowedHosts {
		s.hosts = append(s.hosts, strings.TrimSuffix(strings.ToLower(strings.Trim(h, "[]")), "."))
	}
	s.register(s.routes())
	s.document, s.page = document(o.Version)
	return s
}

func withDefaults(o Options) Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.MaxRunBody = cmp.Or(o.MaxRunBody, defaultMaxRunBody)
	o.MaxBody = cmp.Or(o.MaxBody, defaultMaxBody)
	o.Heartbeat = cmp.Or(o.Heartbeat, 15*time.Second)
	o.ClientTimeout = cmp.Or(o.ClientTimeout, 30*time.Second)
	o.Domain = strings.TrimSuffix(strings.ToLower(o.Domain), ".")
	return o
}

// routes is the whole table.
func (s *server) routes() []route {
	var all []route
	for _, part := range [][]route{s.runRoutes(), s.scanRoutes(), s.manifestRoutes(), s.sandboxRoutes(), s.snapshotRoutes(), s.processRoutes(), s.fileRoutes(), s.archiveRoutes(), s.portRoutes(), s.tunnelRoutes(), s.linkRoutes(), s.secretRoutes(), s.languageRoutes(), s.auditRoutes(), s.witnessRoutes(), s.approvalRoutes(), s.hostRoutes(), s.serverRoutes()} {
		all = append(all, part...)
	}
	return all
}
