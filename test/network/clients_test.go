//go:build linux

package network

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/driver/native"
	"pinfold/internal/driver/process"
	"pinfold/internal/driver/qemu"
	"pinfold/internal/engine/living"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

const goclient = "pinfold/test/network/goclient"

// clients are programs that reach a server in TLS, each in its own way. {at} is its name
// and port, {host} the name, {pg} the port of PostgreSQL; each prints what it got, or fails. Where
// unread, requests cannot be read there.
var clients = []struct {
	name, script, want string
	unread             bool
}{
	{"git", `git clone -q https://{at}/git/repo.git repo-{host} && git -C repo-{host} log --format=%s`, "the commit", false},
	{"pip", `python3 -m pip install -q --target site-{host} --index-url https://{at}/simple/ greet && PYTHONPATH=site-{host} python3 -c 'import greet; print(greet.hello())'`, "hello from words", false},
	{"npm", `mkdir npm-{host} && cd npm-{host} && npm install --registry https://{at}/npm/ --ignore-scripts left && node -p "require('left')"`, "hello from left", false},
	{"node", `node -e "fetch('https://{at}/text').then(r => r.text()).then(console.log)"`, "reached over HTTP", false},
	{"go", `./goclient https://{at}/text`, "reached over HTTP/2.0", false},
	{"java", `java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC Client https://{at}/text`, "reached over HTTP/2.0", false},
	{"websocket", `java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC Client wss://{at}/socket`, "reached by WebSocket", false},
	{"curl", `curl -sS --http2 https://{at}/text`, "reached over HTTP/2.0", false},
	{"psql", `psql "host={host} port={pg} user=u dbname=postgres sslmode=verify-full sslrootcert=$HOME/ca.pem" -At -c "select 'reached as ' || current_user || ', TLS ' || ssl from pg_stat_ssl where pid = pg_backend_pid()"`, "reached as u, TLS true", true},
}

// slowClients take up to half a minute in an emulated machine, each time: they are tried there,
// and the others where TLS is ended, on request.
var slowClients = []string{"pip", "npm", "node", "java", "websocket"}

// inWhole says whether all is tried in sandboxes of the driver. In emulated machines that takes
// many minutes: make test-machines.
func (w *world) inWhole() bool {
	return w.driver != qemu.Name || os.Getenv("PINFOLD_TEST_MACHINES") == "1"
}

// Where a client finds whom to trust at endpoints at which TLS goes from end to end. Where
// it is ended Pinfold's own variables say so, and programs have to be told nothing.
var trusting = map[string]string{
	"GIT_SSL_CAINFO": "/home/user/ca.pem", "PIP_CERT": "/home/user/ca.pem", "REQUESTS_CA_BUNDLE": "/home/user/ca.pem", "npm_config_cafile": "/home/user/ca.pem", "NODE_EXTRA_CA_CERTS": "/home/user/ca.pem",
	"SSL_CERT_FILE": "/home/user/ca.pem", "CURL_CA_BUNDLE": "/home/user/ca.pem", "JDK_JAVA_OPTIONS": "-Djavax.net.ssl.trustStore=/home/user/ca.p12 -Djavax.net.ssl.trustStorePassword=changeit",
}

// clientWallMS bounds a client, generously: an emulated machine takes its time.
const clientWallMS = 10 * 60 * 1000

