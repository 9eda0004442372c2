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

// A wildcard stands for names below at least two labels, and has no secret and no address.
func TestWildcards(t *testing.T) {
	for text, field := range map[string]string{
		"*.example.com": "", "*.a.example.co.uk": "", "*.corp.internal": "", "*.example.com.": "", "*.me.github.io": "",
		"*": "host", "*.": "host", "*.com": "host", "*.internal": "host", "*.xn--p1ai": "host",
		"*.*.example.com": "host", "a.*.example.com": "host", "*a.example.com": "host", "*.localhost": "host", "*.1.2": "host", "*.exam\x00ple.com": "host",
	} {
		n, err := (Network{Endpoints: []Endpoint{{Host: text}}}).Canonical()
		if field == "" && (err != nil || n.Endpoints[0].Host != strings.TrimSuffix(text, ".")) {
			t.Errorf("%q: %+v %v", text, n, err)
		}
		if field != "" && (err == nil || AsError(err).Field != "network.endpoints[0]."+field || AsError(err).Hint == "") {
			t.Errorf("%q: %+v %v", text, n, err)
		}
	}
	for field, e := range map[string]Endpoint{"address": {Host: "*.a.test", Address: "10.0.0.1"}, "secret": {Host: "*.a.test", Secret: "x"}} {
		if _, err := (Network{Endpoints: []Endpoint{e}}).Canonical(); AsError(err).Field != "network.endpoints[0]."+field {
			t.Errorf("%+v: %v", e, err)
		}
	}
}
