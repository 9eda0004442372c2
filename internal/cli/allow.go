package cli

import (
	"encoding/json"
	"fmt"
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
	if s == sandbox.NetworkAsk {
		l.into.Mode = s
		return nil
	}
	e, err := sandbox.ParseEndpoint(s)
	if s == sandbox.NetworkNone { // a host of that name is none:443
		err = usageError("it lets programs reach a name, and none is no name").WithHint("--network none, which is the default")
	}
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
		return usageError("it belongs to the --allow before it, and there is none").WithHint("--allow https://HOST --secret NAME")
	}
	if err := sandbox.CheckSecretName(name); err != nil {
		return sandbox.AsError(err).WithField("network.endpoints.secret")
	}
	s.into.Endpoints[len(s.into.Endpoints)-1].Secret = name
	return nil
}

// String implements pflag.Value.
func (s endpointSecret) String() string { return "" }

// Type implements pflag.Value.
func (s endpointSecret) Type() string { return "NAME" }

// withFlags puts the flags that were given over what a request says: endpoints are
// added, and none takes the place of it all. Whoever asks what is tried keeps what is allowed.
func withFlags(n, flags sandbox.Network) sandbox.Network {
	if flags.Mode != "" && flags.Mode != sandbox.NetworkAsk {
		return flags
	}
	if len(flags.Endpoints) > 0 {
		n.Mode = ""
		n.Endpoints = append(slices.Clone(n.Endpoints), flags.Endpoints...)
	}
	if flags.Mode == sandbox.NetworkAsk && n.None() {
		n = sandbox.Network{Mode: sandbox.NetworkAsk}
	}
	return n
}

// allowFlags says a declaration in flags.
func allowFlags(f sandbox.Fix) string {
	var n sandbox.Network
	if json.Unmarshal(f.Value, &n) != nil {
		return "--network none"
	}
	return networkFlags(n)
}

// networkFlags is allowFlags of a declaration that was read.
func networkFlags(n sandbox.Network) string {
	switch {
	case n.Asks():
		return "--allow ask"
	case n.None():
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

// tried says what programs tried to reach and must not, and in which flags it would be allowed.
func tried(u *sandbox.NetworkUse) (lines []string) {
	var wanted sandbox.Network
	port := "" // of look-ups nobody knows it
	if u == nil || len(u.Denied) == 0 {
		return []string{"--allow ask: nothing was tried that is not allowed; attempts by address nobody hears of"}
	}
	for i, d := range u.Denied {
		e := sandbox.Endpoint{Host: d.Host}
		name := d.Host
		if d.Port != 0 {
			e.Ports, name = []int{d.Port}, fmt.Sprintf("%s:%d", d.Host, d.Port)
		}
		if i < maxNotes {
			lines = append(lines, fmt.Sprintf("denied: %s (%s)", sandbox.SafeText(name, maxMessage), sandbox.SafeText(string(d.Reason), 40)))
		}
		if with := (sandbox.Network{Endpoints: append(slices.Clone(wanted.Endpoints), e)}); d.Reason == sandbox.DeniedUndeclared {
			if with, err := with.Canonical(); err == nil {
				wanted = with
			}
			if d.Port == 0 {
				port = ", at port 443 where none is named (another: NAME:PORT)"
			}
		}
	}
	if more := len(u.Denied) - maxNotes + int(u.DeniedMore); len(u.Denied) > maxNotes || u.DeniedMore > 0 {
		lines = append(lines, fmt.Sprintf("denied: and %d more; --json has them", max(more, 1)))
	}
	if !wanted.None() {
		lines = append(lines, "what would allow it, if it may"+port+": "+sandbox.SafeText(networkFlags(shortest(wanted)), maxNetworkLine))
	}
	return lines
}

// shortest leaves out the ports that are meant anyway.
func shortest(n sandbox.Network) sandbox.Network {
	for i, e := range n.Endpoints {
		if slices.Equal(e.Ports, []int{sandbox.DefaultPort}) {
			n.Endpoints[i].Ports = nil
		}
	}
	return n
}