// clientsOf are programs that people use, in one sandbox: each reaches what is declared, TLS
// from end to end and where it is ended, and each fails by itself where it is not, with the
// denial in what is said of the sandbox.
func (w *world) clientsOf(t *testing.T) {
	certificate := authority.certificate(t, "*.clients.test")
	web, pg := serveClients(t, certificate), servePostgres(t, certificate)
	declared, ruled := at("all.clients.test", web), at("ruled.clients.test", web)
	declared.Ports = append(declared.Ports, pg)
	ruled.Methods, ruled.Paths = []string{http.MethodGet, http.MethodPost}, []string{"/**"}
	box, err := w.other.Create(t.Context(), "", sandbox.Create{
		Driver: w.driver, Network: sandbox.Network{Endpoints: []sandbox.Endpoint{declared, ruled}}, TTLMS: 60 * 60 * 1000,
		Limits: sandbox.Limits{MemoryBytes: 1 << 30, Processes: 256}, Env: map[string]string{"NO_COLOR": "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = box.Destroy(context.WithoutCancel(t.Context())) })
	putClients(t, box)
	run := func(t *testing.T, script, host string, env map[string]string) sandbox.Process {
		t.Helper()
		port := strconv.Itoa(declared.Ports[0])
		script = strings.NewReplacer("{at}", host+":"+port, "{host}", host, "{pg}", strconv.Itoa(declared.Ports[1])).Replace(script)
		p, err := box.Exec(t.Context(), sandbox.Command{Shell: script, Env: env, WallTimeMS: clientWallMS})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d ms", host, p.WallMS)
		return p
	}
	for _, c := range clients {
		if !w.inWhole() && slices.Contains(slowClients, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			p := run(t, c.script, declared.Host, trusting)
			if p.Status != sandbox.StatusSucceeded || !strings.Contains(p.Stdout, c.want) {
				t.Errorf("declared: %s %+v\n%s%s%+v", p.Status, p.Cause, p.Stdout, p.Stderr, box.Info().Network.Endpoints)
			}
			if !c.unread && (w.inWhole() || c.name == "curl") {
				p = run(t, c.script, ruled.Host, nil)
				if p.Status != sandbox.StatusSucceeded || !strings.Contains(p.Stdout, c.want) {
					t.Errorf("where TLS is ended: %s %+v\n%s%s%+v", p.Status, p.Cause, p.Stdout, p.Stderr, box.Info().Network.Endpoints)
				}
			}
			if denied := box.Info().Network.Denied; deniedOf(denied, c.name+".none.test") != nil {
				t.Fatalf("before: %+v", denied)
			}
			p = run(t, c.script, c.name+".none.test", trusting)
			if p.Status != sandbox.StatusFailed || p.Cause.Kind != sandbox.CauseExited || strings.Contains(p.Stdout, c.want) {
				t.Errorf("not declared: %s %+v\n%s%s", p.Status, p.Cause, p.Stdout, p.Stderr)
			}
			denied := box.Info().Network.Denied
			if d := deniedOf(denied, c.name+".none.test"); d == nil || d.Reason != sandbox.DeniedUndeclared || !strings.Contains(d.Hint, `"host": "`+d.Host+`"`) {
				t.Errorf("not declared: %+v", denied)
			}
		})
	}
}

// needClients ends the test where a client is not here.
func needClients(t *testing.T) {
	t.Helper()
	for _, program := range []string{"git", "python3", "npm", "node", "java", "javac", "keytool", "curl", "psql"} {
		if _, err := os.Stat("/usr/bin/" + program); err != nil {
			drivertest.Missing(t, "%s is not in /usr/bin", program)
		}
	}
}

func deniedOf(all []sandbox.Denial, host string) *sandbox.Denial {
	for _, d := range all {
		if d.Host == host {
			return &d
		}
	}
	return nil
}

// putClients puts into a sandbox what is not in its template: the programs of Go and Java,
// compiled here, and whom they are to trust.
func putClients(t *testing.T, box *living.Sandbox) {
	t.Helper()
	dir := t.TempDir()
	pem := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(pem, []byte(authority.pem), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"javac", "--release", "11", "-d", dir, "testdata/Client.java"},
		{"keytool", "-importcert", "-noprompt", "-alias", "test", "-file", pem, "-keystore", filepath.Join(dir, "ca.p12"), "-storetype", "PKCS12", "-storepass", "changeit"},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "goclient"), agenttest.Program(t, goclient), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.pem", "ca.p12", "Client.class", "Client$1.class", "goclient"} {
		content, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // of ours
		if err == nil {
			err = box.WriteFile(t.Context(), name, 0o755, int64(len(content)), bytes.NewReader(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestClients(t *testing.T) {
	ledger.Check(t)
	needClients(t)
	agent := agenttest.Bytes(t)
	w := elsewhere(t, native.New(native.Options{StateDir: t.TempDir(), Agent: func() ([]byte, error) { return agent, nil }}))
	w.clientsOf(t)
}

// The process driver has no network to put endpoints in: it refuses them, and says so.
func TestProcessRefusesEndpoints(t *testing.T) {
	ledger.Check(t)
	agent := agenttest.Bytes(t)
	w := elsewhere(t, process.New(process.Options{Dir: t.TempDir(), Agent: func() ([]byte, error) { return agent, nil }}))
	_, err := w.ask(t, sandbox.Spec{Language: "sh", Code: "true", Network: sandbox.Network{Endpoints: []sandbox.Endpoint{w.web}}})
	if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeNetworkUnsupported || e.Field != "network" || !strings.Contains(e.Message, "the process driver makes sandboxes without any network only") || e.Hint == "" {
		t.Errorf("%+v", err)
	}
}

// Without a network installers give up by themselves: npm would wait for longer than it
// has before it tried again.
func TestInstallersWithoutANetwork(t *testing.T) {
	ledger.Check(t)
	if _, err := os.Stat("/usr/bin/npm"); err != nil {
		drivertest.Missing(t, "npm is not here")
	}
	w := newWorld(t)
	for name, script := range map[string]string{"npm": "npm_config_fetch_retry_mintimeout=300000 npm_config_fetch_retry_maxtimeout=300000 npm install left-pad", "pip": "python3 -m pip install greet"} {
		if r := w.run(t, "sh", script); r.Status != sandbox.StatusFailed || r.Cause.Kind != sandbox.CauseExited {
			t.Errorf("%s: %s %+v\n%s%s", name, r.Status, r.Cause, r.Stdout, r.Stderr)
		}
	}
}
