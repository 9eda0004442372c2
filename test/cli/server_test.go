package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"pinfold/internal/access"
	"pinfold/internal/api"
	"pinfold/internal/audit"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/internal/image"
	"pinfold/internal/policy"
	"pinfold/internal/profile"
	"pinfold/internal/scan"
	"pinfold/internal/secret/vault"
	"pinfold/internal/store"
	"pinfold/sandbox"
)

// TestServerScripts runs the command line against a real server over a real
// socket, whose sandboxes are made of memory. In each script $PINFOLD_SERVER
// and $PINFOLD_KEY are set, $STATE is the server's state directory, $READ a
// key that may only read, $ASKER and $BOSS are keys of a tenant whose runs somebody has to
// approve, as $BOSS may, $SOCKET is a unix socket of the same server, and $FLAKY a way to it
// on which every connection breaks after a while.
func TestServerScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/server",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               startServer,
	})
}

func startServer(env *testscript.Env) error {
	ctx, cancel := context.WithCancel(context.Background())
	env.Defer(cancel)
	state := env.WorkDir + "/state"
	st, err := store.Open(ctx, state)
	if err != nil {
		return err
	}
	env.Defer(func() { closing(env, st.Close) })
	service := access.NewService(access.Options{Store: st})
	for name, scopes := range map[string][]string{"PINFOLD_KEY": {access.ScopeAdmin}, "READ": {access.ScopeRead}} {
		_, key, err := service.Create(ctx, records.LocalTenant, name, scopes, 0)
		if err != nil {
			return err
		}
		env.Setenv(name, key)
	}
	for name, scopes := range map[string][]string{"ASKER": {access.ScopeRun, access.ScopeRead}, "BOSS": {access.ScopeApprove}} {
		_, key, err := service.Create(ctx, "ruled", name, scopes, 0)
		if err != nil {
			return err
		}
		env.Setenv(name, key)
	}
	record, err := audit.Open(audit.Options{Dir: filepath.Join(state, audit.Dir), Name: "test", KeepTexts: true, TextBytes: 1 << 20})
	if err != nil {
		return err
	}
	env.Defer(func() { closing(env, record.Close) })
	e, err := startEngine(ctx, env, st, record)
	if err != nil {
		return err
	}
	key, err := vault.NewKey()
	if err != nil {
		return err
	}
	secrets, err := vault.Open(env.WorkDir+"/secrets", key)
	if err != nil {
		return err
	}
	signer, err := audit.OpenSigner(filepath.Join(state, "manifest"), "test")
	if err != nil {
		return err
	}
	h, err := api.New(api.Options{Engine: e, Access: service, Version: "test", Audit: record, Secrets: secrets, Signer: signer})
	if err != nil {
		return err
	}
	for name, handler := range map[string]http.Handler{"PINFOLD_SERVER": h, "FLAKY": flaky(h)} {
		server := httptest.NewServer(handler)
		env.Defer(server.Close)
		env.Defer(server.CloseClientConnections)
		env.Setenv(name, server.URL)
	}
	env.Setenv("STATE", state)
	env.Setenv("PINFOLD", "pinfold")
	return serveSocket(env, h)
}

// serveSocket answers on a unix socket, as serve does.
func serveSocket(env *testscript.Env, h http.Handler) error {
	socket, err := net.Listen("unix", env.WorkDir+"/s")
	if err != nil {
		return err
	}
	local := func(ctx context.Context, _ net.Conn) context.Context { return api.WithLocalPeer(ctx) }
	server := &httptest.Server{Listener: socket, Config: &http.Server{Handler: h, ConnContext: local}}
	server.Start()
	env.Defer(server.Close)
	env.Setenv("SOCKET", "unix:"+env.WorkDir+"/s")
	return nil
}

