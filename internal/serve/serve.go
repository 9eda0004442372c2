// Package serve puts the server together and takes it apart again: state,
// engine, API, listeners, signals. What each of them does is theirs; here is
// only the order, and what happens when one of them fails.
//
// It knows no driver: the engine is handed in. It prints nothing: lines for a
// person go to Options.Say, everything else to the log.
package serve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"pinfold/internal/access"
	"pinfold/internal/api"
	"pinfold/internal/audit"
	"pinfold/internal/compilecache"
	"pinfold/internal/config"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/snapshots"
	"pinfold/internal/packages"
	"pinfold/internal/policy"
	"pinfold/internal/probe"
	"pinfold/internal/secret/vault"
	"pinfold/internal/store"
	"pinfold/internal/telemetry"
	"pinfold/sandbox"
)

// Options are what a server needs beside its configuration.
type Options struct {
	// NewEngine makes the engine with the drivers that this program has. It
	// must be set.
	NewEngine func(o engine.Options) (*engine.Engine, error)
	// Probe looks at the host, for Check.
	Probe func(ctx context.Context) []probe.Finding
	// Room says whether the host can carry so many sandboxes, for Check and for
	// the log; nil: nobody asks.
	Room    func(probe.Demand) []probe.Finding
	Version string
	// Log is where the log is written.
	Log io.Writer
	// Say takes lines for the person who started the server, without a line
	// feed. nil: they go to the log.
	Say func(line string)
	// ShowKey says that the first key may be said too: a terminal is there,
	// and no file keeps what is said.
	ShowKey bool
	// Quarantine moves a damaged database aside before it is opened.
	Quarantine bool
	// Reload reads the configuration again, for SIGHUP; nil: it cannot change.
	Reload func() (*config.Config, error)
	// Signals are what the process was told: SIGTERM or SIGINT once to end
	// gracefully, twice to end at once, SIGHUP to read the configuration again.
	Signals <-chan os.Signal
}

// How long the last steps may take, after running programs have ended.
const (
	shutdownTimeout = 5 * time.Second
	flushTimeout    = 3 * time.Second
)

// server is one life of a server. Its parts are made in the order of the
// fields and closed in the opposite order.
type server struct {
	o      Options
	config *config.Config // what holds now; reload replaces it
	quotas atomic.Pointer[config.Quotas]
	policy atomic.Pointer[policy.Policy] // nil: there is none
	level  *slog.LevelVar
	log    *slog.Logger

	opening atomic.Bool // until everything is made

	store     *store.Store
	audit     *audit.Log     // nil: there is none
	changes   *changeWatch   // nil: there is no log
	watcher   *audit.Watcher // nil: it is nobody's witness
	listeners []*listener
	telemetry *telemetry.Telemetry
	access    *access.Service
	compiled  *compilecache.Cache // nil: off
	secrets   *vault.Store        // nil: none are kept
	signer    *audit.Signer       // of manifests
	engine    *engine.Engine
	cert      *certificate
	http      *http.Server
	notify    notifier
}

// Serve runs a server until a signal or the end of ctx tells it to stop, and
// then ends it gracefully. The configuration must be valid. The error is a
// *sandbox.Error: config_invalid, conflict (another server has the state
// directory or an address), state_corrupt, or what the engine says.
func Serve(ctx context.Context, c *config.Config, o Options) error {
	s := &server{o: o, config: c, notify: newNotifier()}
	s.log, s.level = newLog(o.Log, c.Log)
	s.quotas.Store(&c.Quotas)
	if s.o.Say == nil {
		s.o.Say = func(line string) { s.log.Info(line) }
	}
	collectSeldom()
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	s.opening.Store(true)
	orders := s.watchSignals(done, cancel)
	err := s.open(life)
	s.opening.Store(false)
	switch {
	case err == nil:
		err = s.run(life, orders)
	case life.Err() != nil: // it was told to stop before it was ready
		err = ctx.Err()
	}
	return errors.Join(err, s.close())
}

