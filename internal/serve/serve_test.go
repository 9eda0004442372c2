package serve

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"pinfold/internal/config"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

func hello(p *fake.Process) fake.Exit {
	_, _ = io.WriteString(p.Stdout, "42\n")
	return fake.Exit{}
}

func TestServe(t *testing.T) {
	c := configure(t)
	socket := filepath.Join(t.TempDir(), "p.sock")
	c.Listen = append(c.Listen, "unix:"+socket)
	r := start(t, c, Options{NewEngine: fakeEngine(hello), ShowKey: true})

	if status, body := r.ask("GET", "/readyz", ""); status != http.StatusOK {
		t.Errorf("readyz: %d %s", status, body)
	}
	status, body := r.ask("POST", "/v1/runs", aRun)
	if got := result(t, status, body); got.Stdout != "42\n" || got.Status != sandbox.StatusSucceeded {
		t.Errorf("run: %s", body)
	}
	if status, body := r.ask("GET", "/metrics", ""); status != http.StatusOK || !strings.Contains(body, `pinfold_runs_finished_total{status="succeeded"} 1`) ||
		!strings.Contains(body, `pinfold_http_requests_total{route="/v1/runs",method="POST",code="2xx"} 1`) {
		t.Errorf("metrics: %d %s", status, body)
	}

	// The key is nobody else's to read, and without it there is nothing.
	if info, err := os.Stat(filepath.Join(c.State, "first-key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("first-key: %v, %v", info.Mode(), err)
	}
	stranger, _ := http.NewRequest(http.MethodGet, r.url+"/v1/whoami", nil)
	if status, _ := send(t, r.client, stranger); status != http.StatusUnauthorized {
		t.Errorf("without a key: %d", status)
	}
	rebound, _ := http.NewRequest(http.MethodGet, r.url+"/healthz", nil)
	rebound.Host = "evil.example.com"
	if status, _ := send(t, r.client, rebound); status != http.StatusForbidden {
		t.Errorf("a foreign name: %d", status)
	}
	page, _ := http.NewRequest(http.MethodGet, r.url+"/healthz", nil)
	page.Header.Set("Origin", "https://evil.example.com")
	if status, _ := send(t, r.client, page); status != http.StatusForbidden {
		t.Errorf("a foreign page: %d", status)
	}

	// Who may open the socket is the local tenant.
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
	local, _ := http.NewRequest(http.MethodGet, "http://localhost/v1/whoami", nil)
	if status, body := send(t, overUnix(t, socket), local); status != http.StatusOK || !strings.Contains(body, records.LocalTenant) {
		t.Errorf("over the socket: %d %s", status, body)
	}

	r.signals <- syscall.SIGTERM
	if err := r.wait(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	for _, left := range []string{socket} {
		if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", left, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(socket), ".*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}

	// The next life knows the key and the run.
	key := r.key
	r = start(t, c, Options{})
	if r.key != key {
		t.Error("a second key was made")
	}
	if status, body := r.ask("GET", "/v1/runs", ""); status != http.StatusOK || !strings.Contains(body, `"succeeded"`) {
		t.Errorf("runs: %d %s", status, body)
	}
}

func serveError(t *testing.T, c *config.Config, o Options) *sandbox.Error {
	t.Helper()
	if o.NewEngine == nil {
		o.NewEngine = fakeEngine(nil)
	}
	o.Log = io.Discard
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := Serve(ctx, c, o)
	var e *sandbox.Error
	if !errors.As(err, &e) {
		t.Fatalf("Serve: %v", err)
	}
	return e
}

func TestSecondServerIsRefused(t *testing.T) {
	c := configure(t)
	r := start(t, c, Options{})
	if e := serveError(t, c, Options{}); e.Code != sandbox.CodeConflict || !strings.Contains(e.Message, c.State) || e.Hint == "" {
		t.Errorf("same state: %+v", e)
	}
	other := configure(t)
	other.Listen = []string{strings.TrimPrefix(r.url, "http://")}
	if e := serveError(t, other, Options{}); e.Code != sandbox.CodeConflict || e.Field != "listen[0]" || e.Hint == "" {
		t.Errorf("same address: %+v", e)
	}
	if status, _ := r.ask("GET", "/healthz", ""); status != http.StatusOK {
		t.Errorf("the first server suffered: %d", status)
	}
}

func TestSocketPaths(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "p.sock")
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = stale.Close()
	l, err := listen(t.Context(), 0, "unix:"+path)
	if err != nil {
		t.Fatalf("a dead server's socket is not replaced: %v", err)
	}
	var e *sandbox.Error
	if _, err := listen(t.Context(), 3, "unix:"+path); !errors.As(err, &e) || e.Code != sandbox.CodeConflict || e.Field != "listen[3]" {
		t.Errorf("a living server's socket: %v", err)
	}
	l.close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(t.Context(), 0, "unix:"+path); !errors.As(err, &e) || e.Code != sandbox.CodeConflict {
		t.Errorf("a file: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Error("the file was touched")
	}
	if _, err := listen(t.Context(), 0, "unix:"+dir+"/none/p.sock"); !errors.As(err, &e) || e.Hint == "" {
		t.Errorf("no directory: %v", err)
	}
	// What another server has put in the place of ours is not removed.
	other := filepath.Join(dir, "q.sock")
	l, err = listen(t.Context(), 0, "unix:"+other)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.close()
	if _, err := os.Lstat(other); err != nil {
		t.Errorf("somebody else's file was removed: %v", err)
	}
}

// held is a program that waits until it is let go.
type held struct{ started, release chan struct{} }

func newHeld() *held { return &held{make(chan struct{}, 100), make(chan struct{})} }

func (h *held) program(p *fake.Process) fake.Exit {
	h.started <- struct{}{}
	select {
	case <-h.release:
		_, _ = io.WriteString(p.Stdout, "finished\n")
	case <-p.Killed:
	}
	return fake.Exit{}
}

type answer struct {
	status int
	body   string
}

func (r *running) askLater(method, path, body string) <-chan answer {
	ch := make(chan answer, 1)
	go func() {
		status, text := r.ask(method, path, body)
		ch <- answer{status, text}
	}()
	return ch
}

// Told to stop, the server lets a running program finish and gives its result;
// meanwhile it says that it takes no new work.
func TestDrain(t *testing.T) {
	h := newHeld()
	r := start(t, configure(t), Options{NewEngine: fakeEngine(h.program)})
	run := r.askLater("POST", "/v1/runs", aRun)
	<-h.started
	r.signals <- syscall.SIGINT
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		status, _ := r.ask("GET", "/readyz", "")
		if status == http.StatusServiceUnavailable {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("readyz says %d", status)
		}
	}
	if status, body := r.ask("POST", "/v1/runs", aRun); status != http.StatusServiceUnavailable || !strings.Contains(body, sandbox.CodeShuttingDown) {
		t.Errorf("new work: %d %s", status, body)
	}
	close(h.release)
	a := <-run
	if got := result(t, a.status, a.body); got.Status != sandbox.StatusSucceeded || got.Stdout != "finished\n" {
		t.Errorf("the run that went on: %s", a.body)
	}
	if err := r.wait(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// The second signal ends running programs at once, and so does the end of
// their time.
func TestDrainIsCutShort(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		signals int
	}{"second signal": {time.Hour, 2}, "time is up": {time.Millisecond, 1}} {
		t.Run(name, func(t *testing.T) {
			h := newHeld()
			conf := configure(t)
			conf.DrainTimeout = c.timeout
			r := start(t, conf, Options{NewEngine: fakeEngine(h.program)})
			run := r.askLater("POST", "/v1/runs", aRun)
			<-h.started
			for range c.signals {
				r.signals <- syscall.SIGTERM
			}
			a := <-run
			if got := result(t, a.status, a.body); got.Cause.Kind != sandbox.CauseCancelled {
				t.Errorf("%s", a.body)
			}
			if err := r.wait(); err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
}

// A signal that comes while the server is being made ends it too.
func TestSignalBeforeReady(t *testing.T) {
	making := make(chan struct{})
	signals := make(chan os.Signal, 1)
	c := configure(t)
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(t.Context(), c, Options{Log: io.Discard, Signals: signals, NewEngine: func(o engine.Options) (*engine.Engine, error) {
			close(making)
			time.Sleep(50 * time.Millisecond) // the signal comes meanwhile; if it is late, it finds a server that is ready
			return fakeEngine(nil)(o)
		}})
	}()
	<-making
	signals <- syscall.SIGTERM
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Serve: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

func TestReload(t *testing.T) {
	c := configure(t)
	c.Pools = []config.Pool{{Name: "old", Min: 1}, {Name: "both", Min: 1}}
	fresh := *c
	fresh.Pools = []config.Pool{{Name: "both", Min: 2}, {Name: "new", Min: 1}}
	fresh.Log.Level = "debug"
	fresh.Quotas.Default.Sandboxes = 1
	fresh.Domain = "changed.example.com" // needs a restart
	answers := make(chan error, 1)
	r := start(t, c, Options{Reload: func() (*config.Config, error) { return &fresh, <-answers }})

	answers <- &sandbox.Error{Code: sandbox.CodeConfigInvalid, Field: "capacity.memroy", Message: "f.yaml:1:1: no such key"}
	r.signals <- syscall.SIGHUP
	r.expectLog("capacity.memroy")
	answers <- nil
	r.signals <- syscall.SIGHUP
	r.expectLog("need a restart")
	r.expectLog("was read again")

	_, pools := r.ask("GET", "/v1/pools", "")
	if strings.Contains(pools, `"old"`) || !strings.Contains(pools, `"new"`) || !strings.Contains(pools, `"both"`) {
		t.Errorf("pools: %s", pools)
	}
	if status, body := r.ask("POST", "/v1/sandboxes", "{}"); status != http.StatusCreated {
		t.Errorf("create: %d %s", status, body)
	}
	if status, body := r.ask("POST", "/v1/sandboxes", "{}"); status != http.StatusTooManyRequests || !strings.Contains(body, sandbox.CodeQuotaExceeded) {
		t.Errorf("beyond the new quota: %d %s", status, body)
	}
	if !strings.Contains(r.log.String(), "level=DEBUG") {
		t.Error("the log's level did not change")
	}
}

func (r *running) expectLog(text string) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(r.log.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("the log does not say %q:\n%s", text, r.log)
		}
	}
}

// What the operator configured is what the engine does.
func TestConfigurationArrives(t *testing.T) {
	c := configure(t)
	c.Limits.Max.MemoryBytes = 64 << 20
	c.Limits.Default.Processes = 7
	c.TTL = config.TTL{Default: time.Minute, Max: 2 * time.Minute}
	c.Quotas.Tenants = map[string]config.Quota{records.LocalTenant: {Sandboxes: 1}}
	r := start(t, c, Options{})
	if status, body := r.ask("POST", "/v1/sandboxes", `{"limits": {"memory_bytes": 134217728}}`); status != http.StatusBadRequest || !strings.Contains(body, "limits.memory_bytes") {
		t.Errorf("beyond limits.max: %d %s", status, body)
	}
	if status, body := r.ask("POST", "/v1/sandboxes", `{"ttl_ms": 180000}`); status != http.StatusBadRequest || !strings.Contains(body, "ttl_ms") {
		t.Errorf("beyond ttl.max: %d %s", status, body)
	}
	status, body := r.ask("POST", "/v1/sandboxes", `{}`)
	if status != http.StatusCreated || !strings.Contains(body, `"memory_bytes":67108864`) || !strings.Contains(body, `"processes":7`) || !strings.Contains(body, `"idle_ms":60000`) {
		t.Errorf("defaults: %d %s", status, body)
	}
	if status, body := r.ask("POST", "/v1/sandboxes", `{}`); status != http.StatusTooManyRequests {
		t.Errorf("the tenant's quota: %d %s", status, body)
	}
}

func TestNotifySystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	r := start(t, configure(t), Options{})
	if os.Getenv("NOTIFY_SOCKET") != "" {
		t.Error("children see NOTIFY_SOCKET")
	}
	r.signals <- syscall.SIGTERM
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		b := make([]byte, 1000)
		n, err := conn.Read(b)
		if err != nil || !strings.Contains(string(b[:n]), want) {
			t.Errorf("want %s, got %q, %v", want, b[:n], err)
		}
	}
}

func TestCorruptState(t *testing.T) {
	c := configure(t)
	if err := os.MkdirAll(c.State, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.State, "pinfold.db")
	if err := os.WriteFile(file, []byte(strings.Repeat("garbage ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if e := serveError(t, c, Options{}); e.Code != sandbox.CodeStateCorrupt || e.Hint == "" {
		t.Errorf("%+v", e)
	}
	if b, _ := os.ReadFile(file); !strings.HasPrefix(string(b), "garbage") {
		t.Error("the damaged database was changed")
	}
	r := start(t, c, Options{Quarantine: true})
	if status, _ := r.ask("GET", "/readyz", ""); status != http.StatusOK {
		t.Errorf("after the quarantine: %d", status)
	}
	if kept, _ := filepath.Glob(filepath.Join(c.State, "quarantine-*", "pinfold.db")); len(kept) != 1 {
		t.Errorf("kept: %q", kept)
	}
}

// A failure at any step leaves nothing open: the next server can have it all.
func TestFailedStartLeavesNothing(t *testing.T) {
	c := configure(t)
	socket := filepath.Join(t.TempDir(), "p.sock")
	c.Listen = []string{"unix:" + socket}
	broken := &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: "no driver"}
	noEngine := func(engine.Options) (*engine.Engine, error) { return nil, broken }
	if e := serveError(t, c, Options{NewEngine: noEngine}); e.Code != sandbox.CodeDriverUnavailable {
		t.Errorf("%+v", e)
	}
	bad := *c
	bad.Pools = []config.Pool{{Name: "x", Driver: "none", Min: 1}}
	if e := serveError(t, &bad, Options{}); e.Code != sandbox.CodeDriverUnknown {
		t.Errorf("%+v", e)
	}
	missing := *c
	missing.TLS = config.TLS{Cert: "/nonexistent", Key: "/nonexistent"}
	if e := serveError(t, &missing, Options{}); e.Code != sandbox.CodeConfigInvalid || e.Field != "tls" {
		t.Errorf("%+v", e)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	start(t, c, Options{})
}

func TestLogIsEscaped(t *testing.T) {
	for _, format := range []string{config.FormatText, config.FormatJSON} {
		var b strings.Builder
		log, _ := newLog(&b, config.Log{Level: "info", Format: format})
		evil := "\x1b[2Jx\nlevel=ERROR\u202e\xff"
		log.Info(evil, "key", evil, "error", errors.New(evil), "any", []string{evil}) //nolint:sloglint // the test's very point
		log.Debug("not shown")
		text := strings.TrimSuffix(b.String(), "\n")
		if !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\n\u202e") || !strings.Contains(text, "x") || strings.Contains(text, "not shown") {
			t.Errorf("%s: %q", format, text)
		}
	}
}

// The compile cache is there unless it is turned off, and then all of it goes.
func TestCompileCache(t *testing.T) {
	c := configure(t)
	dir := filepath.Join(c.State, compileCacheDir)
	r := start(t, c, Options{})
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	r.signals <- syscall.SIGTERM
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.CompileCache = config.CompileCache{}
	start(t, c, Options{})
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is turned off, and still there: %v", err)
	}
	fresh := *c
	if needsRestart(c, &fresh) {
		t.Error("the same configuration needs a restart")
	}
	if fresh.CompileCache.Bytes = 1 << 30; !needsRestart(c, &fresh) {
		t.Error("turning it on needs no restart")
	}
}
