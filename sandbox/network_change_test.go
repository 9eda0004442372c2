package sandbox

import (
	"encoding/json"
	"strings"
	"testing"
)

// A change says what can be reached after it; what it could mean in two ways is refused.
func TestNetworkChange(t *testing.T) {
	made := Network{Endpoints: []Endpoint{{Host: "a.test", Ports: []int{80, 443}}, {Host: "b.test", Ports: []int{443}, Paths: []string{"/x"}}, {Host: "gone.test", Ports: []int{443}}}}
	now := Network{Endpoints: made.Endpoints[:2]}
	for _, c := range []struct{ change, want, field string }{
		{`{"deny": ["a.test"]}`, "https://b.test/x", ""},
		{`{"deny": ["A.test.:80"]}`, "a.test:443 https://b.test/x", ""},
		{`{"deny": ["gone.test"]}`, "a.test:80,443 https://b.test/x", ""}, // and was before
		{`{"deny": ["a.test", "b.test"]}`, "none", ""},
		{`{"deny": ["b.test"], "allow": [{"host": "b.test", "paths": ["/y"]}]}`, "a.test:80,443 https://b.test/y", ""},
		{`{"network": "none"}`, "none", ""},
		{`{"network": {"endpoints": [{"host": "c.test"}]}}`, "c.test", ""},
		{`{"limits": {"connections": 1}}`, "a.test:80,443 https://b.test/x", ""},
		{`{}`, "", "network"},
		{`{"network": "none", "deny": ["a.test"]}`, "", "network"},
		{`{"network": "all"}`, "", "network"},
		{`{"deny": ["typo.test"]}`, "", "deny[0]"},
		{`{"deny": ["a.test", "a.test:81"]}`, "", "deny[1]"},
		{`{"deny": ["GET https://a.test/x"]}`, "", "deny[0]"},
		{`{"deny": ["@set"]}`, "", "deny[0]"},
		{`{"deny": []}`, "", "deny"},
		{`{"allow": [{"host": "a.test", "methods": []}]}`, "", "allow[0].methods"},
		{`{"limits": {"connections": 0}}`, "", "limits.connections"},
		{`{"denied": ["a.test"]}`, "", "denied"},
	} {
		var change NetworkChange
		err := json.Unmarshal([]byte(c.change), &change)
		var n Network
		if err == nil {
			n, err = change.Of(now, made)
		}
		if err == nil {
			_, err = n.Canonical()
		}
		if c.want == "" {
			if e := AsError(err); e == nil || e.Field != c.field || e.Hint == "" {
				t.Errorf("%s: %+v", c.change, e)
			}
			continue
		}
		var words []string
		for _, e := range n.Endpoints {
			words = append(words, e.String())
		}
		got := strings.Join(words, " ")
		if n.None() {
			got = "none"
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q %v", c.change, got, err)
		}
	}
	if len(made.Endpoints[0].Ports) != 2 || made.Endpoints[0].Address != "" {
		t.Error("what was there is changed")
	}
}

// Where a host is the operator says, and nobody else is told: what is added to it needs no
// address, and no error has one.
func TestHostsStayWhereTheyAre(t *testing.T) {
	now := Network{Endpoints: []Endpoint{{Host: "db.test", Ports: []int{443}, Address: "10.9.9.9", Paths: []string{"/x"}}}}
	for allow, want := range map[string]string{
		"https://DB.test/y":                   "https://db.test/x and https://db.test/y",
		"GET https://db.test/y":               "https://db.test/x GET https://db.test/y",
		"https://db.test=10.9.9.9/y":          "https://db.test/x and https://db.test/y",
		"https://db.test=10.0.0.8/y":          "",
		"https://db.test=::ffff:10.9.9.9/y":   "",
		"https://other.test=10.0.0.8/y":       "https://db.test/x https://other.test=10.0.0.8/y",
		"https://db.test=elsewhere.example/y": "",
	} {
		e, err := ParseEndpoint(allow)
		if err != nil {
			t.Fatal(err)
		}
		n, err := NetworkChange{Allow: []Endpoint{e}}.Of(now, now)
		if err == nil {
			n, err = n.Canonical()
		}
		var words []string
		for _, e := range n.Endpoints {
			words = append(words, e.String())
		}
		if got := strings.Join(words, " "); err == nil && got != want || err != nil && want != "" {
			t.Errorf("%s: %s %v", allow, got, err)
		}
		if e := AsError(err); err != nil && (e.Field != "allow[0].address" || e.Hint == "" || strings.Contains(e.Message+e.Hint, "=10.9.9.9")) {
			t.Errorf("%s: %+v", allow, e)
		}
	}
	for _, deny := range []string{"typo.test", "db.test:80"} {
		_, err := NetworkChange{Deny: []string{deny}}.Of(now, now)
		if e := AsError(err); e == nil || strings.Contains(e.Message+e.Hint, "10.9") || !strings.Contains(e.Hint, "db.test:443") {
			t.Errorf("%s: %+v", deny, e)
		}
	}
}
