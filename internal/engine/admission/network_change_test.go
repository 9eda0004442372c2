package admission

import (
	"reflect"
	"strings"
	"testing"

	"pinfold/sandbox"
)

func network(t *testing.T, words ...string) (n sandbox.Network) {
	t.Helper()
	for _, w := range words {
		e, err := sandbox.ParseEndpoint(w)
		if err != nil {
			t.Fatal(err)
		}
		n.Endpoints = append(n.Endpoints, e)
	}
	n, err := n.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A sandbox that is there can have again what it was made with, whatever is allowed now;
// what is beyond that only if it is allowed; and a narrowed key widens nothing beyond its
// list. Narrowing is always possible.
func TestWhatALivingSandboxMayReach(t *testing.T) {
	made := network(t, "a.test:80,443", "GET https://b.test/x/**", "db.test:1=10.0.0.1")
	policy := Network{Allow: allowed(t, "GET,POST https://b.test/x/**", "c.test", "db.test:1,2=10.0.0.2")} // a.test no more
	key := allowed(t, "GET https://b.test/x/y")
	for name, c := range map[string]struct {
		now, want []string
		keyed     bool
		wider     bool
		field     string // "": allowed
	}{
		"less":                              {[]string{"a.test:80,443"}, []string{"a.test"}, true, false, ""},
		"fewer requests":                    {[]string{"GET https://b.test/x/**"}, []string{"GET https://b.test/x/z"}, true, false, ""},
		"nothing":                           {[]string{"a.test:80,443"}, nil, true, false, ""},
		"the same":                          {[]string{"a.test:80,443"}, []string{"a.test:80,443"}, true, false, ""},
		"what it was made with":             {nil, []string{"a.test:80,443", "GET https://b.test/x/**", "db.test:1"}, false, true, ""},
		"with a key that may not":           {nil, []string{"a.test"}, true, true, "network.endpoints[0].host"},
		"with a key that may do some":       {nil, []string{"GET https://b.test/x/**"}, true, true, "network.endpoints[0].paths"},
		"with a key that may":               {nil, []string{"GET https://b.test/x/y"}, true, true, ""},
		"what is allowed now":               {nil, []string{"GET,POST https://b.test/x/**"}, false, true, ""},
		"with a key, what is allowed":       {[]string{"GET https://b.test/x/**"}, []string{"GET,POST https://b.test/x/y"}, true, true, "network.endpoints[0].methods"},
		"what is not":                       {nil, []string{"a.test:81"}, false, true, "network.endpoints[0].host"},
		"unread, what was read":             {nil, []string{"b.test"}, false, true, "network.endpoints[0].methods"},
		"at another address":                {nil, []string{"db.test:1=10.0.0.2"}, false, true, "network.endpoints[0].address"},
		"at another address, at a new port": {nil, []string{"db.test:2"}, false, true, "network.endpoints[0].address"},
	} {
		d := Declared{Made: made, Now: network(t, c.now...), Limits: made.Limits}
		if d.Now.None() {
			d.Now = network(t)
		}
		ctx := t.Context()
		if c.keyed {
			ctx = Narrow(ctx, key)
		}
		changed, wider, err := policy.Changed(ctx, "team-a", d, network(t, c.want...))
		if c.field != "" {
			if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeEndpointDenied || e.Field != c.field || e.Hint == "" {
				t.Errorf("%s: %+v", name, e)
			}
			continue
		}
		if err != nil || wider != c.wider || len(changed.Now.Endpoints) != len(c.want) {
			t.Errorf("%s: %+v wider %v: %v", name, changed.Now, wider, err)
		}
		for _, e := range changed.Now.Endpoints {
			if strings.HasPrefix(e.Host, "db.") && e.Address != "10.0.0.1" {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
}

// Limits that are not named stay as they are, also over a time in which nothing is declared.
func TestLimitsOfALivingSandboxStay(t *testing.T) {
	made := network(t, "a.test")
	made.Limits.BytesUp = 10
	d := NewDeclared(made)
	lower := network(t, "a.test")
	lower.Limits = sandbox.NetworkLimits{Connections: 2}
	d, wider, err := Network{}.Changed(t.Context(), "t", d, lower)
	if err != nil || wider || d.Now.Limits.BytesUp != 10 || d.Now.Limits.Connections != 2 {
		t.Fatalf("%+v %v %v", d, wider, err)
	}
	if d, wider, err = (Network{}).Changed(t.Context(), "t", d, sandbox.Network{}); err != nil || wider || !d.Now.None() {
		t.Fatalf("%+v %v %v", d, wider, err)
	}
	again := network(t, "a.test")
	again.Limits = sandbox.NetworkLimits{}
	if d, wider, err = (Network{}).Changed(t.Context(), "t", d, again); err != nil || !wider || d.Now.Limits.BytesUp != 10 || d.Now.Limits.Connections != 2 {
		t.Errorf("%+v %v %v", d, wider, err)
	}
}

// What was taken away comes back in no other sandbox like this one: also not below a wildcard,
// which here, but not there, is kept from it.
func TestNothingThatWasTakenAwayIsMadeAnew(t *testing.T) {
	for name, c := range map[string]struct{ made, now, want []string }{
		"all":                           {[]string{"a.test"}, nil, nil},
		"a port":                        {[]string{"a.test:80,443"}, []string{"a.test"}, []string{"a.test"}},
		"requests":                      {[]string{"GET https://a.test"}, []string{"GET https://a.test/x"}, []string{"GET https://a.test/x"}},
		"a name below a wildcard":       {[]string{"a.one.test", "*.one.test", "b.test"}, []string{"*.one.test", "b.test"}, []string{"b.test"}},
		"at another port":               {[]string{"a.one.test", "*.one.test:80"}, []string{"*.one.test:80"}, nil},
		"with rules, and only those":    {[]string{"a.one.test", "GET https://*.one.test/x", "b.test"}, []string{"GET https://*.one.test/x", "b.test"}, []string{"b.test"}},
		"a wildcard below a wildcard":   {[]string{"*.a.one.test", "*.one.test"}, []string{"*.one.test"}, nil},
		"what a longer one stands for":  {[]string{"x.a.one.test", "*.a.one.test", "*.one.test"}, []string{"*.a.one.test", "*.one.test"}, []string{"*.one.test"}},
		"a wildcard above":              {[]string{"a.one.test", "*.one.test"}, []string{"a.one.test"}, []string{"a.one.test"}},
		"a name that stays at one port": {[]string{"a.one.test:80,443", "*.one.test"}, []string{"a.one.test", "*.one.test"}, []string{"a.one.test", "*.one.test"}},
		"nothing":                       {[]string{"a.one.test", "*.one.test"}, []string{"a.one.test", "*.one.test"}, []string{"a.one.test", "*.one.test"}},
	} {
		made := network(t, c.made...)
		d := Declared{Made: made, Now: network(t, c.now...), Limits: made.Limits}
		if !d.Now.None() {
			d.Now.Limits.BytesUp = 7
		}
		got, err := d.Anew().Canonical()
		want := network(t, c.want...)
		if !want.None() {
			want.Limits.BytesUp = 7
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v: %v", name, got, want, err)
		}
	}
}
