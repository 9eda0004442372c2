package serve

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/config"
	"pinfold/internal/engine"
	"pinfold/internal/probe"
)

func TestCheck(t *testing.T) {
	c := configure(t)
	host := func(s probe.Severity) func(context.Context) []probe.Finding {
		return func(context.Context) []probe.Finding {
			return []probe.Finding{{Title: "user namespaces", Severity: s, Probed: "clone: EPERM", Means: "no sandboxes", Fix: "sysctl -w x=1"}}
		}
	}
	verdicts := func(c *config.Config, o Options) map[string]Finding {
		if o.NewEngine == nil {
			o.NewEngine = fakeEngine(nil)
		}
		found := map[string]Finding{}
		for _, f := range Check(t.Context(), c, o) {
			found[f.What] = f
		}
		return found
	}
	for what, f := range verdicts(c, Options{Probe: host(probe.Warning)}) {
		if !f.OK {
			t.Errorf("%s: %+v", what, f)
		}
	}
	if _, err := os.Lstat(c.State); !errors.Is(err, os.ErrNotExist) {
		t.Error("Check made the state directory")
	}
	if f := verdicts(c, Options{Probe: host(probe.Problem)})["host: user namespaces"]; f.OK || f.Fix == "" {
		t.Errorf("%+v", f)
	}
	start(t, c, Options{})
	if f := verdicts(c, Options{})["state"]; !f.OK {
		t.Errorf("beside a running server: %+v", f)
	}
	bad := configure(t)
	bad.TLS = config.TLS{Cert: "/nonexistent", Key: "/nonexistent"}
	bad.Listen = []string{"unix:/nonexistent/p.sock"}
	bad.State = t.TempDir()
	if err := os.WriteFile(filepath.Join(bad.State, "pinfold.db"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	found := verdicts(bad, Options{NewEngine: func(engine.Options) (*engine.Engine, error) { return nil, errors.New("no driver") }})
	for _, what := range []string{"certificate", "listen[0]", "state", "drivers"} {
		if f, ok := found[what]; !ok || f.OK || f.Detail == "" {
			t.Errorf("%s: %+v", what, f)
		}
	}
}

// TestCheckLooksAtTheStatesMode: a check once passed for a directory with which
// the server then refused to start.
// A state that cannot be made is found before the server finds it.
func TestCheckTriesToMakeTheState(t *testing.T) {
	c := configure(t)
	for dir, ok := range map[string]bool{"/proc/nowhere/state": false, filepath.Join(t.TempDir(), "a", "b"): true} {
		c.State = dir
		for _, f := range Check(t.Context(), c, Options{NewEngine: fakeEngine(nil)}) {
			if f.What == "state" && (f.OK != ok || f.OK == (f.Fix != "")) {
				t.Errorf("%s: %+v", dir, f)
			}
		}
	}
}

func TestCheckLooksAtTheStatesMode(t *testing.T) {
	c := configure(t)
	c.State = t.TempDir()
	o := Options{NewEngine: fakeEngine(nil)}
	state := func() Finding {
		for _, f := range Check(t.Context(), c, o) {
			if f.What == "state" {
				return f
			}
		}
		t.Fatal("nothing was found out about the state")
		return Finding{}
	}
	if err := os.Chmod(c.State, 0o770); err != nil {
		t.Fatal(err)
	}
	f := state()
	if f.OK || !strings.Contains(f.Detail, "mode 770") || !strings.Contains(f.Fix, "chmod go-w") {
		t.Errorf("%+v", f)
	}
	if err := Serve(t.Context(), c, o); err == nil || !strings.Contains(err.Error(), f.Detail) {
		t.Errorf("the server says %v, the check %s", err, f.Detail)
	}
	if err := os.Chmod(c.State, 0o750); err != nil {
		t.Fatal(err)
	}
	if f := state(); !f.OK {
		t.Errorf("%+v", f)
	}
	c.State = filepath.Join(c.State, "file")
	if err := os.WriteFile(c.State, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := state(); f.OK || f.Fix == "" {
		t.Errorf("%+v", f)
	}
}