// open makes everything. What it has made before an error is closed by close.
func (s *server) open(ctx context.Context) error {
	if err := s.openStore(ctx); err != nil {
		return err
	}
	var err error
	if s.cert, err = loadCertificate(s.config.TLS); err != nil {
		return err
	}
	// Addresses are taken before anything else is made: a second server is
	// told at once.
	for i, address := range s.config.Listen {
		l, err := listen(ctx, i, address)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
	}
	if err := s.openEngine(ctx); err != nil {
		return err
	}
	handler, err := api.New(api.Options{
		Engine: s.engine, Access: s.access, Version: s.o.Version, Domain: s.config.Domain,
		AllowedHosts: hostsWithoutPorts(s.config.AllowedHosts), AllowedOrigins: s.config.AllowedOrigins,
		Metrics: s.telemetry.Handler(), Middleware: s.telemetry.Middleware, Log: s.log,
		SpoolDir: s.config.State, Build: s.builder(), Audit: s.audit, Watcher: s.watcher, Secrets: s.secrets, Signer: s.signer,
	})
	if err != nil {
		return err
	}
	s.http = s.newHTTP(handler)
	return s.firstKey(ctx)
}

func (s *server) openStore(ctx context.Context) error {
	if s.o.Quarantine {
		moved, err := store.Quarantine(s.config.State)
		switch {
		case err == nil:
			s.o.Say("the old database is in " + moved)
		case sandbox.AsError(err).Code != sandbox.CodeNotFound:
			return err
		}
	}
	var err error
	if s.store, err = store.Open(ctx, s.config.State, store.WithLog(s.log)); err != nil {
		return err
	}
	s.o.Say("state in " + s.store.Dir())
	return nil
}

