//go:build linux

package network

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver/drivertest"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

// newWarmWorld is one whose sandboxes wait: those of run's limits, and interpreters.
func newWarmWorld(t *testing.T) *world {
	t.Helper()
	pools := []sandbox.PoolSpec{{Name: "plain", Min: 1}, {Name: "python", Language: "python", Min: 1}, {Name: "node", Language: "javascript", Min: 1}}
	for i := range pools {
		pools[i].Limits = limits
	}
	return worldOf(t, &world{local: open(t, pools...)})
}

// ready waits until each pool has one that waits.
func (w *world) ready(t *testing.T) {
	t.Helper()
	await(t, "one waits in each pool", func() bool {
		pools, err := w.local.Pools(t.Context())
		return err == nil && !slices.ContainsFunc(pools, func(p sandbox.PoolInfo) bool { return p.Available == 0 })
	})
}

// taken is how many machines that waited were handed out, or made at once for a fork.
func (w *world) taken(t *testing.T) (n int64) {
	t.Helper()
	pools, err := w.local.Pools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pools {
		n += p.Hits + p.Forked
	}
	return n
}

// Programs in sandboxes that waited reach what their own run declares, and nothing else, as
// in those that are made for a run; only root can have such ones, and others have theirs made.
func TestWarmPrograms(t *testing.T) {
	ledger.Check(t)
	w := newWarmWorld(t)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			code := strings.NewReplacer("W_PORT", fmt.Sprint(w.web.Ports[0]), "S_PORT", fmt.Sprint(w.secure.Ports[0])).Replace(p.code)
			declared, other := w.web, w.secure
			if p.host == "secure.test" {
				declared, other = other, declared
			}
			for _, e := range []sandbox.Endpoint{declared, other} {
				w.ready(t)
				before := w.taken(t)
				r := w.run(t, p.language, code, e)
				if reached := strings.Contains(r.Stdout, p.want); reached != (e.Host == p.host) || r.Network == nil || (len(r.Network.Denied) == 0) != reached {
					t.Errorf("with %s: %s %+v\n%s%s%+v", e.Host, r.Status, r.Cause, r.Stdout, r.Stderr, r.Network)
				}
				if !slices.Contains(r.Isolation.Enforced, sandbox.FeatureNetwork) || slices.Contains(r.Isolation.Enforced, sandbox.FeatureNetworkNone) {
					t.Errorf("with %s: %v", e.Host, r.Isolation.Enforced)
				}
				// Node reads whom it trusts when it starts: a program that names others gets one of its own.
				warm := os.Geteuid() == 0
				if n := w.taken(t) - before; (n == 1) != warm {
					t.Errorf("with %s: %d that waited were taken; warm is %v", e.Host, n, warm)
				}
				if interpreter := warm && p.language == "python"; r.Warm != interpreter {
					t.Errorf("with %s: an interpreter that waited: %v, because %q", e.Host, r.Warm, r.ColdBecause)
				}
			}
		})
	}
	if os.Geteuid() == 0 {
		t.Run("as user", func(t *testing.T) { asuser.Rerun(t, "TestWarmPrograms", []string{agenttest.Agent}, nil) })
	}
}

// Also from a sandbox that waited there is no way but the declared one.
func TestWarmNothingElse(t *testing.T) {
	ledger.Check(t)
	w := newWarmWorld(t)
	w.ready(t)
	before := w.taken(t)
	w.nothingElse(t)
	if os.Geteuid() == 0 && w.taken(t) == before {
		t.Error("no sandbox that waited was taken")
	}
}

