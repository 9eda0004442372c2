//go:build linux

// Package drivers tests the engine with more than one driver, and with one whose
// machines outlive the server and whose connections break.
package drivers

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/driver/native"
	"pinfold/internal/driver/plain"
	"pinfold/internal/engine"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// host is where the drivers of a test keep what they know.
type host struct{ dir, programs string }

func newHost(t *testing.T) host {
	t.Helper()
	if os.Geteuid() != 0 {
		drivertest.Missing(t, "the plain driver mounts, which takes root: run the tests as root")
	}
	h := host{t.TempDir(), agenttest.Install(t, agenttest.Agent)}
	if err := os.Mkdir(h.machines(), 0o700); err != nil {
		t.Fatal(err)
	}
	ledger.Check(t, h.machines())
	return h
}

func (h host) machines() string { return filepath.Join(h.dir, "p") }

func (h host) plain(broken func(net.Conn) io.ReadWriteCloser) driver.Driver {
	return plain.New(plain.Options{StateDir: h.machines(), Agent: filepath.Join(h.programs, "pinfold-agent"), Allow: true, Broken: broken})
}

func (h host) native(t *testing.T) driver.Driver {
	return native.New(native.Options{
		StateDir: filepath.Join(h.dir, "n"), Agent: func() ([]byte, error) { return agenttest.Bytes(t), nil },
	})
}

func newEngine(store records.Store, drivers ...driver.Driver) *engine.Engine {
	return engine.New(engine.Options{
		Drivers: drivers, Store: store, Host: os.DirFS("/"),
		Template: imagetest.Templates,
	})
}

func closed(t *testing.T, e *engine.Engine) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Errorf("closing the engine: %v", err)
	}
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// What is required decides who makes a sandbox, and the result says who did.
func TestRoute(t *testing.T) {
	h := newHost(t)
	e := newEngine(nil, h.plain(nil), h.native(t))
	defer closed(t, e)
	for _, test := range []struct {
		name    string
		driver  string
		require []string
		want    string
	}{
		{"nothing", "", nil, plain.Name},
		{"what only native can", "", []string{sandbox.FeatureSeccomp}, native.Name},
		{"native by name", native.Name, nil, native.Name},
		{"plain by name", plain.Name, nil, plain.Name},
	} {
		r, err := e.Run(soon(t), runs.Request{Spec: sandbox.Spec{Language: "sh", Code: "echo made", Driver: test.driver, Require: test.require}})
		if err != nil || r.Isolation.Driver != test.want || r.Stdout != "made\n" {
			t.Errorf("%s: %+v, %v", test.name, r, err)
		}
		if test.want == plain.Name && len(r.Isolation.Enforced) > 0 {
			t.Errorf("%s: a plain process enforces %q", test.name, r.Isolation.Enforced)
		}
	}
	_, err := e.Run(soon(t), runs.Request{Spec: sandbox.Spec{Language: "sh", Code: "echo", Driver: plain.Name, Require: []string{sandbox.FeatureSeccomp}}})
	if sandbox.AsError(err).Code != sandbox.CodeRequirementUnmet {
		t.Errorf("a requirement that the named driver does not meet: %v", err)
	}
}