func startEngine(ctx context.Context, env *testscript.Env, st records.Store, record *audit.Log) (*engine.Engine, error) {
	host := fstest.MapFS{"usr/bin/sh": &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}}
	template, err := image.Host(host)
	if err != nil {
		return nil, err
	}
	profiles := profile.Set{}
	for _, p := range []sandbox.Profile{{Name: "calc", Language: "sh", Limits: sandbox.Limits{MemoryBytes: 64 << 20}}, {Name: "box", Language: "sh", TTLMS: 60_000}, {Name: "pay", Language: "sh", Approval: "whom does it pay?"}} {
		if err := profiles.Add(profile.Entry{Profile: p}); err != nil {
			return nil, err
		}
	}
	machines := fake.New(fake.Options{Script: func(driver.Plan) fake.Script { return fake.Script{Program: scripted} }})
	rules, err := policy.New(sandbox.Policy{Rules: []sandbox.PolicyRule{
		{ID: "ruled-asks", When: sandbox.PolicyWhen{Tenants: []string{"ruled"}}, Then: sandbox.PolicyThen{Ask: "what is that for?", Limits: sandbox.Limits{WallTimeMS: 9000}}},
	}})
	if err != nil {
		return nil, err
	}
	var allow []sandbox.Endpoint
	for _, text := range []string{"api.test:80,443", "*.api.test", "db.test:5432=10.0.0.7"} {
		one, err := sandbox.ParseAllowed(text)
		if err != nil {
			return nil, err
		}
		allow = append(allow, one)
	}
	e := engine.New(engine.Options{
		Rules:   func() *policy.Policy { return rules },
		Drivers: []driver.Driver{machines}, Host: host, Store: st, Auditor: record, Policy: admission.Policy{Profiles: profiles, Network: admission.Network{Allow: allow}},
		Template: func(string) (image.Template, error) { return template, nil },
		Scan: func(ctx context.Context, req sandbox.ScanRequest, _ func(context.Context, sandbox.Spec) (*sandbox.Result, error)) (*sandbox.ScanReport, error) {
			return scan.Scanner{}.Scan(ctx, scan.Source{File: req.File, Language: req.Language, Text: []byte(req.Code)})
		},
	})
	env.Defer(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		closing(env, func() error { return e.Drain(ctx) })
		closing(env, e.Close)
		if n := machines.Living(); n > 0 {
			fail(env, "%d machines live", n)
		}
	})
	return e, e.Open(ctx)
}

// scripted is what programs do: a script's lines are run one after the other.
func scripted(p *fake.Process) fake.Exit {
	if last := p.Args[len(p.Args)-1]; strings.HasSuffix(last, ".sh") {
		if text, ok := p.Machine.Files.Get(last); ok {
			p.Args = []string{"sh", "-c", strings.ReplaceAll(text, "\n", ";")}
		}
	}
	return fake.Builtin(p)
}

func closing(env *testscript.Env, f func() error) {
	if err := f(); err != nil {
		fail(env, "closing: %v", err)
	}
}

func fail(env *testscript.Env, format string, args ...any) {
	if t, ok := env.T().(interface{ Errorf(string, ...any) }); ok {
		t.Errorf(format, args...)
	}
}

// flaky breaks off every second answer to a request for output, after some
// bytes.
func flaky(next http.Handler) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streams := strings.HasSuffix(r.URL.Path, "/output") || strings.HasSuffix(r.URL.Path, "/processes")
		if streams && n.Add(1)%2 == 1 {
			w = &cutting{ResponseWriter: w, left: 700}
		}
		next.ServeHTTP(w, r)
	})
}

type cutting struct {
	http.ResponseWriter

	left int
}

func (c *cutting) Write(p []byte) (int, error) {
	if c.left < 0 {
		return 0, net.ErrClosed
	}
	if c.left -= len(p); c.left < 0 {
		conn, _, err := http.NewResponseController(c.ResponseWriter).Hijack()
		if err == nil {
			err = conn.Close()
		}
		return 0, errors.Join(net.ErrClosed, err)
	}
	return c.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (c *cutting) Unwrap() http.ResponseWriter { return c.ResponseWriter }