// A sandbox that waited says what was tried, too.
func TestWarmAsking(t *testing.T) {
	ledger.Check(t)
	w := newWarmWorld(t)
	w.ready(t)
	before := w.taken(t)
	r, err := w.ask(t, sandbox.Spec{Language: "sh", Code: "curl -sS -m 5 https://tried.test/; curl -sS -m 5 -x http://127.66.0.1:3128 https://tried.test:8443/", Network: sandbox.Network{Mode: sandbox.NetworkAsk}, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	if r.Network == nil || len(r.Network.Denied) != 2 || r.Network.Denied[0].Host != "tried.test" || r.Network.Denied[1].Port != 8443 {
		t.Errorf("%s %s%s %+v", r.Status, r.Stdout, r.Stderr, r.Network)
	}
	if n := w.taken(t) - before; (n == 1) != (os.Geteuid() == 0) {
		t.Errorf("%d that waited were taken", n)
	}
}

// Names are found by interpreters whose modules have asked the C library for something that is
// looked up as names are, too: it keeps where. Without endpoints there is still nobody to ask.
func TestWarmNames(t *testing.T) {
	if found, _ := filepath.Glob("/usr/lib/python3*/test/test_os.py"); len(found) == 0 {
		drivertest.Missing(t, "this host's Python has no module test.test_os (libpython3-testsuite)")
	}
	ledger.Check(t)
	modules := []string{"test.test_os"} // it asks for all users
	w := worldOf(t, &world{local: open(t, sandbox.PoolSpec{Name: "python", Language: "python", Min: 1, Warm: modules, Limits: limits})})
	code := `import socket
for name in ("web.test", "x.wild.test", "other.test"):
    try: print(name, socket.gethostbyname(name))
    except socket.gaierror: print(name, "is none")`
	none := "web.test is none\nx.wild.test is none\nother.test is none\n"
	for want, endpoints := range map[string][]sandbox.Endpoint{
		none: nil, "web.test 127.66.0.2\nx.wild.test 127.66.0.3\nother.test is none\n": {w.web, {Host: "*.wild.test"}},
	} {
		w.ready(t)
		r, err := w.ask(t, sandbox.Spec{Language: "python", Code: code, Warm: modules, Limits: limits, Network: sandbox.Network{Endpoints: endpoints}})
		if err != nil {
			t.Fatal(err)
		}
		denied := r.Network != nil && slices.ContainsFunc(r.Network.Denied, func(d sandbox.Denial) bool { return d.Host == "other.test" })
		if r.Stdout != want || denied != (endpoints != nil) {
			t.Errorf("warm: %v: %s%s%+v", r.Warm, r.Stdout, r.Stderr, r.Network)
		}
		if os.Geteuid() == 0 && !r.Warm {
			t.Errorf("it is cold: %s", r.ColdBecause)
		}
	}
}

// A run whose requests are read has a forked interpreter, in a machine that is made for it and
// trusts its authority.
func TestWarmRules(t *testing.T) {
	ledger.Check(t)
	w := newWarmWorld(t)
	w.secure.Paths = []string{"/ok/*"}
	code := fmt.Sprintf(`import urllib.request, urllib.error
print(urllib.request.urlopen('https://secure.test:%[1]d/ok/x').read())
try: urllib.request.urlopen('https://secure.test:%[1]d/no/x')
except urllib.error.HTTPError as e: print(e.code)`, w.secure.Ports[0])
	await(t, "interpreters are forked", func() bool {
		pools, err := w.local.Pools(t.Context())
		return err == nil && slices.ContainsFunc(pools, func(p sandbox.PoolInfo) bool { return p.Name == "python" && p.Interpreters == "forked" })
	})
	r := w.run(t, "python", code, w.secure)
	if r.Warm != (os.Geteuid() == 0) || r.Status != sandbox.StatusSucceeded || !strings.Contains(r.Stdout, "reached secure.test") || !strings.Contains(r.Stdout, "403") {
		t.Errorf("%v %s %+v\n%s%s%+v", r.Warm, r.Status, r.Cause, r.Stdout, r.Stderr, r.Network)
	}
}

// A living sandbox that waited is like any other: it can be narrowed, and its end ends what
// is under way.
func TestWarmSandbox(t *testing.T) {
	ledger.Check(t)
	w := newWarmWorld(t)
	stream, open := endless(t)
	w.ready(t)
	box, err := w.local.Create(t.Context(), sandbox.Create{Limits: limits, Network: sandbox.Network{Endpoints: []sandbox.Endpoint{w.web, stream}}})
	if err != nil {
		t.Fatal(err)
	}
	info, err := box.Info(t.Context())
	if err != nil || info.Warm != (os.Geteuid() == 0) {
		t.Fatalf("%+v %v", info, err)
	}
	if _, err := box.Start(t.Context(), sandbox.Command{Shell: fmt.Sprintf("curl -sS http://stream.test:%d/", stream.Ports[0])}); err != nil {
		t.Fatal(err)
	}
	await(t, "the transfer is under way", func() bool { return open.Load() > 0 })
	if _, err := box.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "the transfer has ended", func() bool { return open.Load() == 0 })
}
