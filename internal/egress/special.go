package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// special are the ranges that are not the public internet's: IANA's registries of
// special-purpose addresses (IPv4 and IPv6, as of 2025), multicast, and what clouds have put
// elsewhere. Predicates of Go's packages miss a good part of them.
var special = parsed(map[string]string{
	"0.0.0.0/8":         "this network",
	"10.0.0.0/8":        "private",
	"100.64.0.0/10":     "shared between carriers and clients; clouds' metadata at 100.100.100.200",
	"127.0.0.0/8":       "loopback",
	"168.63.129.16/32":  "a cloud's metadata",
	"169.254.0.0/16":    "link-local; clouds' metadata",
	"172.16.0.0/12":     "private",
	"192.0.0.0/24":      "protocol assignments",
	"192.0.2.0/24":      "documentation",
	"192.31.196.0/24":   "AS112",
	"192.52.193.0/24":   "AMT",
	"192.88.99.0/24":    "6to4 relays",
	"192.168.0.0/16":    "private",
	"192.175.48.0/24":   "AS112",
	"198.18.0.0/15":     "benchmarks",
	"198.51.100.0/24":   "documentation",
	"203.0.113.0/24":    "documentation",
	"224.0.0.0/4":       "multicast",
	"240.0.0.0/4":       "reserved, and broadcast",
	"2001::/23":         "protocol assignments, Teredo",
	"2001:db8::/32":     "documentation",
	"2002::/16":         "6to4",
	"2620:4f:8000::/48": "AS112",
	"3fff::/20":         "documentation",
	"2001:4:112::/48":   "AS112",
	"64:ff9b::/96":      "NAT64",
	"64:ff9b:1::/48":    "NAT64",
	"::/128":            "unspecified",
	"::1/128":           "loopback",
	"::ffff:0:0/96":     "an IPv4 address in another form",
	"100::/64":          "discarded",
	"5f00::/16":         "segment routing",
	"fc00::/7":          "private; clouds' metadata at fd00:ec2::254",
	"fe80::/10":         "link-local",
	"fec0::/10":         "site-local",
	"ff00::/8":          "multicast",
})

// global is all of IPv6 that is assigned to the public internet.
var global = netip.MustParsePrefix("2000::/3")

type span struct {
	prefix netip.Prefix
	what   string
}

func parsed(table map[string]string) (all []span) {
	for text, what := range table {
		all = append(all, span{netip.MustParsePrefix(text), what})
	}
	return all
}

// Public returns nil for an address of the public internet, and otherwise what it is.
func Public(a netip.Addr) error {
	if !a.IsValid() || a.Zone() != "" {
		return errors.New("it is no public address")
	}
	for _, s := range special {
		if s.prefix.Contains(a) {
			return fmt.Errorf("%s is not public (%s)", a, s.what)
		}
	}
	if a.Is4In6() || a.Is6() && !global.Contains(a) {
		return fmt.Errorf("%s is not public", a)
	}
	return nil
}

// own are the addresses of this machine's interfaces. A public one among them leads past
// every firewall to what listens here.
type own struct {
	mu    sync.Mutex
	until time.Time
	all   map[netip.Addr]bool
	err   error
}

// ownFor is how long they are believed.
const ownFor = 10 * time.Second

// has says whether an address is this machine's, or why that cannot be told.
func (o *own) has(a netip.Addr) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); now.After(o.until) {
		o.all, o.err, o.until = map[netip.Addr]bool{}, nil, now.Add(ownFor)
		var found []net.Addr
		if found, o.err = net.InterfaceAddrs(); o.err != nil {
			o.until = time.Time{}
		}
		for _, f := range found {
			if p, err := netip.ParsePrefix(f.String()); err == nil {
				o.all[p.Addr().Unmap()] = true
			}
		}
	}
	return o.all[a], o.err
}
