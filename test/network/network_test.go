//go:build linux

package network

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pinfold"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/engine"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

// world is what sandboxes reach: web.test over HTTP and secure.test over HTTPS, both on
// this machine's loopback, with a git repository.
type world struct {
	local       *pinfold.Local
	web, secure sandbox.Endpoint

	other  *engine.Engine // with a driver of that name, instead of local
	driver string
}

func open(t *testing.T, pools ...sandbox.PoolSpec) *pinfold.Local {
	t.Helper()
	agent := filepath.Join(t.TempDir(), "pinfold-agent")
	if err := os.WriteFile(agent, agenttest.Bytes(t), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	local, err := pinfold.Open(t.Context(), pinfold.Options{Agent: agent, Pools: pools})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
	return local
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldOf(t, &world{local: open(t)})
}

// worldOf is w with its servers.
func worldOf(t *testing.T, w *world) *world {
	t.Helper()
	files := http.FileServer(http.Dir(repository(t)))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/repo.git") {
			files.ServeHTTP(w, r)
			return
		}
		_, _ = io.WriteString(w, "reached "+r.Host+" over "+r.Proto+"\n")
	})
	plain := httptest.NewServer(handler)
	t.Cleanup(plain.Close)
	w.web = at("web.test", plain.Listener)
	secure := httptest.NewUnstartedServer(handler)
	secure.EnableHTTP2 = true
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{authority.certificate(t, "secure.test")}}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	w.secure = at("secure.test", secure.Listener)
	return w
}

// at is the endpoint of a server on loopback, by the operator's word.
func at(host string, l net.Listener) sandbox.Endpoint {
	address := l.Addr().(*net.TCPAddr)
	return sandbox.Endpoint{Host: host, Ports: []int{address.Port}, Address: address.IP.String()}
}

// repository is a directory with a bare git repository that can be cloned as files.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "work"},
		{"-C", "work", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "--allow-empty", "-m", "the commit"},
		{"clone", "-q", "--bare", "work", "repo.git"},
		{"-C", "repo.git", "update-server-info"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return dir
}

