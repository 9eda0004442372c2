// Package config is the server's configuration: one YAML file, read strictly.
// An unknown key, a key given twice, a value of the wrong kind and a value out
// of range are errors that say where, and what was probably meant. What the file
// does not say has a default, and no default is "unlimited".
//
// The package knows the file and its meaning. It opens no listener and makes
// no directory; package serve acts on what stands here.
package config

import (
	"cmp"
	_ "embed"
	"time"

	"pinfold/internal/config/defaults"
	"pinfold/internal/packages"
	"pinfold/sandbox"
)

// Size is a number of bytes. In the file it is written as sandbox.ParseSize
// reads it: 64MiB, 1.5GiB, 4096.
type Size int64

// Config is everything that can be configured. Default returns one that works.
// Times are written as sandbox.ParseTime reads them: 30s, 500ms, 720h.
type Config struct {
	// Listen are the addresses: "HOST:PORT" with an IP address or localhost,
	// or "unix:/PATH".
	Listen []string `yaml:"listen"`
	// InsecureListen allows a TCP address that other machines reach without
	// TLS. Keys then travel in the clear.
	InsecureListen bool `yaml:"insecure_listen"`
	TLS            TLS  `yaml:"tls"`
	// State is the directory of everything that outlives the process.
	State string `yaml:"state"`
	// Domain is under which sandboxes' ports have host names; empty: none.
	Domain string `yaml:"domain"`
	// AllowedHosts are names by which clients may address the server, beside
	// those of its listeners; AllowedOrigins the web pages that may call it.
	AllowedHosts   []string `yaml:"allowed_hosts"`
	AllowedOrigins []string `yaml:"allowed_origins"`
	Capacity       Capacity `yaml:"capacity"`
	Quotas         Quotas   `yaml:"quotas"`
	Limits         Limits   `yaml:"limits"`
	TTL            TTL      `yaml:"ttl"`
	Network        Network  `yaml:"network"`
	Secrets        Secrets  `yaml:"secrets"`
	// Gate is what the output of every run is checked for, at least.
	Gate Gate `yaml:"gate"`
	// Profiles are tools by their names.
	Profiles map[string]Profile `yaml:"profiles"`
	// Policy decides which wall a run gets.
	Policy  Policy  `yaml:"policy"`
	Pools   []Pool  `yaml:"pools"`
	Drivers Drivers `yaml:"drivers"`
	// Audit is the record that nobody can rewrite, below State.
	Audit Audit `yaml:"audit"`
	// CompileCache keeps what compilers made, below State.
	CompileCache CompileCache `yaml:"compile_cache"`
	// Packages says where what requests ask for of packages comes from.
	Packages Packages `yaml:"packages"`
	// Snapshots bounds what is kept of sandboxes, below State.
	Snapshots Snapshots `yaml:"snapshots"`
	// Retention is how long ended sandboxes and finished runs can be asked about.
	Retention time.Duration `yaml:"retention"`
	// DrainTimeout is how long running programs may take to finish once the
	// server is told to stop.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	Log          Log           `yaml:"log"`
	Telemetry    Telemetry     `yaml:"telemetry"`

	where map[string]position // of what came from a file, by field
	name  string              // of the file
}

// TLS names the files of the certificate and its key, in PEM. Both or none.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Capacity bounds all tenants together. A field that is zero was not given,
// and the engine chooses from the size of the machine.
type Capacity struct {
	Sandboxes       int           `yaml:"sandboxes"` // living at once
	Runs            int           `yaml:"runs"`      // running at once
	Memory          Size          `yaml:"memory"`    // the limits of all sandboxes added up
	CPUs            float64       `yaml:"cpus"`      // the same for CPUs
	StartsPerSecond float64       `yaml:"starts_per_second"`
	Queue           int           `yaml:"queue"`         // requests that may wait
	QueueTimeout    time.Duration `yaml:"queue_timeout"` // how long one of them may
	Detached        int           `yaml:"detached"`      // runs of one tenant that nobody waits for
}

// Quotas bound one tenant: those named in Tenants so, every other by Default.
type Quotas struct {
	Default Quota            `yaml:"default"`
	Tenants map[string]Quota `yaml:"tenants"`
}

// Quota is one tenant's share of the capacity. A zero field was not given: a
// tenant then has the default's, and the default the whole capacity.
type Quota struct {
	Sandboxes       int     `yaml:"sandboxes"`
	Runs            int     `yaml:"runs"`
	Memory          Size    `yaml:"memory"`
	CPUs            float64 `yaml:"cpus"`
	StartsPerSecond float64 `yaml:"starts_per_second"`
}

// Limits are the limits of requests that ask for none, and the most that a
// request may ask for. The names are those of a request.
type Limits struct {
	Default sandbox.Limits `yaml:"default"`
	Max     sandbox.Limits `yaml:"max"`
}

