package egress

import (
	"errors"

	"pinfold/sandbox"
)

// A wildcard has one door for all its names: which of them a program means it says in TLS
// or HTTP, as it has to for every endpoint, and the host looks up and dials that one.

// standsFor is the declared host that stands for a name, which must be canonical: the name
// itself, or else the longest wildcard; "" where there is none.
func standsFor(name string, declared []sandbox.Endpoint) (host string) {
	for _, e := range declared {
		if e.Host == name {
			return name
		}
		if sandbox.IsPattern(e.Host) && len(e.Host) > len(host) && sandbox.MatchHost(e.Host, name) {
			host = e.Host
		}
	}
	return host
}

var (
	errNamesNone = errors.New("it says neither in TLS nor in HTTP which of the wildcard's names it means")
	errNames     = errors.New("wildcards have stood for as many names as they may in one sandbox")
)

// holdsHost holds the name that a program asks for against the endpoint. Behind a wildcard
// the first one is the connection's from then on. reason and said are those of a mismatch.
func (c *connection) holdsHost(name string, reason sandbox.DenialReason, said string) (sandbox.DenialReason, error) {
	if !sandbox.IsPattern(c.door.Host) {
		if name != c.door.Host {
			return reason, errors.New(said)
		}
		return "", nil
	}
	if host, err := sandbox.CanonicalHost(name); err != nil || host != name || standsFor(name, c.relay.made) != c.door.Host {
		return reason, errors.New(said)
	}
	if !c.relay.name(name) {
		return sandbox.DeniedNames, errNames
	}
	c.door.Host = name
	return "", nil
}

// name counts a name for which a wildcard stands, if there is room for it.
func (r *Relay) name(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.named[name] && len(r.named) >= sandbox.MaxNames {
		return false
	}
	r.named[name] = true
	return true
}
