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
	if len(made.Endpoints[0].Ports) != 2 {
		t.Error("what was there is changed")
	}
}
