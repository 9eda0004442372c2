package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
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
		"a.test":                {Host: "a.test"},
		"a.test:80,443":         {Host: "a.test", Ports: []int{80, 443}},
		"db:5432=10.0.0.7":      {Host: "db", Ports: []int{5432}, Address: "10.0.0.7"},
		"db=fd00::7":            {Host: "db", Address: "fd00::7"},
		"a.test:":               {},
		"a.test:0":              {},
		"a.test:65536":          {},
		"a.test:+80":            {},
		"a.test:80,":            {},
		"a.test=":               {},
		"ftp://a.test/x":        {},
		"GET a.test":            {},
		"GET  https://a.test":   {},
		"https://a.test/x":      {Host: "a.test", Ports: []int{443}, Paths: []string{"/x"}},
		"GET https://a.test/**": {Host: "a.test", Ports: []int{443}, Methods: []string{"GET"}, Paths: []string{"/**"}},
		"GET,HEAD http://a.test=10.0.0.7/a=b/*": {
			Host: "a.test", Ports: []int{80}, Address: "10.0.0.7", Methods: []string{"GET", "HEAD"}, Paths: []string{"/a=b/*"},
		},
		"POST https://a.test:80,8443": {Host: "a.test", Ports: []int{80, 8443}, Methods: []string{"POST"}},
		strings.Repeat("a", 1<<20):    {},
	} {
		got, err := ParseEndpoint(text)
		if (err == nil) != (want.Host != "") || err == nil && !cmp.Equal(got, want) {
			t.Errorf("%.60s: %+v %v", text, got, err)
		}
		if err == nil && got.String() != text {
			t.Errorf("%s is said as %s", text, got)
		}
	}
	if e, err := ParseEndpoint("https://a.test"); err != nil || e.Ruled() || e.String() != "a.test:443" {
		t.Errorf("%v %v", e, err)
	}
	e := Endpoint{Host: "a.test", Methods: []string{"GET"}, Paths: []string{"/a", "/b"}}
	if got := e.String(); got != "GET https://a.test/a and GET https://a.test/b" {
		t.Error(got)
	}
}

// What is near to an endpoint is told how it would be one.
func TestEndpointsThatAreNearlyRight(t *testing.T) {
	for text, want := range map[string]string{
		"https://a.test:8443/x/**=127.0.0.1": "https://HOST:PORT=ADDRESS/PATH",
		"a.test/repos":                       "https://HOST/PATH",
		"a.test,b.test":                      "each by itself",
		"GET,HEAD a.test":                    "'GET,HEAD https://a.test'",
		"*":                                  "two labels",
		"[::1]:80":                           "NAME:PORT=ADDRESS",
		"::1":                                "NAME:PORT=ADDRESS",
		"10.0.0.7:80":                        "NAME:PORT=ADDRESS",
		"db=10.0.0.7:5432":                   "HOST:5432=10.0.0.7",
		"a.test:80:90":                       "1 to 65535",
		"db=[fe80::1%\x1b[2J]:80":            "HOST:80=fe80::1",
		"GET a';reboot;'":                    "write HOST",
	} {
		e, err := ParseEndpoint(text)
		if err == nil {
			_, err = Network{Endpoints: []Endpoint{e}}.Canonical()
		}
		if e := AsError(err); e == nil || !strings.Contains(e.Hint, want) || SafeText(e.Hint, len(e.Hint)) != e.Hint {
			t.Errorf("%s: %+v", text, e)
		}
	}
}

