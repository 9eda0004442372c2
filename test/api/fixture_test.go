package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"pinfold/internal/access"
	"pinfold/internal/api"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/image"
	"pinfold/internal/scan"
	"pinfold/internal/store"
	"pinfold/sandbox"
	"pinfold/test/ledger"
	"pinfold/test/lockedbuffer"
)

// world is a server and everything behind it.
type world struct {
	*engine.Engine

	t      *testing.T
	driver *fake.Driver
	access *access.Service
	url    string
	keys   map[string]string // by name: see newWorld
	log    *lockedbuffer.Buffer

	mu     sync.Mutex
	routes map[string]bool // "GET /v1/runs": those that have answered with success
}

type settings struct {
	api    api.Options
	engine engine.Options
	script func(driver.Plan) fake.Script
}

// newWorld starts a server. Its keys: alpha and beta are two tenants' with all
// scopes but admin; run, sandbox, read and approve are alpha's with that scope alone;
// admin has its own tenant.
func newWorld(t *testing.T, change func(*settings)) *world {
	t.Helper()
	ledger.CheckSelf(t)
	s := settings{}
	if change != nil {
		change(&s)
	}
	w := &world{t: t, keys: map[string]string{}, log: &lockedbuffer.Buffer{}, routes: map[string]bool{}}
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	w.access = access.NewService(access.Options{Store: st})
	w.makeKeys()
	w.startEngine(s, st)
	s.api.Engine, s.api.Access, s.api.Version = w.Engine, w.access, "test"
	s.api.Log = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.api.Middleware = w.note
	if s.api.Metrics == nil {
		s.api.Metrics = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "pinfold_up 1\n") })
	}
	h, err := api.New(s.api)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	server.Config.ReadHeaderTimeout = 10 * time.Second
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if _, unix := c.(*net.UnixConn); unix {
			return api.WithLocalPeer(ctx)
		}
		return ctx
	}
	server.Start()
	w.url = server.URL
	t.Cleanup(server.Close)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := w.Drain(ctx); err != nil {
			t.Errorf("Drain: %v", err)
		}
	})
	return w
}

func (w *world) startEngine(s settings, st *store.Store) {
	t := w.t
	t.Helper()
	program := &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}
	host := fstest.MapFS{"usr/bin/sh": program}
	template, err := image.Host(host)
	if err != nil {
		t.Fatal(err)
	}
	w.driver = fake.New(fake.Options{Script: s.script})
	s.engine.Drivers, s.engine.Host, s.engine.Store = []driver.Driver{w.driver}, host, st
	s.engine.Template = func(string) (image.Template, error) { return template, nil }
	s.engine.Scan = func(ctx context.Context, req sandbox.ScanRequest, run func(context.Context, sandbox.Spec) (*sandbox.Result, error)) (*sandbox.ScanReport, error) {
		return scan.Scanner{Python: scan.InSandbox(run)}.Scan(ctx, scan.Source{File: req.File, Language: req.Language, Text: []byte(req.Code)})
	}
	w.Engine = engine.New(s.engine)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := w.driver.Living(); n > 0 {
			t.Errorf("%d machines live", n)
		}
	})
	if err := w.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (w *world) makeKeys() {
	w.t.Helper()
	for name, k := range map[string]struct {
		tenant string
		scopes []string
	}{
		"alpha": {"alpha", []string{"run", "sandbox", "read", "approve"}}, "beta": {"beta", []string{"run", "sandbox", "read", "approve"}}, "approve": {"alpha", []string{"approve"}},
		"run": {"alpha", []string{"run"}}, "sandbox": {"alpha", []string{"sandbox"}}, "read": {"alpha", []string{"read"}}, "admin": {"root", []string{"admin"}},
	} {
		_, secret, err := w.access.Create(w.t.Context(), k.tenant, name, k.scopes, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		w.keys[name] = secret
	}
}

// note remembers the routes that have answered with success.
func (w *world) note(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		s := &statusWriter{ResponseWriter: rw}
		next.ServeHTTP(s, r)
		if s.status < 400 {
			w.mu.Lock()
			defer w.mu.Unlock()
			_, pattern, ok := strings.Cut(r.Pattern, " ")
			if !ok {
				pattern = r.Pattern
			}
			w.routes[r.Method+" "+pattern] = true
		}
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// request is one request of a test's.
type request struct {
	key, method, path string
	body              any // a string or []byte as it is; anything else as JSON
	header            map[string]string
	reader            io.Reader
}

// answered is an answer with its body read.
type answered struct {
	status int
	header http.Header
	body   string
}

func (a answered) json(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%v in %.300s", err, a.body)
	}
}

// code is the code of the error in the answer. The answer must be one.
func (a answered) code(t *testing.T) *sandbox.Error {
	t.Helper()
	var body sandbox.ErrorBody
	a.json(t, &body)
	if body.Error == nil || body.Error.Code == "" || body.Error.Message == "" {
		t.Fatalf("not an error: %d %.300s", a.status, a.body)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Fatalf("an error of type %s", got)
	}
	return body.Error
}

// stream is an answer whose body is still to be read. The test closes it.
type stream struct {
	status  int
	header  http.Header
	trailer http.Header // filled at the body's end
	length  int64
	body    io.ReadCloser
}

func (w *world) open(r request) stream {
	w.t.Helper()
	in := r.reader
	contentType := ""
	switch b := r.body.(type) {
	case nil:
	case string:
		in, contentType = strings.NewReader(b), "application/json"
	case []byte:
		in, contentType = bytes.NewReader(b), "application/octet-stream"
	default:
		text, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		in, contentType = bytes.NewReader(text), "application/json"
	}
	req, err := http.NewRequestWithContext(w.t.Context(), r.method, w.url+r.path, in)
	if err != nil {
		w.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if key := w.keys[r.key]; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for k, v := range r.header {
		if k == "Host" {
			req.Host = v
		}
		req.Header.Set(k, v)
	}
	client := &http.Client{
		Timeout:       time.Minute, // a test does not hang
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", r.method, r.path, err)
	}
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	return stream{resp.StatusCode, resp.Header, resp.Trailer, resp.ContentLength, resp.Body}
}

func (w *world) do(r request) answered {
	w.t.Helper()
	s := w.open(r)
	defer s.body.Close()
	b, err := io.ReadAll(s.body)
	if err != nil {
		w.t.Fatalf("%s %s: reading the answer: %v", r.method, r.path, err)
	}
	return answered{s.status, s.header, string(b)}
}

// must is do for what has to succeed with that status.
func (w *world) must(status int, r request) answered {
	w.t.Helper()
	a := w.do(r)
	if a.status != status {
		w.t.Fatalf("%s %s: %d, want %d: %.500s", r.method, r.path, a.status, status, a.body)
	}
	return a
}

// create makes a sandbox and returns its path.
func (w *world) create(key string) string {
	w.t.Helper()
	var info sandbox.Info
	w.must(201, request{key: key, method: "POST", path: "/v1/sandboxes", body: map[string]any{}}).json(w.t, &info)
	return "/v1/sandboxes/" + info.ID
}

// start starts a process and returns its path.
func (w *world) start(key, path string, c sandbox.Command) string {
	w.t.Helper()
	var p sandbox.Process
	w.must(201, request{key: key, method: "POST", path: path + "/processes", body: c}).json(w.t, &p)
	return path + "/processes/" + p.ID
}

func shell(line string) sandbox.Command { return sandbox.Command{Shell: line} }

// always gives every machine the same script.
func always(s fake.Script) func(driver.Plan) fake.Script {
	return func(driver.Plan) fake.Script { return s }
}