// TTL says how long living sandboxes live.
type TTL struct {
	Default time.Duration `yaml:"default"`
	Max     time.Duration `yaml:"max"`
}

// Gate says what the output of every run is checked for. Requests can add to it.
type Gate struct {
	// File names a file with a gate as requests have it, in JSON; empty: nothing is checked.
	File string `yaml:"file"`
}

// Secrets says with which key those of tenants are kept, below State.
type Secrets struct {
	// KeyFile names the file of the key; empty: it is in the environment, or no secrets
	// are kept.
	KeyFile string `yaml:"key_file"`
}

// Drivers configure the ways to make sandboxes beyond the native one.
type Drivers struct {
	Docker Docker `yaml:"docker"`
	GVisor GVisor `yaml:"gvisor"`
	QEMU   QEMU   `yaml:"qemu"`
}

// QEMU configures the qemu driver, which there is when it is enabled.
type QEMU struct {
	Enabled bool   `yaml:"enabled"`
	Program string `yaml:"program"` // of QEMU's; empty: Debian's
	Kernel  string `yaml:"kernel"`  // a compressed image; empty: the newest of this host
	Modules string `yaml:"modules"` // its directory of modules; empty: that of /lib/modules
}

// Docker configures the docker driver, which there is when it has an image.
type Docker struct {
	Image   string `yaml:"image"`   // what its sandboxes show
	Engine  string `yaml:"engine"`  // where the engine listens, Docker's or Podman's; empty: what DOCKER_HOST says, or Docker's default
	Runtime string `yaml:"runtime"` // one of the engine's; empty: its default
}

// GVisor configures the gvisor driver, which there is when it has a runsc.
type GVisor struct {
	Runsc string `yaml:"runsc"` // the program, a path or a name in PATH
}

// Pool asks for warm sandboxes, see sandbox.PoolSpec.
type Pool struct {
	Name     string         `yaml:"name"`
	Template string         `yaml:"template"`
	Driver   string         `yaml:"driver"`
	Limits   sandbox.Limits `yaml:"limits"`
	Language string         `yaml:"language"`
	Warm     []string       `yaml:"warm"`
	Min      int            `yaml:"min"`
	Max      int            `yaml:"max"`
}

// Spec returns the pool in the words of the API.
func (p Pool) Spec() sandbox.PoolSpec {
	return sandbox.PoolSpec{Name: p.Name, Template: p.Template, Driver: p.Driver, Limits: p.Limits, Language: p.Language, Warm: p.Warm, Min: p.Min, Max: p.Max}
}

// CompileCache bounds what is kept of compiled programs. TenantBytes is one
// tenant's share; zero was not given, and is a quarter.
type CompileCache struct {
	Bytes       Size `yaml:"bytes"` // 0: nothing is kept
	TenantBytes Size `yaml:"tenant_bytes"`
}

// Packages names the indexes of packages, of which there is none where nothing is said, and
// bounds what is kept of them, below State. A tenant has at most half.
type Packages struct {
	Bytes   Size           `yaml:"bytes"`
	Indexes PackageIndexes `yaml:"indexes"`
}

// PackageIndexes are the indexes by their kinds.
type PackageIndexes struct {
	Python PackageIndex `yaml:"python"`
	NPM    PackageIndex `yaml:"npm"`
}

// PackageIndex is one, see packages.Index.
type PackageIndex struct {
	URL       string   `yaml:"url"`       // empty: there is none
	Endpoints []string `yaml:"endpoints"` // beside the URL's own host, or where that is; as in network.allow
	Secret    string   `yaml:"secret"`    // the name of one of the tenant's, for the URL's host
}

// Of are the indexes that are named, by kind.
func (p PackageIndexes) Of() map[string]packages.Index {
	all := map[string]packages.Index{}
	for kind, i := range map[string]PackageIndex{sandbox.PackagesPython: p.Python, sandbox.PackagesNPM: p.NPM} {
		if i.URL != "" {
			all[kind] = packages.Index{URL: i.URL, Endpoints: i.Endpoints, Secret: i.Secret}
		}
	}
	return all
}

// Snapshots bounds the snapshots of sandboxes. TenantBytes is one tenant's share; zero was
// not given, and is half.
type Snapshots struct {
	Bytes       Size          `yaml:"bytes"` // 0: none are made
	TenantBytes Size          `yaml:"tenant_bytes"`
	PerTenant   int           `yaml:"per_tenant"` // how many one tenant may have
	TTL         time.Duration `yaml:"ttl"`        // how long one is kept, and at most
}

