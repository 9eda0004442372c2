//go:build linux

package network

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

// ruled are programs that ask secure.test and web.test, at ports S and W, for a path P, with
// no certificate but what they find in the sandbox. Each prints what it got, or fails.
var ruled = []struct{ name, language, code string }{
	{"curl", "sh", `curl -sSf https://secure.test:S$P`},
	{"curl, HTTP/1.1", "sh", `curl -sSf --http1.1 https://secure.test:S$P`},
	{"curl, plain", "sh", `curl -sSf http://web.test:W$P`},
	{"wget", "sh", `wget -q -O - --ca-certificate=$SSL_CERT_FILE https://secure.test:S$P`},
	{"Python", "python", "import os, urllib.request\nprint(urllib.request.urlopen('https://secure.test:S' + os.environ['P']).read())"},
	{"Node", "javascript", "fetch('https://secure.test:S' + process.env.P).then(r => { if (!r.ok) throw r.status; return r.text() }).then(console.log)"},
	{"git", "sh", `git clone -q https://secure.test:S/repo.git && git -C repo log --format=%s && curl -sSf https://secure.test:S$P`},
	{"openssl", "sh", `printf 'GET %s HTTP/1.0\r\nHost: secure.test:S\r\n\r\n' $P | openssl s_client -quiet -verify_return_error -CAfile $SSL_CERT_FILE -servername secure.test -connect secure.test:S 2>/dev/null | grep reached`},
}

// Unmodified programs get what the rules allow, TLS or not, and are told what they do not:
// with the method and the path in the result and how to allow it.
func TestRules(t *testing.T) {
	ledger.Check(t)
	w := newWorld(t)
	w.runRuled(t, func(string) bool { return true })
	if os.Geteuid() == 0 {
		t.Run("as user", func(t *testing.T) { asuser.Rerun(t, "TestRules", []string{agenttest.Agent}, nil) })
	}
}

// runRuled runs those of the ruled programs of whose names has says yes.
func (w *world) runRuled(t *testing.T, has func(name string) bool) {
	for i := range 2 {
		e := []*sandbox.Endpoint{&w.web, &w.secure}[i]
		e.Methods, e.Paths = []string{"GET", "POST"}, []string{"/ok/*", "/repo.git/**"}
	}
	ask := func(t *testing.T, language, code, path string) *sandbox.Result {
		t.Helper()
		r, err := w.ask(t, sandbox.Spec{
			Language: language, Network: sandbox.Network{Endpoints: []sandbox.Endpoint{w.web, w.secure}}, Env: map[string]string{"P": path, "NO_COLOR": "1"},
			Code:   strings.NewReplacer(":W", fmt.Sprintf(":%d", w.web.Ports[0]), ":S", fmt.Sprintf(":%d", w.secure.Ports[0])).Replace(code),
			Limits: sandbox.Limits{MemoryBytes: 1 << 30, Processes: 256, WallTimeMS: 60_000, CPUTimeMS: 60_000},
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, p := range ruled {
		if !has(p.name) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			r := ask(t, p.language, p.code, "/ok/x")
			if r.Status != sandbox.StatusSucceeded || !strings.Contains(r.Stdout, "reached ") {
				t.Fatalf("allowed: %s %+v\n%s%s%+v", r.Status, r.Cause, r.Stdout, r.Stderr, r.Network)
			}
			if n := r.Network.Endpoints[0].Requests + r.Network.Endpoints[1].Requests; n < 1 || len(r.Network.Denied) > 0 {
				t.Errorf("allowed: %+v", r.Network)
			}
			r = ask(t, p.language, p.code, "/no/x")
			if r.Status != sandbox.StatusFailed || strings.Contains(r.Stdout, "reached ") {
				t.Fatalf("not allowed: %s %+v\n%s%s", r.Status, r.Cause, r.Stdout, r.Stderr)
			}
			if d := r.Network.Denied; len(d) != 1 || d[0].Reason != sandbox.DeniedRequest || d[0].Evidence != "GET /no/x" || !strings.Contains(d[0].Hint, `"methods": ["GET"], "paths": ["/no/x"]`) {
				t.Errorf("not allowed: %+v", d)
			}
			if !strings.Contains(r.Cause.Hint, "was denied (request: GET /no/x)") {
				t.Errorf("the hint is %q", r.Cause.Hint)
			}
		})
	}
}

// The sandbox's authority is there to be trusted, in the sandbox that has one; its key is
// not, and no other sandbox trusts it.
func TestAuthorityInside(t *testing.T) {
	ledger.Check(t)
	w := newWorld(t)
	w.secure.Methods = []string{http.MethodGet}
	const look = `cat /etc/pinfold/authority.pem; echo; env | grep /etc/pinfold/ | sort; grep -l PRIVATE /etc/pinfold/*; touch /etc/pinfold/x 2>/dev/null && echo writable
openssl x509 -in /etc/pinfold/authority.pem -noout -text 2>/dev/null | grep -A1 'Name Constraints'; exit 0`
	first := w.run(t, "sh", look, w.secure)
	for _, want := range []string{"BEGIN CERTIFICATE", "SSL_CERT_FILE=", "REQUESTS_CA_BUNDLE=", "GIT_SSL_CAINFO=", "CURL_CA_BUNDLE=", "Name Constraints: critical"} {
		if !strings.Contains(first.Stdout, want) {
			t.Errorf("%s is missing: %s%s", want, first.Stdout, first.Stderr)
		}
	}
	if strings.Contains(first.Stdout, "writable") || strings.Contains(first.Stdout, "grep:") || strings.Contains(first.Stdout, "/authority.pem\n/") {
		t.Error(first.Stdout)
	}
	second := w.run(t, "sh", look, w.secure)
	if first.Stdout == second.Stdout {
		t.Error("two sandboxes have one authority")
	}
	w.secure.Methods = nil
	if without := w.run(t, "sh", look, w.secure); strings.Contains(without.Stdout, "CERTIFICATE") || strings.Contains(without.Stdout, "/etc/pinfold") {
		t.Errorf("without rules: %s", without.Stdout)
	}
}
