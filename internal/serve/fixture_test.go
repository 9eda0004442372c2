package serve

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"pinfold/internal/config"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/image"
	"pinfold/sandbox"
	"pinfold/test/lockedbuffer"
)

// fakeEngine makes engines over machines of memory, whose programs do as told.
func fakeEngine(program func(p *fake.Process) fake.Exit) func(engine.Options) (*engine.Engine, error) {
	return fakeEngineWith(fake.Options{Script: func(driver.Plan) fake.Script { return fake.Script{Program: program} }})
}

func fakeEngineWith(f fake.Options) func(engine.Options) (*engine.Engine, error) {
	return func(o engine.Options) (*engine.Engine, error) {
		host := fstest.MapFS{"usr/bin/sh": {Data: []byte("\x7fELF"), Mode: 0o755}}
		template, err := image.Host(host)
		if err != nil {
			return nil, err
		}
		o.Drivers = []driver.Driver{fake.New(f)}
		o.Template = func(string) (image.Template, error) { return template, nil }
		o.Host = host
		return engine.New(o), nil
	}
}

// running is a server under test.
type running struct {
	t       *testing.T
	url     string
	state   string
	key     string
	signals chan os.Signal
	ended   chan error
	log     *lockedbuffer.Buffer
	client  *http.Client
}

// configure is the configuration of a server under test.
func configure(t *testing.T) *config.Config {
	t.Helper()
	c := config.Default()
	c.Listen = []string{"127.0.0.1:0"}
	c.State = filepath.Join(t.TempDir(), "state")
	c.DrainTimeout = time.Minute
	return c
}

// start runs a server until it is ready. It is ended with the test, if it has
// not ended before.
func start(t *testing.T, c *config.Config, o Options) *running {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, state: c.State, signals: make(chan os.Signal, 4), ended: make(chan error, 1), log: &lockedbuffer.Buffer{}}
	ready, said := make(chan struct{}), map[string]string{}
	if o.NewEngine == nil {
		o.NewEngine = fakeEngine(nil)
	}
	o.Log, o.Signals, o.Version = r.log, r.signals, "test"
	o.Say = func(line string) {
		if url, ok := strings.CutPrefix(line, "listening on "); ok && r.url == "" {
			r.url = url
		}
		if name, value, ok := strings.Cut(line, ": "); ok {
			said[name] = value
		}
		if line == "ready" {
			close(ready)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { r.ended <- Serve(ctx, c, o) }()
	select {
	case <-ready:
	case err := <-r.ended:
		cancel()
		t.Fatalf("Serve: %v\n%s", err, r.log)
	case <-time.After(time.Minute):
		cancel()
		t.Fatalf("the server does not become ready\n%s", r.log)
	}
	t.Cleanup(func() {
		cancel()
		_ = r.wait()
	})
	key, err := os.ReadFile(filepath.Join(c.State, "first-key"))
	if err != nil {
		t.Fatal(err)
	}
	r.key = strings.TrimSpace(string(key))
	if o.ShowKey && said["key"] != r.key {
		t.Errorf("the key was said to be %q", said["key"])
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // a certificate of the test's
	t.Cleanup(transport.CloseIdleConnections)
	r.client = &http.Client{Transport: transport, Timeout: time.Minute}
	return r
}

// wait returns what Serve returned.
func (r *running) wait() error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err
		return err
	case <-time.After(time.Minute):
		r.t.Errorf("the server does not end\n%s", r.log)
		return nil
	}
}

// ask sends a request with the first key and returns status and body.
func (r *running) ask(method, path, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("Content-Type", "application/json")
	return send(r.t, r.client, req)
}

func send(t *testing.T, c *http.Client, req *http.Request) (int, string) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", req.Method, req.URL.Path, err)
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}

// overUnix is a client of a unix socket.
func overUnix(t *testing.T, path string) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// result reads an answer of POST /v1/runs.
func result(t *testing.T, status int, body string) sandbox.Result {
	t.Helper()
	var r sandbox.Result
	if err := json.Unmarshal([]byte(body), &r); status != http.StatusOK || err != nil {
		t.Fatalf("status %d: %v: %s", status, err, body)
	}
	return r
}

const aRun = `{"language": "sh", "code": "scripted"}`