// Rules of one host stay apart where together they would allow more.
func TestRulesAreReadInOneWay(t *testing.T) {
	e := func(ports []int, methods []string, paths ...string) Endpoint {
		return Endpoint{Host: "a.test", Ports: ports, Methods: methods, Paths: paths}
	}
	get, post := []string{"GET"}, []string{"POST"}
	for name, c := range map[string]struct{ given, want []Endpoint }{
		"paths of one method":   {[]Endpoint{e(nil, get, "/b", "/a"), e(nil, get, "/a", "/c")}, []Endpoint{e([]int{443}, get, "/a", "/b", "/c")}},
		"two methods":           {[]Endpoint{e(nil, get, "/a"), e(nil, post, "/b")}, []Endpoint{e([]int{443}, get, "/a"), e([]int{443}, post, "/b")}},
		"all paths and one":     {[]Endpoint{e(nil, get), e(nil, get, "/b")}, []Endpoint{e([]int{443}, get), e([]int{443}, get, "/b")}},
		"paths at other ports":  {[]Endpoint{e([]int{1}, get, "/a"), e([]int{2}, get, "/b")}, []Endpoint{e([]int{1}, get, "/a"), e([]int{2}, get, "/b")}},
		"one rule at two ports": {[]Endpoint{e([]int{2}, get, "/a"), e([]int{1}, get, "/a")}, []Endpoint{e([]int{1, 2}, get, "/a")}},
		"a port without rules":  {[]Endpoint{e([]int{1}, get), e([]int{2}, nil)}, []Endpoint{e([]int{1}, get), e([]int{2}, nil)}},
		"a secret apart": {
			[]Endpoint{{Host: "a.test", Secret: "x", Paths: []string{"/a"}}, e(nil, nil, "/b")},
			[]Endpoint{{Host: "a.test", Ports: []int{443}, Secret: "x", Paths: []string{"/a"}}, e([]int{443}, nil, "/b")},
		},
		"methods twice": {[]Endpoint{e(nil, []string{"POST", "GET", "POST"})}, []Endpoint{e([]int{443}, []string{"GET", "POST"})}},
	} {
		got, err := (Network{Endpoints: c.given}).Canonical()
		if diff := cmp.Diff(c.want, got.Endpoints); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
		if again, err := got.Canonical(); err != nil || !cmp.Equal(again, got) {
			t.Errorf("%s: read again it is %+v: %v", name, again, err)
		}
	}
	ruled := Network{Endpoints: []Endpoint{e(nil, get)}, Limits: NetworkLimits{Requests: 5}}
	if got, err := ruled.Canonical(); err != nil || got.Limits.Requests != 5 {
		t.Errorf("%+v %v", got, err)
	}
	for requests, code := range map[int64]string{0: "", 1_000_000_000: "", 1_000_000_001: CodeLimitInvalid, -1: CodeLimitInvalid} {
		ruled.Limits.Requests = requests
		got, err := ruled.Canonical()
		if code != "" && (AsError(err).Code != code || AsError(err).Field != "network.limits.requests") || code == "" && (err != nil || got.Limits.Requests == 0) {
			t.Errorf("%d: %+v %v", requests, got, err)
		}
	}
	many := make([]string, MaxPaths+1)
	for i := range many {
		many[i] = fmt.Sprintf("/%d", i)
	}
	for field, n := range map[string][]Endpoint{
		"network.endpoints[1]":            {e(nil, get), e(nil, nil)},
		"network.endpoints[0].methods[1]": {e(nil, []string{"GET", "get"})},
		"network.endpoints[0].methods[0]": {e(nil, []string{"CONNECT"})},
		"network.endpoints[0].paths":      {e(nil, nil, many...)},
		"network.endpoints[0].secret":     {{Host: "a.test", Secret: "A b"}},
	} {
		var err *Error
		if _, got := (Network{Endpoints: n}).Canonical(); !errors.As(got, &err) || err.Field != field {
			t.Errorf("%s: %v", field, got)
		}
	}
	for _, p := range []string{"", "a", "a/b", "/a?b", "/a#b", "/a%20b", "/a//b", "/../a", "/a/.", `/a\b`, "/a;b", "/**/a", "/a**", "/a\x00", "/a\xff", "/" + strings.Repeat("a", 512)} {
		if _, err := (Network{Endpoints: []Endpoint{e(nil, nil, p)}}).Canonical(); AsError(err).Field != "network.endpoints[0].paths[0]" || AsError(err).Hint == "" {
			t.Errorf("%.40q: %v", p, err)
		}
	}
}