// run runs a program that may reach the endpoints.
func (w *world) run(t *testing.T, language, code string, endpoints ...sandbox.Endpoint) *sandbox.Result {
	t.Helper()
	r, err := w.ask(t, sandbox.Spec{
		Language: language, Code: code, Network: sandbox.Network{Endpoints: endpoints},
		Files: []sandbox.File{{Path: "ca.pem", Content: authority.pem}}, Env: map[string]string{"NODE_EXTRA_CA_CERTS": "/home/user/ca.pem", "NO_COLOR": "1"},
		Limits: limits,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// limits are those of programs that reach for something.
var limits = sandbox.Limits{MemoryBytes: 1 << 30, Processes: 256, WallTimeMS: 60_000, CPUTimeMS: 60_000}

// ask runs a program, wherever this world's sandboxes are.
func (w *world) ask(t *testing.T, spec sandbox.Spec) (*sandbox.Result, error) {
	t.Helper()
	if w.other == nil {
		return w.local.Run(t.Context(), spec, pinfold.RunOptions{})
	}
	spec.Driver = w.driver
	return w.other.Run(t.Context(), runs.Request{Spec: spec})
}

// programs are those that people use. %[1]s is the port of web.test, %[2]s that of
// secure.test; each prints what it got, or fails.
var programs = []struct {
	name, host, language, code, want string
}{
	{"curl", "web.test", "sh", `curl -sS http://web.test:W_PORT/x`, "reached web.test"},
	{"curl over TLS", "secure.test", "sh", `curl -sS --cacert ca.pem https://secure.test:S_PORT/x`, "over HTTP/2.0"},
	{"Python", "web.test", "python", "import urllib.request\nprint(urllib.request.urlopen('http://web.test:W_PORT/x').read())", "reached web.test"},
	{"Python over TLS", "secure.test", "python", "import urllib.request, ssl\nprint(urllib.request.urlopen('https://secure.test:S_PORT/x', context=ssl.create_default_context(cafile='ca.pem')).read())", "reached secure.test"},
	{"Node", "web.test", "javascript", "fetch('http://web.test:W_PORT/x').then(r => r.text()).then(console.log)", "reached web.test"},
	{"Node over TLS", "secure.test", "javascript", "fetch('https://secure.test:S_PORT/x').then(r => r.text()).then(console.log)", "reached secure.test"},
	{"git", "web.test", "sh", `git clone -q http://web.test:W_PORT/repo.git && git -C repo log --format=%s`, "the commit"},
	{"git over TLS", "secure.test", "sh", `git -c http.sslCAInfo=$PWD/ca.pem clone -q https://secure.test:S_PORT/repo.git && git -C repo log --format=%s`, "the commit"},
}

// Unmodified programs reach what is declared, and nothing else: that fails at once, and
// the result names it and says how to allow it.
func TestPrograms(t *testing.T) {
	ledger.Check(t)
	w := newWorld(t)
	w.runPrograms(t, func(string) bool { return true })
	if os.Geteuid() == 0 {
		t.Run("as user", func(t *testing.T) { asuser.Rerun(t, "TestPrograms", []string{agenttest.Agent}, nil) })
	}
}

// runPrograms runs those of the programs of whose names has says yes.
func (w *world) runPrograms(t *testing.T, has func(name string) bool) {
	for _, p := range programs {
		if !has(p.name) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			code := strings.NewReplacer("W_PORT", fmt.Sprint(w.web.Ports[0]), "S_PORT", fmt.Sprint(w.secure.Ports[0])).Replace(p.code)
			declared, other := w.web, w.secure
			if p.host == "secure.test" {
				declared, other = other, declared
			}
			r := w.run(t, p.language, code, declared)
			if r.Status != sandbox.StatusSucceeded || !strings.Contains(r.Stdout, p.want) {
				t.Fatalf("declared: %s %+v\n%s%s%+v", r.Status, r.Cause, r.Stdout, r.Stderr, r.Network)
			}
			if u := r.Network.Endpoints; len(u) != 1 || u[0].Host != p.host || u[0].Connections < 1 || u[0].BytesUp == 0 || u[0].BytesDown == 0 || len(r.Network.Denied) > 0 {
				t.Errorf("declared: %+v", r.Network)
			}
			begun := time.Now()
			r = w.run(t, p.language, code, other)
			if r.Status != sandbox.StatusFailed || strings.Contains(r.Stdout, p.want) {
				t.Fatalf("not declared: %s %+v\n%s%s", r.Status, r.Cause, r.Stdout, r.Stderr)
			}
			if took := time.Since(begun); took > 20*time.Second { // it waits for nothing
				t.Errorf("it failed after %v", took)
			}
			if d := r.Network.Denied; len(d) != 1 || d[0].Host != p.host || d[0].Reason != sandbox.DeniedUndeclared || !strings.Contains(d[0].Hint, `"host": "`+p.host+`"`) {
				t.Errorf("not declared: %+v", d)
			}
			if !strings.HasPrefix(r.Cause.Hint, p.host+" was denied (not_declared)") {
				t.Errorf("the hint is %q", r.Cause.Hint)
			}
		})
	}
}

// What a result says about the network is what was there.
func TestPosture(t *testing.T) {
	ledger.Check(t)
	w := newWorld(t)
	r := w.run(t, "sh", "true", w.web)
	if all := strings.Join(r.Isolation.Enforced, " ") + " "; !strings.Contains(all, sandbox.FeatureNetwork+" ") || strings.Contains(all, sandbox.FeatureNetworkNone+" ") {
		t.Errorf("with endpoints: %s", all)
	}
	r = w.run(t, "sh", "cat /etc/resolv.conf; ls -l /proc/self/fd")
	if all := strings.Join(r.Isolation.Enforced, " ") + " "; strings.Contains(all, sandbox.FeatureNetwork+" ") || !strings.Contains(all, sandbox.FeatureNetworkNone+" ") || r.Network != nil || strings.Contains(r.Stdout, "nameserver") {
		t.Errorf("without: %s %+v %s", all, r.Network, r.Stdout)
	}
	_, err := w.local.Run(t.Context(), sandbox.Spec{Language: "sh", Code: "true", Network: sandbox.Network{Endpoints: []sandbox.Endpoint{w.web}}, Require: []string{sandbox.FeatureNetworkNone}}, pinfold.RunOptions{})
	if sandbox.AsError(err).Code != sandbox.CodeRequirementUnmet {
		t.Errorf("network:none is required: %v", err)
	}
	r = w.run(t, "python", "import os\nprint(sorted(os.listdir('/proc/self/fd')), len(open('/proc/net/dev').readlines()) - 2, len(open('/proc/net/route').readlines()) - 1)", w.web)
	if !strings.Contains(r.Stdout, "['0', '1', '2', '3'] 1 0") {
		t.Errorf("descriptors, interfaces and routes: %s%s", r.Stdout, r.Stderr)
	}
}
