//go:build linux

package network

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/docker"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/driver/gvisor"
	"pinfold/internal/driver/qemu"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/runs"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
	"pinfold/test/dockerengine"
	"pinfold/test/kernels/vm"
	"pinfold/test/ledger"
)

// elsewhere is a world whose sandboxes a driver makes whose agent opens the doors.
func elsewhere(t *testing.T, d driver.Driver) *world {
	t.Helper()
	e := engine.New(engine.Options{
		Drivers: []driver.Driver{d}, Host: os.DirFS("/"), Template: imagetest.Templates,
		Policy: admission.Policy{Network: admission.Network{Own: true}},
	})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return worldOf(t, &world{other: e, driver: d.Name()})
}

// What holds for the native driver holds where the agent opens the doors: the same
// programs reach the same, and nothing else.
func (w *world) holds(t *testing.T, has func(name string) bool) {
	t.Run("clients", func(t *testing.T) { w.clientsOf(t) })
	t.Run("programs", func(t *testing.T) { w.runPrograms(t, has) })
	t.Run("nothing else", func(t *testing.T) { w.nothingElse(t) })
	t.Run("proxies", func(t *testing.T) { w.proxies(t) })
	t.Run("low port", func(t *testing.T) { w.lowPort(t) })
	t.Run("much", func(t *testing.T) { w.much(t) })
	t.Run("broken off", func(t *testing.T) { w.brokenOff(t) })
	t.Run("at once", func(t *testing.T) { w.atOnce(t) })
	t.Run("the end", func(t *testing.T) { w.theEnd(t) })
	t.Run("rules", func(t *testing.T) { w.runRuled(t, has) }) // last: they change the endpoints
}

// lowPort is one that only who is privileged may listen at.
func (w *world) lowPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.66.9.9:80")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("reached")) }))
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	if r := w.run(t, "sh", "curl -sSf http://low.test/", at("low.test", l)); r.Stdout != "reached" {
		t.Errorf("%s%s", r.Stdout, r.Stderr)
	}
}

// much goes both ways, whole.
func (w *world) much(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		b := make([]byte, 1<<16)
		for n, err := r.Body.Read(b); ; n, err = r.Body.Read(b) {
			h.Write(b[:n])
			if err != nil {
				break
			}
		}
		w.Header().Set("Sum", fmt.Sprintf("%x", h.Sum(nil)))
		_, _ = w.Write(content)
	}))
	t.Cleanup(server.Close)
	much := at("much.test", server.Listener)
	code := fmt.Sprintf("import urllib.request, hashlib\nc = b'0123456789abcdef' * (1 << 20)\nr = urllib.request.urlopen('http://much.test:%d/', data=c)\nprint(r.read() == c, r.headers['Sum'] == hashlib.sha256(c).hexdigest())", much.Ports[0])
	r := w.run(t, "python", code, much)
	if r.Stdout != "True True\n" {
		t.Errorf("%s%s", r.Stdout, r.Stderr)
	}
	if u := r.Network.Endpoints[0]; u.BytesUp < int64(len(content)) || u.BytesDown < int64(len(content)) {
		t.Errorf("%+v", u)
	}
}

// brokenOff is what a program learns of an answer that the server broke off: it does not
// take it for the whole.
func (w *world) brokenOff(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for whole := false; ; whole = !whole {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("half"))
			b := make([]byte, 1)
			_, _ = c.Read(b)
			if !whole {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
			_ = c.Close()
		}
	}()
	e := at("half.test", l)
	code := fmt.Sprintf(`import socket
for _ in range(2):
    s = socket.create_connection(('half.test', %d))
    got = s.recv(4); s.sendall(b'\x00')
    try: print(got, s.recv(10))
    except ConnectionResetError: print(got, 'reset')
`, e.Ports[0])
	if r := w.run(t, "python", code, e); r.Stdout != "b'half' reset\nb'half' b''\n" {
		t.Errorf("%s%s", r.Stdout, r.Stderr)
	}
}

// atOnce is more connections than limits.connections: what is beyond is denied, and the
// others work.
func (w *world) atOnce(t *testing.T) {
	code := fmt.Sprintf(`import socket
all = []
for _ in range(70):
    try: all.append(socket.create_connection(('web.test', %d)))
    except OSError: pass # one of those beyond
ok = 0
for s in all:
    try:
        s.sendall(b'GET / HTTP/1.1\r\nHost: web.test:%d\r\n\r\n'); ok += b'reached' in s.recv(1000)
    except OSError: pass
print(ok)`, w.web.Ports[0], w.web.Ports[0])
	r := w.run(t, "python", code, w.web)
	if strings.TrimSpace(r.Stdout) != "64" {
		t.Errorf("%s%s", r.Stdout, r.Stderr)
	}
	if !slices.ContainsFunc(r.Network.Denied, func(d sandbox.Denial) bool { return d.Reason == sandbox.DeniedConnections }) {
		t.Errorf("%+v", r.Network.Denied)
	}
}

