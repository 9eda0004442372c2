package sandbox

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A set stands by itself, and is one text on the command line and in JSON.
func TestSetsAreReadInOneWay(t *testing.T) {
	set := Endpoint{Set: "package indexes"}
	if e, err := ParseEndpoint("@package indexes"); err != nil || !cmp.Equal(e, set) || e.String() != "@package indexes" {
		t.Errorf("%+v %v", e, err)
	}
	const text = `{"endpoints":[{"set":"package indexes"}]}`
	var n Network
	if err := json.Unmarshal([]byte(text), &n); err != nil || !cmp.Equal(n.Endpoints, []Endpoint{set}) {
		t.Errorf("%+v %v", n, err)
	}
	if b, err := json.Marshal(n); err != nil || string(b) != text {
		t.Errorf("%s %v", b, err)
	}
	n.Endpoints = append(n.Endpoints, Endpoint{Host: "A.test"}, set)
	n.Limits.Requests = 5
	got, err := n.Canonical()
	if err != nil || !cmp.Equal(got.Endpoints, []Endpoint{set, {Host: "a.test", Ports: []int{443}}}) || got.Limits.Requests != 5 {
		t.Errorf("%+v %v", got, err)
	}
	if again, err := got.Canonical(); err != nil || !cmp.Equal(again, got) {
		t.Errorf("read again it is %+v: %v", again, err)
	}
	for _, e := range []Endpoint{
		{Set: "x", Host: "a.test"},
		{Set: "x", Ports: []int{443}},
		{Set: "x", Address: "10.0.0.1"},
		{Set: "x", Methods: []string{"GET"}},
		{Set: "x", Paths: []string{"/**"}},
		{Set: "x", Secret: "s"},
		{},
	} {
		if _, err := (Network{Endpoints: []Endpoint{e}}).Canonical(); err == nil || !strings.HasPrefix(AsError(err).Field, "network.endpoints[0]") || AsError(err).Hint == "" {
			t.Errorf("%+v: %v", e, err)
		}
	}
	for _, name := range []string{"", " x", "x ", "X", "x@y", "x/y", "ä", "x\x00", "x\n", strings.Repeat("x", 61)} {
		if _, err := (Network{Endpoints: []Endpoint{{Set: name, Ports: nil}}}).Canonical(); err == nil {
			t.Errorf("%q is a name", name)
		}
		if _, err := ParseEndpoint("@" + name); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
}