func TestNetworkIsReadInOneWay(t *testing.T) {
	n := Network{Endpoints: []Endpoint{{Host: "B.test", Ports: []int{443, 80, 80}}, {Host: "a.test."}, {Host: "b.TEST", Ports: []int{81}}, {Host: "db", Address: "FD00:0::7"}}}
	got, err := n.Canonical()
	want := Network{
		Endpoints: []Endpoint{{Host: "b.test", Ports: []int{80, 81, 443}}, {Host: "a.test", Ports: []int{443}}, {Host: "db", Ports: []int{443}, Address: "fd00::7"}},
		Limits:    NetworkLimits{Connections: 64, BytesUp: 1 << 30, BytesDown: 8 << 30}, // nobody sees requests
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
		"network.endpoints[0].host":     {Endpoints: []Endpoint{{Host: "*.test"}}},
		"network.endpoints[1].host":     {Endpoints: []Endpoint{{Host: "a.test"}, {Host: "a b"}}},
		"network.endpoints[0].ports[1]": {Endpoints: []Endpoint{{Host: "a.test", Ports: []int{1, 65536}}}},
		"network.endpoints[0].ports[0]": {Endpoints: []Endpoint{{Host: "a.test", Ports: []int{-1}}}},
		"network.endpoints[1].address":  {Endpoints: []Endpoint{{Host: "a.test"}, {Host: "a.test", Address: "10.0.0.1"}}},
		"network.endpoints[0].address":  {Endpoints: []Endpoint{{Host: "a.test", Address: "fe80::1%eth0"}}},
		"network.limits.requests":       {Endpoints: []Endpoint{{Host: "a.test"}}, Limits: NetworkLimits{Requests: 1}},
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
		`"ask"`:                             {Mode: NetworkAsk},
		`{"endpoints":[{"host":"a.test"}]}`: {Endpoints: []Endpoint{{Host: "a.test"}}},
		`{"endpoints":[{"host":"db","ports":[5432],"address":"10.0.0.7"}],"limits":{"bytes_up":5}}`: {
			Endpoints: []Endpoint{{Host: "db", Ports: []int{5432}, Address: "10.0.0.7"}}, Limits: NetworkLimits{BytesUp: 5},
		},
		`{"endpoints":[{"host":"a.test","methods":["GET"],"paths":["/a/**"]}],"limits":{"requests":200}}`: {
			Endpoints: []Endpoint{{Host: "a.test", Methods: []string{"GET"}, Paths: []string{"/a/**"}}}, Limits: NetworkLimits{Requests: 200},
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
	for text, want := range map[string]string{
		`{"endpoints":[{"host":"a","port":1}]}`: `did you mean "ports"?`, `{"endpoints":[{"name":"a"}]}`: `did you mean "host"?`, `{"hosts":[]}`: `did you mean "endpoints"?`,
		`{"path":"/"}`: "the fields are endpoints, limits",
	} {
		if e := AsError(json.Unmarshal([]byte(text), new(Network))); e == nil || e.Hint != want {
			t.Errorf("%s: %+v", text, e)
		}
	}
	for text, field := range map[string]string{
		`1`: "network", `[]`: "network", `{"endpoint":[]}`: "network.endpoint", `{"endpoints":{}}`: "network.endpoints",
		`{"endpoints":["a.test"]}`:                            "network.endpoints[0]",
		`{"endpoints":[{"host":1}]}`:                          "network.endpoints[0].host",
		`{"endpoints":[{"host":"a","ports":[1.5]}]}`:          "network.endpoints[0].ports",
		`{"endpoints":[{"host":"a","port":1}]}`:               "network.endpoints[0].port",
		`{"endpoints":[{"host":"a","methods":"GET"}]}`:        "network.endpoints[0].methods",
		`{"endpoints":[{"host":"a","methods":[]}]}`:           "network.endpoints[0].methods",
		`{"endpoints":[{"host":"a","paths":[1]}]}`:            "network.endpoints[0].paths",
		`{"endpoints":[{"host":"a","secret":["x"]}]}`:         "network.endpoints[0].secret",
		`{"endpoints":[],"limits":{"requests":0}}`:            "network.limits.requests",
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
