package cli

import (
	"encoding/json"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// allowFlag declares what a sandbox can reach.
const allowFlag = "allow"

// endpointList is that flag.
type endpointList struct{ into *sandbox.Network }

// Set implements pflag.Value.
func (l endpointList) Set(s string) error {
	e, err := sandbox.ParseEndpoint(s)
	if err == nil {
		_, err = sandbox.Network{Endpoints: []sandbox.Endpoint{e}}.Canonical()
	}
	if err != nil {
		return sandbox.AsError(err).WithField("network.endpoints")
	}
	l.into.Endpoints = append(l.into.Endpoints, e)
	return nil
}

// String implements pflag.Value.
func (l endpointList) String() string { return "" }

// Type implements pflag.Value.
func (l endpointList) Type() string { return "ENDPOINT" }

// secretFlag has the requests of the endpoint before it get a secret.
const secretFlag = "secret"

// endpointSecret is that flag.
type endpointSecret struct{ into *sandbox.Network }

// Set implements pflag.Value.
func (s endpointSecret) Set(name string) error {
	if len(s.into.Endpoints) == 0 {
		return usageError("--secret stands behind the --allow that it is for")
	}
	if err := sandbox.CheckSecretName(name); err != nil {
		return sandbox.AsError(err).WithField("network.endpoints")
	}
	s.into.Endpoints[len(s.into.Endpoints)-1].Secret = name
	return nil
}

// String implements pflag.Value.
func (s endpointSecret) String() string { return "" }

// Type implements pflag.Value.
func (s endpointSecret) Type() string { return "NAME" }

// withFlags puts the flags that were given over what a request says: endpoints are
// added, and a mode takes the place of it all.
func withFlags(n, flags sandbox.Network) sandbox.Network {
	if flags.Mode != "" {
		return flags
	}
	if len(flags.Endpoints) > 0 {
		n.Mode = ""
		n.Endpoints = append(slices.Clone(n.Endpoints), flags.Endpoints...)
	}
	return n
}

// allowFlags says a declaration in flags.
func allowFlags(f sandbox.Fix) string {
	var n sandbox.Network
	if json.Unmarshal(f.Value, &n) != nil || n.None() {
		return "--network none"
	}
	var words []string
	for _, e := range n.Endpoints {
		for _, w := range e.Words() {
			words = append(words, "--"+allowFlag+" "+shellQuote(w))
			if e.Secret != "" {
				words = append(words, "--"+secretFlag+" "+e.Secret)
			}
		}
	}
	return strings.Join(words, " ")
}

// network says how to allow what was denied in flags.
func (s flagWords) network(u *sandbox.NetworkUse) *sandbox.NetworkUse {
	if u == nil {
		return nil
	}
	c := *u
	c.Denied = slices.Clone(u.Denied)
	for i, d := range c.Denied {
		c.Denied[i].Hint = s.say(d.Hint, d.Advice)
	}
	return &c
}