func (s *server) openEngine(ctx context.Context) error {
	c := s.config
	var err error
	s.telemetry, err = telemetry.New(telemetry.Options{
		Version: s.o.Version, Endpoint: c.Telemetry.OTLPEndpoint, ServiceName: c.Telemetry.ServiceName, Sample: c.Telemetry.Sample, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.access = access.NewService(access.Options{Store: s.store, Log: s.log})
	if err := s.openCompileCache(); err != nil {
		return err
	}
	if err := s.openSecrets(); err != nil {
		return err
	}
	if err := s.openWatcher(); err != nil {
		return err
	}
	if err := s.setPolicy(c); err != nil { // which the log then says
		return err
	}
	auditor, err := s.openAudit()
	if err != nil {
		return err
	}
	output, err := readGate(c.Gate.File)
	if err != nil {
		return err
	}
	profiles, err := readProfiles(ctx, c)
	if err != nil {
		return err
	}
	if s.signer, err = audit.OpenSigner(filepath.Join(s.store.Dir(), manifestDir), cmp.Or(c.Audit.Name, "pinfold-"+records.NewID("")[:10])); err != nil {
		return err
	}
	e, err := s.o.NewEngine(engine.Options{
		Version: s.o.Version,
		Store:   s.store, Auditor: auditor, Capacity: capacity(c.Capacity), Quota: s.quota, Pools: poolSpecs(c.Pools),
		Policy: admission.Policy{Default: c.Limits.Default, Max: c.Limits.Max, Network: networkPolicy(c.Network), Gate: output, Profiles: profiles}, DefaultTTL: c.TTL.Default, MaxTTL: c.TTL.Max,
		Snapshots: s.snapshots(), Retention: c.Retention, DestroyLater: true, CompileCache: s.compiled, Packages: s.packages(), Secrets: s.secrets, Rules: s.rules, Log: s.log, Observer: s.telemetry,
	})
	if err != nil {
		return err
	}
	s.engine = e
	s.warnOfRoom()
	s.telemetry.Watch(e.Stats)
	return e.Open(ctx)
}

// manifestDir is in the state directory, with the key that signs manifests.
const manifestDir = "manifest"

// compileCacheDir is in the state directory.
const compileCacheDir = "compiled"

func (s *server) openCompileCache() error {
	dir, c := filepath.Join(s.store.Dir(), compileCacheDir), s.config.CompileCache
	if c.Bytes == 0 {
		if err := compilecache.Remove(dir); err != nil {
			s.log.Warn("the compile cache was not removed", "error", err)
		}
		return nil
	}
	var err error
	s.compiled, err = compilecache.Open(compilecache.Options{Dir: dir, Bytes: int64(c.Bytes), TenantBytes: int64(c.TenantBytes), Log: s.log})
	return err
}

// packages are what requests may ask for.
func (s *server) packages() *packages.Store {
	p := s.config.Packages
	return packages.New(packages.Options{Dir: filepath.Join(s.store.Dir(), packages.DirName), Bytes: int64(p.Bytes), Indexes: p.Indexes.Of()})
}

// snapshotsDir is in the state directory.
const snapshotsDir = "snapshots"

func (s *server) snapshots() snapshots.Options {
	c := s.config.Snapshots
	o := snapshots.Options{
		Dir: filepath.Join(s.store.Dir(), snapshotsDir), Bytes: int64(c.Bytes), TenantBytes: int64(c.TenantBytes), PerTenant: c.PerTenant, TTL: c.TTL,
	}
	if c.Bytes == 0 {
		o.Bytes = -1
	}
	return o
}

// run answers requests until it is told to stop, and drains.
func (s *server) run(ctx context.Context, orders <-chan order) error {
	failed := make(chan error, len(s.listeners))
	for _, l := range s.listeners {
		s.o.Say("listening on " + l.url(s.cert != nil))
		go func() { failed <- s.serveOn(l) }()
	}
	s.o.Say("ready")
	defer s.warnOfDrivers(ctx)()
	s.notify.send("READY=1\nSTATUS=ready")
	err := s.obey(ctx, orders, failed)
	s.notify.send("STOPPING=1\nSTATUS=ending")
	s.drain(orders)
	return err
}

// obey waits for the order to end, and carries out the others.
func (s *server) obey(ctx context.Context, orders <-chan order, failed <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case o := <-orders:
			switch o {
			case orderReload:
				s.reload(context.WithoutCancel(ctx))
			case orderEnd:
				return nil
			}
		}
	}
}

// drain lets running programs finish, within bounds, while requests are still
// answered: whoever waits for a result gets it, and new work is refused in words.
func (s *server) drain(orders <-chan order) {
	s.o.Say("ending; running programs have " + s.config.DrainTimeout.String())
	ctx, cancel := context.WithTimeout(context.Background(), s.config.DrainTimeout)
	defer cancel()
	over := make(chan struct{})
	go func() {
		for {
			select {
			case o := <-orders:
				if o == orderEnd {
					s.o.Say("ending at once")
					cancel()
				}
			case <-over:
				return
			}
		}
	}()
	defer close(over)
	if err := s.engine.Drain(ctx); err != nil {
		s.log.Error("draining", "error", err)
	}
	stop, cancelStop := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancelStop()
	if err := s.http.Shutdown(stop); err != nil { // somebody does not read the rest
		_ = s.http.Close()
	}
}

// close releases what open has made, also in part.
func (s *server) close() error {
	var errs []error
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	}
	if s.compiled != nil {
		errs = append(errs, s.compiled.Close())
	}
	if s.telemetry != nil {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := s.telemetry.Shutdown(ctx); err != nil {
			s.log.Warn("the last traces were not sent", "error", err)
		}
	}
	if s.changes != nil {
		s.changes.end()
	}
	if s.audit != nil { // everything that it records has ended
		errs = append(errs, s.audit.Close())
	}
	if s.watcher != nil {
		errs = append(errs, s.watcher.Close())
	}
	for _, l := range s.listeners {
		l.close()
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	return errors.Join(errs...)
}
