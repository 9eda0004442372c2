package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

func TestAllow(t *testing.T) {
	parse := func(args ...string) (sandbox.Spec, error) {
		f := &runFlags{}
		set := pflag.NewFlagSet("run", pflag.ContinueOnError)
		f.bind(set)
		err := set.Parse(args)
		spec := sandbox.Spec{Network: sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "spec.test"}}}}
		f.override(&spec)
		return spec, err
	}
	spec, err := parse("--allow", "a.test", "--allow", "db:5432=10.0.0.7")
	if err != nil || len(spec.Network.Endpoints) != 3 || spec.Network.Endpoints[2].String() != "db:5432=10.0.0.7" {
		t.Errorf("%+v %v", spec.Network, err)
	}
	if spec, err := parse("--network", "none"); err != nil || !spec.Network.None() {
		t.Errorf("%+v %v", spec.Network, err)
	}
	spec, _ = parse("--network", "none", "--allow", "a.test")
	if _, err := spec.Network.Canonical(); sandbox.AsError(err).Field != "network" {
		t.Errorf("none, and an endpoint: %v", err)
	}
	spec, err = parse("--allow", "GET https://a.test/a/**", "--allow", "GET https://a.test/b")
	if n, _ := spec.Network.Canonical(); err != nil || len(n.Endpoints) != 2 || n.Endpoints[1].String() != "GET https://a.test/a/** and GET https://a.test/b" {
		t.Errorf("%+v %v", n, err)
	}
	spec, err = parse("--allow", "https://a.test", "--secret", "token", "--allow", "b.test")
	if e := spec.Network.Endpoints; err != nil || len(e) != 3 || e[1].Secret != "token" || e[2].Secret != "" {
		t.Errorf("%+v %v", e, err)
	}
	if spec, err := parse("--allow", "@package indexes"); err != nil || spec.Network.Endpoints[1].Set != "package indexes" {
		t.Errorf("%+v %v", spec.Network, err)
	}
	for _, wrong := range [][]string{{"--allow", "none"}, {"--allow", "@"}, {"--allow", "@X"}, {"--secret", "token", "--allow", "a.test"}, {"--allow", "a.test", "--secret", "Token"}} {
		if _, err := parse(wrong...); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
	if _, err := parse("--allow", "GET https://a.test/../b"); err == nil {
		t.Error("a path with two readings is taken")
	}
	if spec, err := parse("--allow", "*.a.test"); err != nil || spec.Network.Endpoints[1].Host != "*.a.test" {
		t.Errorf("%+v %v", spec.Network, err)
	}
	if _, err := parse("--allow", "*.com"); err == nil {
		t.Error("a wildcard for everybody's names is taken")
	}
}

