//go:build linux

package network

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pinfold"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

const secretCanary = "canary-4f1e9c77-secret"

// dump is a program that uses an endpoint and then looks for the secret everywhere: in the
// answers, the environment, the memory of every process that it can read, files and what
// descriptors lead to. It has a pattern, in which the secret does not stand.
const dump = `
import json, os, re, urllib.request
base = 'https://secure.test:PORT'
answer = urllib.request.urlopen(base + '/api')
echo = urllib.request.urlopen(base + '/echo')
pattern = re.compile(rb'PATTERN')
found, looked = set(), 0
def look(where, data):
    global looked
    looked += len(data)
    if pattern.search(data): found.add(where)
def read(path, most=1 << 24):
    try:
        with open(path, 'rb') as f: return f.read(most)
    except OSError: return b''
look('answers', answer.read() + str(answer.headers).encode())
look('echo', echo.read() + str(echo.headers).encode())
for pid in filter(str.isdigit, os.listdir('/proc')):
    look('environment', read('/proc/%s/environ' % pid)); look('arguments', read('/proc/%s/cmdline' % pid))
    try: mem = open('/proc/%s/mem' % pid, 'rb', 0)
    except OSError: continue
    for line in read('/proc/%s/maps' % pid).decode().splitlines():
        start, end = [int(x, 16) for x in line.split()[0].split('-')]
        try: mem.seek(start); data = mem.read(min(end - start, 1 << 26))
        except (OSError, ValueError, OverflowError): continue
        look('memory', data)
for fd in os.listdir('/proc/self/fd'):
    try: target = os.readlink('/proc/self/fd/' + fd)
    except OSError: continue
    look('descriptors', target.encode())
    if target.startswith('/'): look('descriptors', read(target))
for top in '/home', '/tmp', '/var', '/dev/shm', '/etc', '/run':
    for base, _, files in os.walk(top):
        for name in files: look('files', read(os.path.join(base, name)))
print(json.dumps({'found': sorted(found), 'looked': looked}))
`

// CR-02: a program whose requests get a secret has it nowhere; its server got it once, in
// its header. The control is the same program with the secret in a variable, as others
// give it.
func TestSecretIsNowhereInside(t *testing.T) {
	ledger.Check(t)
	var mu sync.Mutex
	var got []byte
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, _ := httputil.DumpRequest(r, true)
		if r.URL.Path == "/api" {
			mu.Lock()
			got = asked
			mu.Unlock()
			return
		}
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		_, _ = w.Write(asked)
	}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{authority.certificate(t, "secure.test")}}
	server.StartTLS()
	t.Cleanup(server.Close)
	agent := filepath.Join(t.TempDir(), "pinfold-agent")
	if err := os.WriteFile(agent, agenttest.Bytes(t), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	local, err := pinfold.Open(t.Context(), pinfold.Options{Agent: agent, Secrets: map[string]sandbox.SetSecret{"token": {Hosts: []string{"secure.test"}, Value: secretCanary}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
	var pattern strings.Builder
	for _, c := range secretCanary {
		fmt.Fprintf(&pattern, "[%c]", c)
	}
	e := at("secure.test", server.Listener)
	e.Secret = "token"
	code := strings.NewReplacer("PORT", fmt.Sprint(e.Ports[0]), "PATTERN", pattern.String()).Replace(dump)
	run := func(env map[string]string) (found []string) {
		r, err := local.Run(t.Context(), sandbox.Spec{
			Language: "python", Code: code, Network: sandbox.Network{Endpoints: []sandbox.Endpoint{e}}, Env: env,
			Limits: sandbox.Limits{MemoryBytes: 1 << 30, WallTimeMS: 120_000, CPUTimeMS: 120_000},
		}, pinfold.RunOptions{})
		if err != nil || r.Status != sandbox.StatusSucceeded {
			t.Fatalf("%v %+v", err, r)
		}
		var said struct {
			Found  []string
			Looked int
		}
		if err := json.Unmarshal([]byte(r.Stdout), &said); err != nil || said.Looked < 1<<20 {
			t.Fatalf("%v %s", err, r.Stdout)
		}
		if text, err := json.Marshal(r); err != nil || bytes.Contains(text, []byte(secretCanary)) {
			t.Errorf("the result has it: %s %v", text, err)
		}
		if u := r.Network.Endpoints[0]; u.Secrets != 2 || u.Requests != 2 {
			t.Errorf("%+v", u)
		}
		return said.Found
	}
	if found := run(nil); len(found) > 0 {
		t.Errorf("it is in %v", found)
	}
	mu.Lock()
	if bytes.Count(got, []byte(secretCanary)) != 1 || !bytes.Contains(got, []byte("\r\nAuthorization: Bearer "+secretCanary+"\r\n")) {
		t.Errorf("the server got %s", got)
	}
	mu.Unlock()
	if found := fmt.Sprint(run(map[string]string{"TOKEN": secretCanary})); found != "[environment memory]" {
		t.Errorf("the control found it in %s", found)
	}
	e.Secret = "other"
	if _, err := local.Run(t.Context(), sandbox.Spec{Language: "sh", Code: "true", Network: sandbox.Network{Endpoints: []sandbox.Endpoint{e}}}, pinfold.RunOptions{}); sandbox.AsError(err).Field != "network.endpoints[0].secret" {
		t.Errorf("a secret that is not there: %v", err)
	}
}
