//go:build linux

package network

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pinfold"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// Unmodified curl reaches what is declared through the proxies, over HTTP and TLS, and nothing
// else; what it asks for is in the result with its port.
func TestProxies(t *testing.T) {
	ledger.Check(t)
	newWorld(t).proxies(t)
}

func (w *world) proxies(t *testing.T) {
	const program = `for proxy in http://127.66.0.1:3128 socks5h://127.66.0.1:1080; do
  curl -sS -m 20 -x $proxy http://web.test:%[1]d/
  curl -sS -m 20 -x $proxy --cacert ca.pem https://secure.test:%[2]d/
  curl -sS -m 20 -x $proxy http://other.test:%[1]d/ -o /dev/null -w 'other %%{http_code}\n' || true
  curl -sS -m 20 -x $proxy -k https://web.test:1/ || true
done 2>/dev/null
`
	r := w.run(t, "sh", fmt.Sprintf(program, w.web.Ports[0], w.secure.Ports[0]), w.web, w.secure)
	if r.Status != sandbox.StatusSucceeded && r.ExitCode == nil {
		t.Fatalf("%+v", r)
	}
	for _, want := range []string{fmt.Sprintf("reached web.test:%d over HTTP/1.1", w.web.Ports[0]), fmt.Sprintf("reached secure.test:%d over HTTP/2.0", w.secure.Ports[0])} {
		if n := strings.Count(r.Stdout, want); n != 2 {
			t.Errorf("%q is there %d times: %s %s", want, n, r.Stdout, r.Stderr)
		}
	}
	if !strings.Contains(r.Stdout, "other 403") {
		t.Errorf("%s", r.Stdout)
	}
	denied := map[string]int64{}
	for _, d := range r.Network.Denied {
		denied[fmt.Sprintf("%s:%d %s", d.Host, d.Port, d.Reason)] = d.Count
	}
	if len(denied) != 2 || denied[fmt.Sprintf("other.test:%d not_declared", w.web.Ports[0])] != 2 || denied["web.test:1 not_declared"] != 2 {
		t.Errorf("%v", denied)
	}
}

// What is asked for with nothing declared is in the result, and nothing is reached.
func TestAsking(t *testing.T) {
	ledger.Check(t)
	w := newWorld(t)
	r, err := w.ask(t, sandbox.Spec{
		Language: "sh", Code: "curl -sS -m 5 http://web.test/; curl -sS -m 5 -x socks5h://127.66.0.1:1080 http://web.test:8080/; curl -sS -m 5 http://127.66.0.2/", Network: sandbox.Network{Mode: sandbox.NetworkAsk},
	})
	if err != nil || r.Network == nil || r.Stdout != "" {
		t.Fatalf("%+v %v", r, err)
	}
	var tried []string
	for _, d := range r.Network.Denied {
		tried = append(tried, fmt.Sprintf("%s:%d", d.Host, d.Port))
	}
	if got := strings.Join(tried, " "); got != "web.test:0 web.test:8080" {
		t.Errorf("%q %s", got, r.Stderr)
	}
}

// What a living sandbox reaches is taken away while a program uses it, also through a proxy:
// what is open breaks off, and nothing new gets there.
func TestNarrowing(t *testing.T) {
	ledger.Check(t)
	w := newWorld(t)
	taken, open := endless(t)
	box, err := w.local.Create(t.Context(), sandbox.Create{Network: sandbox.Network{Endpoints: []sandbox.Endpoint{taken, w.web}}})
	if err != nil {
		t.Fatal(err)
	}
	const program = `import socket, sys
def direct(): return socket.create_connection((%[1]q, %[2]d), 5)
def proxied():
    s = socket.create_connection(("127.66.0.1", 3128), 5)
    s.sendall(b"CONNECT %[3]s:%[2]d HTTP/1.1\r\n\r\n")
    if not s.recv(12).endswith(b" 200"): raise OSError
    return s
held = [direct(), proxied()]
for s in held: s.settimeout(10); assert s.recv(100)
print("open", flush=True)
for s in held:
    try:
        while s.recv(65536): pass
    except ConnectionError: pass
print("cut", flush=True)
for way in direct, proxied:
    try:
        s = way()
        if s.recv(1): print("again", flush=True)
    except OSError: pass
print(socket.create_connection(("web.test", %[4]d), 5) and "stays", flush=True)
`
	out := &lines{said: make(chan string, 10)}
	ended := make(chan sandbox.Process, 1)
	go func() {
		code := fmt.Sprintf(program, taken.Host, taken.Ports[0], taken.Host, w.web.Ports[0])
		p, err := box.Exec(t.Context(), sandbox.Command{Args: []string{"python3", "-c", code}, WallTimeMS: 60_000}, pinfold.ExecOptions{Stdout: out, Stderr: out})
		if err != nil {
			t.Error(err)
		}
		ended <- p
	}()
	if got := <-out.said; got != "open" {
		t.Fatal(got)
	}
	if _, err := box.ChangeNetwork(t.Context(), sandbox.NetworkChange{Deny: []string{taken.Host}}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for open.Load() > 0 && time.Since(begun) < 10*time.Second {
		time.Sleep(time.Millisecond)
	}
	if after := time.Since(begun); after > time.Second {
		t.Errorf("its server was let go after %s", after)
	}
	for _, want := range []string{"cut", "stays"} {
		if got := <-out.said; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if p := <-ended; p.Status != sandbox.StatusSucceeded {
		t.Errorf("%+v", p)
	}
	info, err := box.Info(t.Context())
	if err != nil || info.Declared == nil || len(info.Declared.Endpoints) != 1 || info.Network.Denied[0].Reason != sandbox.DeniedNarrowed {
		t.Errorf("%+v %v", info, err)
	}
}

// lines says each line that is written, without its end.
type lines struct {
	said chan string
	part []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.part = append(l.part, b...)
	for {
		line, rest, whole := bytes.Cut(l.part, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		l.said <- string(line)
		l.part = bytes.Clone(rest)
	}
}

// As many names and ports as can be declared have their doors, beside the proxies.
func TestAllDoors(t *testing.T) {
	ledger.Check(t)
	w := newWorld(t)
	all := []sandbox.Endpoint{w.web}
	for i := range sandbox.MaxEndpoints - 1 {
		all = append(all, sandbox.Endpoint{Host: fmt.Sprintf("n%d.test", i), Ports: []int{80, 443}})
	}
	all[1].Ports = append(all[1].Ports, 8080) // one name has one port
	r := w.run(t, "sh", fmt.Sprintf("curl -sS -m 20 -x http://127.66.0.1:3128 http://web.test:%d/", w.web.Ports[0]), all...)
	if !strings.HasPrefix(r.Stdout, "reached web.test") {
		t.Errorf("%s %s", r.Stdout, r.Stderr)
	}
}
