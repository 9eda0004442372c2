package sandbox

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Names of which two programs could read two things, and how the one that may be is read.
func TestCanonicalHost(t *testing.T) {
	long := strings.Repeat("a.", 126) + "b" // 253 bytes
	for text, want := range map[string]string{
		"ok.test": "ok.test", "OK.TEST.": "ok.test", "a-1.b": "a-1.b", "xn--bcher-kva.example": "xn--bcher-kva.example", "db": "db",
		long: long, long + ".": long, "1.2.3.4.example": "1.2.3.4.example", "0x1.a": "0x1.a", strings.Repeat("a", 63): strings.Repeat("a", 63),

		"": "", ".": "", "..": "", "ok.test..": "", ".ok.test": "", "a..b": "",
		"evil\x00.ok.test": "", "evil%00.ok.test": "", "ok.test\r\n": "", "ok.t est": "", "ok\ttest": "", "ok.test@evil": "", "user:pw@ok.test": "",
		"ok.test:443": "", "ok.test/": "", "ok_test": "", "-a.test": "", "a-.test": "", "xn--.test": "", "xn--": "", "bücher.example": "", "ｏｋ.test": "", "ok。test": "",
		"1.2.3.4": "", "127.1": "", "0x7f000001": "", "017700000001": "", "2130706433": "", "0x7f.1": "", "1.0x": "", "a.1": "", "[::1]": "", "::1": "", "fe80::1%eth0": "", "::ffff:1.2.3.4": "",
		"localhost": "", "a.localhost": "", "LOCALHOST.": "", "sandbox": "", "ip6-localhost": "",
		"*.ok.test": "", "*": "", "a.*.test": "", "a*.test": "", "a." + long: "", strings.Repeat("a", 64): "", "\xff.test": "",
	} {
		got, err := CanonicalHost(text)
		if want == "" && (err == nil || AsError(err).Hint == "" || SafeText(AsError(err).Message, 1000) != AsError(err).Message) {
			t.Errorf("%q is %q: %v", text, got, err)
		}
		if want != "" && (got != want || err != nil) {
			t.Errorf("%q is %q: %v", text, got, err)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, host string
		match         bool
	}{
		{"*.ok.test", "a.ok.test", true},
		{"*.ok.test", "a.b.ok.test", true},
		{"*.ok.test", "ok.test", false},
		{"*.ok.test", "evilok.test", false},
		{"*.ok.test", ".ok.test", false},
		{"ok.test", "ok.test", true},
		{"ok.test", "a.ok.test", false},
	} {
		if got := MatchHost(c.pattern, c.host); got != c.match {
			t.Errorf("%s stands for %s: %v", c.pattern, c.host, got)
		}
	}
	for text, want := range map[string]string{"*.OK.test.": "*.ok.test", "ok.test": "ok.test", "*.test": "", "*.": "", "*": "", "*.*.ok.test": "", "*ok.test": "", "*.1.2": ""} {
		if got, err := CanonicalPattern(text); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%q is %q: %v", text, got, err)
		}
	}
}

func FuzzCanonicalHost(f *testing.F) {
	for _, s := range []string{"ok.test", "OK.TEST.", "evil\x00.ok.test", "xn--a", "*.ok.test", "0x7f.1", "a:b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		host, err := CanonicalHost(text)
		if err != nil {
			return
		}
		again, err := CanonicalHost(host)
		if err != nil || again != host || len(host) > 253 || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
			t.Fatalf("%q is %q, and then %q: %v", text, host, again, err)
		}
		if !strings.EqualFold(strings.TrimSuffix(text, "."), host) {
			t.Fatalf("%q became another name: %q", text, host)
		}
	})
}

func TestParseEndpoint(t *testing.T) {
	for text, want := range map[string]Endpoint{
		"a.test":                   {Host: "a.test"},
		"a.test:80,443":            {Host: "a.test", Ports: []int{80, 443}},
		"db:5432=10.0.0.7":         {Host: "db", Ports: []int{5432}, Address: "10.0.0.7"},
		"db=fd00::7":               {Host: "db", Address: "fd00::7"},
		"a.test:":                  {},
		"a.test:0":                 {},
		"a.test:65536":             {},
		"a.test:+80":               {},
		"a.test:80,":               {},
		"a.test=":                  {},
		"https://a.test/x":         {},
		"GET https://a.test/**":    {},
		strings.Repeat("a", 1<<20): {},
	} {
		got, err := ParseEndpoint(text)
		if (err == nil) != (want.Host != "") || err == nil && !cmp.Equal(got, want) {
			t.Errorf("%.60s: %+v %v", text, got, err)
		}
		if err == nil && got.String() != text {
			t.Errorf("%s is said as %s", text, got)
		}
	}
	if _, err := ParseEndpoint("https://API.github.com/repos"); !strings.Contains(AsError(err).Hint, "API.github.com") {
		t.Error(AsError(err).Hint)
	}
}

