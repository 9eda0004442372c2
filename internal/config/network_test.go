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
	for _, e := range c.Network.Endpoints() {
		all = append(all, e.String())
	}
	if got := strings.Join(all, " "); got != "a.test:443 *.b.test:80,8080 db.test:5432=10.0.0.7 GET https://c.test/v1/**" {
		t.Error(got)
	}
	if all := Default().Network.Endpoints(); len(all) > 0 {
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
