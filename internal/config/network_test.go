package config

import (
	"strings"
	"testing"

	"pinfold/sandbox"
)

func TestNetwork(t *testing.T) {
	c := parse(t, "network:\n  allow: [A.test, '*.b.test:80,8080', 'db.test:5432=10.0.0.7', 'GET https://c.test/v1/**']\n")
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range Endpoints(c.Network.Allow) {
		all = append(all, e.String())
	}
	if got := strings.Join(all, " "); got != "a.test:443 *.b.test:80,8080 db.test:5432=10.0.0.7 GET https://c.test/v1/**" {
		t.Error(got)
	}
	if all := Endpoints(Default().Network.Allow); len(all) > 0 {
		t.Errorf("%v is allowed by default", all)
	}
	for _, wrong := range []string{"'*'", "'*.test'", "10.0.0.1:80", "'https://a.test/../b'", "'a.test:0'", "''"} {
		c, err := Parse("f.yaml", []byte("network:\n  allow: [a.test, "+wrong+"]\n"))
		if err == nil {
			err = c.Validate()
		}
		e := sandbox.AsError(err)
		if e == nil || e.Code != sandbox.CodeConfigInvalid || e.Field != "network.allow[1]" || e.Hint == "" || !strings.Contains(e.Message, ":2:") {
			t.Errorf("%s: %+v", wrong, e)
		}
	}
}

func TestNetworkSets(t *testing.T) {
	const sets = "network:\n  sets:\n    package indexes: [a.test, 'GET https://b.test/simple/**']\n    ours: ['*.c.test:80']\n"
	c := parse(t, sets+"  allow: ['@package indexes']\n  tenants:\n    team-a: ['@ours', d.test]\n    team-b: []\n    team-c:\n")
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	all := EndpointsByName(c.Network.Sets)
	if len(all) != 2 || len(all["package indexes"]) != 2 || all["package indexes"][1].String() != "GET https://b.test/simple/**" || all["ours"][0].String() != "*.c.test:80" {
		t.Errorf("%v", all)
	}
	of := EndpointsByName(c.Network.Tenants)
	if len(of) != 3 || len(of["team-a"]) != 2 || of["team-a"][0].Set != "ours" || of["team-b"] == nil || of["team-c"] == nil {
		t.Errorf("%v", of)
	}
	for field, text := range map[string]string{
		"network.allow[0]":             sets + "  allow: ['@nothing']\n",
		"network.allow[1]":             "network:\n  allow: [a.test, '@nothing']\n",
		"network.tenants.team-a[1]":    sets + "  tenants:\n    team-a: [a.test, '@nothing']\n",
		"network.tenants.Team":         sets + "  tenants:\n    Team: [a.test]\n",
		"network.sets.x":               "network:\n  sets:\n    x: []\n",
		"network.sets.x[1]":            "network:\n  sets:\n    y: [a.test]\n    x: [a.test, '@y']\n",
		"network.sets.X":               "network:\n  sets:\n    X: [a.test]\n",
		"network.sets.x[0]":            "network:\n  sets:\n    x: ['a.test/']\n",
		"network.sets.package indexes": "network:\n  sets:\n    package indexes: [a.test]\n    package indexes: [b.test]\n",
	} {
		c, err := Parse("f.yaml", []byte(text))
		if err == nil {
			err = c.Validate()
		}
		e := sandbox.AsError(err)
		if e == nil || e.Code != sandbox.CodeConfigInvalid || e.Field != field || !strings.Contains(e.Message, "f.yaml:") {
			t.Errorf("%s: %+v", field, e)
		}
	}
	if _, err := Parse("f.yaml", []byte(sets+"  allow: [@ours]\n")); !strings.Contains(sandbox.AsError(err).Hint, `"@NAME"`) {
		t.Errorf("without quotes: %+v", sandbox.AsError(err))
	}
}