// Audit configures the audit log.
type Audit struct {
	Enabled bool `yaml:"enabled"`
	// Name is the log's in its key and its checkpoints; empty: one is made up.
	Name string `yaml:"name"`
	// Texts keeps what programs were and printed, not only digests of it, for
	// TextsRetention; of each run at most TextBytes.
	Texts          bool          `yaml:"texts"`
	TextsRetention time.Duration `yaml:"texts_retention"`
	TextBytes      Size          `yaml:"text_bytes"`
	// OnFailure says what becomes of what cannot be recorded: refuse or continue.
	OnFailure string `yaml:"on_failure"`
	// Witnesses are told of checkpoints: files and addresses.
	Witnesses []string `yaml:"witnesses"`
	// WitnessFor are the logs of others that this server is a witness of, also where it
	// keeps no log of its own.
	WitnessFor []WatchedLog `yaml:"witness_for"`
}

// What becomes of runs that cannot be recorded.
const (
	AuditRefuse   = "refuse"
	AuditContinue = "continue"
)

// Log says how the server writes its log, which goes to stderr.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn, error
	Format string `yaml:"format"` // text, json
}

// Telemetry says where traces go. Metrics need no configuration.
type Telemetry struct {
	// OTLPEndpoint is the URL of an OTLP/HTTP collector; empty: no traces,
	// unless OTEL_EXPORTER_OTLP_ENDPOINT is set.
	OTLPEndpoint string  `yaml:"otlp_endpoint"`
	ServiceName  string  `yaml:"service_name"`
	Sample       float64 `yaml:"sample"` // share of the requests that are traced, 0 to 1
}

// Words that stand in a configuration.
const (
	UnixPrefix = "unix:"
	FormatText = "text"
	FormatJSON = "json"
)

// Default returns what holds where nothing is configured.
func Default() *Config {
	return &Config{
		Listen:       []string{defaults.Listen},
		State:        defaults.State(),
		Capacity:     Capacity{Sandboxes: 1024, Queue: 1000, QueueTimeout: 30 * time.Second, Detached: 100},
		Limits:       Limits{Max: sandbox.Limits{OutputBytes: maxOutput}},
		TTL:          TTL{Default: sandbox.DefaultTTLMS * time.Millisecond, Max: 24 * time.Hour},
		CompileCache: CompileCache{Bytes: 1 << 30},
		Packages:     Packages{Bytes: packages.DefaultBytes},
		Snapshots:    Snapshots{Bytes: 10 << 30, PerTenant: 100, TTL: 7 * 24 * time.Hour},
		Audit:        Audit{TextsRetention: 30 * 24 * time.Hour, TextBytes: 1 << 20, OnFailure: AuditRefuse},
		Retention:    7 * 24 * time.Hour,
		DrainTimeout: 30 * time.Second,
		Log:          Log{Level: "info", Format: FormatText},
		Telemetry:    Telemetry{ServiceName: "pinfold", Sample: 1},
	}
}

// maxOutput is how much a run may print by default: its result is made whole in
// the server's memory, both streams in JSON, which may be six times as long. A
// process in a living sandbox streams its output without bound.
const maxOutput = 8 << 20

//go:embed example.yaml
var example string

// Example returns a file that names every key with its default and says what
// it means. It is valid, and reading it gives the defaults.
func Example() string { return example }

// Overrides are what a command line says over the file. An empty field was
// not given.
type Overrides struct {
	Listen              []string
	State, Domain       string
	TLSCert, TLSKey     string
	LogLevel, LogFormat string
	InsecureListen      bool
}

// Override puts o over c.
func (c *Config) Override(o Overrides) {
	if len(o.Listen) > 0 {
		c.Listen = o.Listen
		c.forget("listen")
	}
	for _, s := range []struct {
		field string
		to    *string
		from  string
	}{
		{"state", &c.State, o.State},
		{"domain", &c.Domain, o.Domain},
		{"tls.cert", &c.TLS.Cert, o.TLSCert},
		{"tls.key", &c.TLS.Key, o.TLSKey},
		{"log.level", &c.Log.Level, o.LogLevel},
		{"log.format", &c.Log.Format, o.LogFormat},
	} {
		if s.from != "" {
			*s.to = s.from
			c.forget(s.field)
		}
	}
	c.InsecureListen = c.InsecureListen || o.InsecureListen
}

// Quota returns a tenant's quota: its own, completed by the default.
func (q Quotas) Quota(tenant string) Quota {
	own, def := q.Tenants[tenant], q.Default
	return Quota{
		Sandboxes: cmp.Or(own.Sandboxes, def.Sandboxes), Runs: cmp.Or(own.Runs, def.Runs), Memory: cmp.Or(own.Memory, def.Memory),
		CPUs: cmp.Or(own.CPUs, def.CPUs), StartsPerSecond: cmp.Or(own.StartsPerSecond, def.StartsPerSecond),
	}
}