func TestNetworkIsReadInOneWay(t *testing.T) {
	n := Network{Endpoints: []Endpoint{{Host: "B.test", Ports: []int{443, 80, 80}}, {Host: "a.test."}, {Host: "b.TEST", Ports: []int{81}}, {Host: "db", Address: "FD00:0::7"}}}
	got, err := n.Canonical()
	want := Network{
		Endpoints: []Endpoint{{Host: "b.test", Ports: []int{80, 81, 443}}, {Host: "a.test", Ports: []int{443}}, {Host: "db", Ports: []int{443}, Address: "fd00::7"}},
		Limits:    DefaultNetworkLimits(),
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if again, err := got.Canonical(); err != nil || !cmp.Equal(again, got) {
		t.Errorf("read again it is %+v: %v", again, err)
	}
	if !slices.Equal(n.Endpoints[0].Ports, []int{443, 80, 80}) {
		t.Error("the caller's declaration was changed")
	}
}

func TestWrongNetworks(t *testing.T) {
	doors := Network{Endpoints: []Endpoint{{Host: "a.test"}}}
	for range MaxDoors {
		doors.Endpoints[0].Ports = append(doors.Endpoints[0].Ports, len(doors.Endpoints[0].Ports)+1)
	}
	if _, err := doors.Canonical(); err != nil {
		t.Fatal(err)
	}
	doors.Endpoints = append(doors.Endpoints, Endpoint{Host: "b.test"})
	many := Network{Endpoints: make([]Endpoint, MaxEndpoints+1)}
	for field, n := range map[string]Network{
		"network":                       {Mode: "host"},
		"network.limits":                {Limits: NetworkLimits{Connections: 1}},
		"network.endpoints":             many,
		"network.endpoints[0].host":     {Endpoints: []Endpoint{{Host: "*.a.test"}}},
		"network.endpoints[1].host":     {Endpoints: []Endpoint{{Host: "a.test"}, {Host: "a b"}}},
		"network.endpoints[0].ports[1]": {Endpoints: []Endpoint{{Host: "a.test", Ports: []int{1, 65536}}}},
		"network.endpoints[0].ports[0]": {Endpoints: []Endpoint{{Host: "a.test", Ports: []int{-1}}}},
		"network.endpoints[1].address":  {Endpoints: []Endpoint{{Host: "a.test"}, {Host: "a.test", Address: "10.0.0.1"}}},
		"network.endpoints[0].address":  {Endpoints: []Endpoint{{Host: "a.test", Address: "fe80::1%eth0"}}},
		"network.limits.bytes_up":       {Endpoints: []Endpoint{{Host: "a.test"}}, Limits: NetworkLimits{BytesUp: -1}},
		"network.limits.connections":    {Endpoints: []Endpoint{{Host: "a.test"}}, Limits: NetworkLimits{Connections: 1 << 20}},
	} {
		var e *Error
		if _, err := n.Canonical(); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := doors.Canonical(); AsError(err).Code != CodeTooLarge {
		t.Error(err)
	}
	for _, a := range []string{"::ffff:10.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "010.0.0.1", "10.1", "a.test", "10.0.0.1:80", "[::1]"} {
		if _, err := (Network{Endpoints: []Endpoint{{Host: "a.test", Address: a}}}).Canonical(); AsError(err).Field != "network.endpoints[0].address" {
			t.Errorf("%s: %v", a, err)
		}
	}
}

func TestNetworkJSON(t *testing.T) {
	for text, want := range map[string]Network{
		`"none"`:                            {Mode: NetworkNone},
		`{"endpoints":[{"host":"a.test"}]}`: {Endpoints: []Endpoint{{Host: "a.test"}}},
		`{"endpoints":[{"host":"db","ports":[5432],"address":"10.0.0.7"}],"limits":{"bytes_up":5}}`: {
			Endpoints: []Endpoint{{Host: "db", Ports: []int{5432}, Address: "10.0.0.7"}}, Limits: NetworkLimits{BytesUp: 5},
		},
		`{"endpoints":[]}`: {Endpoints: []Endpoint{}},
	} {
		var got Network
		if err := json.Unmarshal([]byte(text), &got); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s is %+v: %v", text, got, err)
		}
		if b, err := json.Marshal(got); err != nil || string(b) != text {
			t.Errorf("%s is written as %s: %v", text, b, err)
		}
	}
	if b, err := json.Marshal(Spec{Code: "x"}); err != nil || strings.Contains(string(b), "network") {
		t.Errorf("%s %v", b, err)
	}
	for text, field := range map[string]string{
		`1`: "network", `[]`: "network", `{"endpoint":[]}`: "network.endpoint", `{"endpoints":{}}`: "network.endpoints",
		`{"endpoints":["a.test"]}`:                            "network.endpoints[0]",
		`{"endpoints":[{"host":1}]}`:                          "network.endpoints[0].host",
		`{"endpoints":[{"host":"a","ports":[1.5]}]}`:          "network.endpoints[0].ports",
		`{"endpoints":[{"host":"a","port":1}]}`:               "network.endpoints[0].port",
		`{"endpoints":[{"host":"a","methods":["GET"]}]}`:      "network.endpoints[0].methods",
		`{"endpoints":[{"host":"a","paths":["/a"]}]}`:         "network.endpoints[0].paths",
		`{"endpoints":[{"host":"a","secret":"x"}]}`:           "network.endpoints[0].secret",
		`{"endpoints":[],"limits":{"requests":1}}`:            "network.limits.requests",
		`{"endpoints":[],"limits":{"bytes_up":0}}`:            "network.limits.bytes_up",
		`{"endpoints":[],"limits":{"connections":"many"}}`:    "network.limits.connections",
		`{"endpoints":[` + strings.Repeat(`{},`, 40) + `{}]}`: "network.endpoints",
	} {
		var n Network
		err := json.Unmarshal([]byte(text), &n)
		var e *Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

// Who wants at most what was declared has it where there is no network at all.
func TestNoNetworkIsAtMostTheDeclaredOne(t *testing.T) {
	if !Satisfies(FeatureNetworkNone, FeatureNetwork) || Satisfies(FeatureNetwork, FeatureNetworkNone) {
		t.Error("the wrong one is stronger")
	}
}