// theEnd of a sandbox is that of its connections.
func (w *world) theEnd(t *testing.T) {
	stream, connections := endless(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan error, 1)
	go func() {
		_, err := w.other.Run(ctx, runs.Request{Spec: sandbox.Spec{
			Driver: w.driver, Language: "python", Network: sandbox.Network{Endpoints: []sandbox.Endpoint{stream}},
			Code:   fmt.Sprintf("import socket\ns = socket.create_connection(('stream.test', %d))\nwhile s.recv(1 << 16): pass", stream.Ports[0]),
			Limits: sandbox.Limits{WallTimeMS: 60_000},
		}})
		over <- err
	}()
	await(t, "a connection", func() bool { return connections.Load() == 1 })
	cancel()
	await(t, "its end", func() bool { return connections.Load() == 0 })
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Error("the run goes on")
	}
}

func newGVisor(t *testing.T) driver.Driver {
	agent := agenttest.Bytes(t)
	return gvisor.New(gvisor.Options{
		Runsc: drivertest.Runsc(t), Agent: func() ([]byte, error) { return agent, nil }, Blocks: filepath.Join(t.TempDir(), "blocks"),
	})
}

func TestGVisor(t *testing.T) {
	ledger.Check(t)
	if os.Geteuid() != 0 {
		t.Skip("the gvisor driver is root's")
	}
	w := elsewhere(t, newGVisor(t))
	w.holds(t, func(string) bool { return true })
}

// newDocker is of an engine with an image that has the host's clients.
func newDocker(t *testing.T) driver.Driver {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the docker driver is root's")
	}
	if missing := dockerengine.Missing(dockerengine.Docker); missing != "" {
		drivertest.Missing(t, "%s", missing)
	}
	d, err := dockerengine.New(dockerengine.Docker)
	if d != nil {
		t.Cleanup(d.Close)
	}
	if err != nil {
		t.Fatal(err)
	}
	const image = "pinfold-network"
	needClients(t)
	packages := []string{"bash", "dash", "coreutils", "sed", "python3-minimal", "libpython3-stdlib", "python3-pip", "curl", "git", "postgresql-client-common"}
	for _, program := range []string{"/usr/bin/node", "/usr/bin/npm", "/usr/bin/java", "/usr/lib/postgresql/*/bin/psql"} {
		found, err := filepath.Glob(program)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", program, err)
		}
		name, err := dockerengine.PackageOf(t.Context(), found[len(found)-1])
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, name)
	}
	npm, err := filepath.EvalSymlinks("/usr/bin/npm")
	if err != nil {
		t.Fatal(err)
	}
	// All of npm: it can have renewed itself since its package was installed.
	if err := d.HostImage(t.Context(), image, packages, []string{filepath.Dir(filepath.Dir(npm))}); err != nil {
		t.Fatal(err)
	}
	agent := agenttest.Bytes(t)
	return docker.New(docker.Options{Engine: d.Address(), Image: image, StateDir: d.StateDir(t), Agent: func() ([]byte, error) { return agent, nil }})
}

func TestDocker(t *testing.T) {
	ledger.Check(t)
	w := elsewhere(t, newDocker(t))
	w.holds(t, func(name string) bool { return strings.HasPrefix(name, "curl") || strings.HasPrefix(name, "Python") })
}

func newQEMU(t *testing.T) driver.Driver {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the qemu driver is root's here")
	}
	if missing := vm.Missing(); missing != "" {
		drivertest.Missing(t, "%s", missing)
	}
	kernel, err := vm.Kernel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	agent, warden := agenttest.Bytes(t), agenttest.Program(t, agenttest.Warden)
	return qemu.New(qemu.Options{
		Kernel: kernel, Modules: vm.Modules(kernel), CacheDir: vm.Machines(), StateDir: filepath.Join(t.TempDir(), "qemu"),
		Agent: func() ([]byte, error) { return agent, nil }, Warden: func() ([]byte, error) { return warden, nil },
	})
}

func TestQEMU(t *testing.T) {
	ledger.Check(t)
	w := elsewhere(t, newQEMU(t))
	w.holds(t, func(name string) bool { return name == "curl" || name == "Python over TLS" || name == "Python" }) // emulated, each takes seconds
}