// How to allow what was denied is said in flags that work.
func TestAllowIsSaidInFlags(t *testing.T) {
	f := &runFlags{}
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.bind(set)
	words := flagWords{set: set, command: "run"}
	fix := sandbox.Set("network", sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test", Ports: []int{80, 443}}, {Host: "b.test"}}})
	r := &sandbox.Result{Network: &sandbox.NetworkUse{Denied: []sandbox.Denial{sandbox.Denial{Host: "b.test"}.WithAdvice(sandbox.Advise("declare it: %s", fix))}}}
	if got := words.result(r).Network.Denied[0].Hint; got != "declare it: --allow a.test:80,443 --allow b.test" {
		t.Error(got)
	}
	if r.Network.Denied[0].Hint != `declare it: "network": {"endpoints": [{"host": "a.test", "ports": [80, 443]}, {"host": "b.test"}]}` {
		t.Error(r.Network.Denied[0].Hint)
	}
	rule := sandbox.Set("network", sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test", Methods: []string{"GET"}, Paths: []string{"/a/**", "/b"}}, {Host: "b.test", Secret: "token"}, {Set: "a set"}}})
	if got := words.say("", sandbox.Advise("%s", rule)); got != "--allow 'GET https://a.test/a/**' --allow 'GET https://a.test/b' --allow b.test --secret token --allow '@a set'" {
		t.Error(got)
	}
	_ = set.Set("allow", "a.test")
	if got := words.say("", sandbox.Advise("%s", sandbox.Omit("network"))); got != "leave --allow out" {
		t.Error(got)
	}
	for _, key := range []string{"network.allow", "packages.indexes.python", "profiles.calc.ttl"} { // flags ask, and only the operator allows
		if got := words.say("", sandbox.Advise("%s", sandbox.Config(key))); got != key+" in the server's configuration" {
			t.Error(got)
		}
	}
	if got := words.translate(&sandbox.Error{Field: "network.endpoints[0].host", Message: "no"}).Message; got != "--allow: no" {
		t.Error(got)
	}
}

// What --allow asks for is read by a server, and in a file for --spec, as strictly as all
// else: endpoints were once no field there.
func TestAllowGoesToAServer(t *testing.T) {
	want := sandbox.Spec{Language: "python", Code: "1", Network: sandbox.Network{
		Endpoints: []sandbox.Endpoint{{Host: "db", Ports: []int{5432}, Address: "10.0.0.7"}}, Limits: sandbox.NetworkLimits{Connections: 5},
	}}
	sent, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got sandbox.Spec
	if err := strictjson.Decode(sent, &got); err != nil {
		t.Fatalf("%s: %v", sent, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", sent, diff)
	}
	for text, field := range map[string]string{
		`{"network": {"endpoint": []}}`: "network.endpoint", `{"network": {"Mode": "none"}}`: "network.Mode",
		`{"network": {"endpoints": [{"host": "a", "port": 1}]}}`: "network.endpoints[0].port",
	} {
		if err := sandbox.AsError(strictjson.Decode([]byte(text), &got)); err == nil || err.Field != field {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// --allow ask allows nothing, keeps what is allowed, and the report has what was tried with the
// flags that would allow it.
func TestAllowAsk(t *testing.T) {
	parse := func(has sandbox.Network, args ...string) (sandbox.Network, error) {
		f := &runFlags{}
		set := pflag.NewFlagSet("run", pflag.ContinueOnError)
		f.bind(set)
		err := set.Parse(args)
		spec := sandbox.Spec{Network: has}
		f.override(&spec)
		if err == nil && f.network.Mode != sandbox.NetworkAsk {
			t.Errorf("%v asks nothing", args)
		}
		return spec.Network, err
	}
	one := sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test"}}}
	if n, err := parse(sandbox.Network{}, "--allow", "ask"); err != nil || !n.Asks() || networkFlags(n) != "--allow ask" {
		t.Errorf("%+v %v", n, err)
	}
	for _, args := range [][]string{{"--allow", "ask", "--allow", "a.test"}, {"--allow", "a.test", "--allow", "ask"}} {
		if n, err := parse(sandbox.Network{}, args...); err != nil || networkFlags(n) != "--allow a.test" {
			t.Errorf("%+v %v", n, err)
		}
	}
	if n, err := parse(one, "--allow", "ask"); err != nil || networkFlags(n) != "--allow a.test" {
		t.Errorf("%+v %v", n, err)
	}
	if n, err := parse(sandbox.Network{Mode: sandbox.NetworkNone}, "--allow", "ask"); err != nil || !n.Asks() {
		t.Errorf("%+v %v", n, err)
	}
	denied := func(host string, port int, reason sandbox.DenialReason) sandbox.Denial {
		return sandbox.Denial{Host: host, Port: port, Reason: reason, Count: 1}
	}
	got := tried(&sandbox.NetworkUse{Denied: []sandbox.Denial{
		denied("b.test", 0, sandbox.DeniedUndeclared), denied("b.test", 8443, sandbox.DeniedUndeclared), denied("a.test", 443, sandbox.DeniedSNI),
		denied("127.66.0.1", 3128, sandbox.DeniedMalformed), denied("'; rm -rf /\n\x1b[2J", 0, sandbox.DeniedUndeclared), denied("c.test", 0, sandbox.DeniedUndeclared),
	}})
	if last := got[len(got)-1]; last != "what would allow it, if it may, at port 443 where none is named (another: NAME:PORT): --allow b.test:443,8443 --allow c.test" {
		t.Errorf("%q", got)
	}
	if len(got) != 7 || got[1] != "denied: b.test:8443 (not_declared)" || strings.ContainsAny(got[4], "\n\x1b") {
		t.Errorf("%q", got)
	}
	many := &sandbox.NetworkUse{DeniedMore: 3}
	for i := range sandbox.MaxDenials {
		many.Denied = append(many.Denied, denied(fmt.Sprintf("n%d.test", i), 0, sandbox.DeniedUndeclared))
	}
	if got = tried(many); len(got) != maxNotes+2 || got[maxNotes] != "denied: and 57 more; --json has them" || strings.Count(got[maxNotes+1], "--allow") != sandbox.MaxEndpoints {
		t.Errorf("%q", got)
	}
	if got = tried(&sandbox.NetworkUse{}); len(got) != 1 || !strings.Contains(got[0], "nothing was tried") {
		t.Errorf("%q", got)
	}
}
