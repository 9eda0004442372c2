package cli

import (
	"encoding/json"
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
	for _, wrong := range [][]string{{"--allow", "@"}, {"--allow", "@X"}, {"--secret", "token", "--allow", "a.test"}, {"--allow", "a.test", "--secret", "Token"}} {
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
	if got := words.say("", sandbox.Advise("%s", sandbox.Config("network.allow"))); got != "network.allow in the server's configuration" {
		t.Error(got)
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
