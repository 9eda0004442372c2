package cli

import (
	"testing"

	"github.com/spf13/pflag"

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
	if _, err := parse("--allow", "*.a.test"); err == nil {
		t.Error("a wildcard is taken")
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
	_ = set.Set("allow", "a.test")
	if got := words.say("", sandbox.Advise("%s", sandbox.Omit("network"))); got != "leave --allow out" {
		t.Error(got)
	}
	if got := words.translate(&sandbox.Error{Field: "network.endpoints[0].host", Message: "no"}).Message; got != "--allow: no" {
		t.Error(got)
	}
}
