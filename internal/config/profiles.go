package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"pinfold/internal/gate"
	"pinfold/internal/profile"
	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

// Profile is what requests can name in the place of saying it, and cannot widen.
type Profile struct {
	Description string   `yaml:"description"`
	Language    string   `yaml:"language"`
	Template    string   `yaml:"template"`
	Driver      string   `yaml:"driver"`
	Isolation   string   `yaml:"isolation"` // the least level
	Require     []string `yaml:"require"`
	Warm        []string `yaml:"warm"`
	// Packages are what programs can import, of the indexes.
	Packages ProfilePackages `yaml:"packages"`
	Limits   sandbox.Limits  `yaml:"limits"` // the most, and what a request gets that asks for none
	// Network are endpoints as Network.Allow has them, Secrets further ones by the name of
	// the secret that the host puts into requests there.
	Network       []string            `yaml:"network"`
	Secrets       map[string][]string `yaml:"secrets"`
	NetworkLimits NetworkLimits       `yaml:"network_limits"`
	Gate          sandbox.Gate        `yaml:"gate"` // as requests have it
	// Approval is why a person is asked about every run; empty: nobody is.
	Approval string `yaml:"approval"`
	// TTL is how long a living sandbox of the profile lives in all; 0: there are none.
	TTL     time.Duration `yaml:"ttl"`
	Tenants []string      `yaml:"tenants"` // whose it is; none: everybody's
}

// ProfilePackages are the packages of a profile, by kind.
type ProfilePackages struct {
	Python []string `yaml:"python"`
	NPM    []string `yaml:"npm"`
}

// NetworkLimits are those of a request.
type NetworkLimits struct {
	Connections int64 `yaml:"connections"`
	Requests    int64 `yaml:"requests"`
	BytesUp     Size  `yaml:"bytes_up"`
	BytesDown   Size  `yaml:"bytes_down"`
}

// gate decodes the gate of a request.
func (d *decoder) gate(n *yaml.Node, v reflect.Value, at string) error {
	plain, err := d.plain(n, at)
	if err != nil {
		return err
	}
	data, err := json.Marshal(plain)
	if err == nil {
		err = strictjson.Decode(data, v.Addr().Interface())
	}
	if err == nil {
		return nil
	}
	e := sandbox.AsError(err)
	field := at
	if e.Field != "" {
		field = join(at, e.Field)
	}
	return d.errorAt(n, field, "%s", e.Message).WithHint(e.Hint)
}

// plain is a node as encoding/json has its value.
func (d *decoder) plain(n *yaml.Node, at string) (value any, err error) {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0:
		return nil, d.errorAt(n, at, "anchors, aliases and tags are not accepted").WithHint("write the value out")
	case n.Kind == yaml.MappingNode:
		out := map[string]any{}
		err := d.pairs(n, at, func(key string, value *yaml.Node) (err error) {
			out[key], err = d.plain(value, join(at, sandbox.SafeText(key, 60)))
			return err
		})
		return out, err
	case n.Kind == yaml.SequenceNode:
		out := []any{}
		for i, item := range n.Content {
			one, err := d.plain(item, fmt.Sprintf("%s[%d]", at, i))
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		}
		return out, nil
	case n.ShortTag() == "!!str":
		return n.Value, nil
	}
	if err := n.Decode(&value); err != nil {
		return nil, d.errorAt(n, at, "cannot be read")
	}
	return value, nil
}

// ProfileSet are the profiles of a configuration. The error is about the first that is wrong.
func (c *Config) ProfileSet() (profile.Set, error) {
	set := profile.Set{}
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		p := c.Profiles[name]
		at := "profiles." + sandbox.SafeText(name, 60)
		network, err := c.profileNetwork(at, p)
		if err != nil {
			return nil, err
		}
		e := profile.Entry{Profile: sandbox.Profile{
			Name: name, Description: p.Description, Language: p.Language, Template: p.Template, Driver: p.Driver, Isolation: p.Isolation,
			Require: p.Require, Warm: p.Warm, Packages: sandbox.Packages(p.Packages), Limits: p.Limits, Network: network, Gate: &p.Gate, Approval: p.Approval, TTLMS: p.TTL.Milliseconds(),
		}, Tenants: p.Tenants}
		err = set.Add(e)
		if err == nil && !p.Gate.Empty() {
			_, err = gate.New(p.Gate, nil) // its schemas can be used
		}
		if err != nil {
			return nil, c.inProfile(at, sandbox.AsError(err))
		}
	}
	return set, nil
}

// profileNetwork is what a profile reaches, with the endpoints of sets in their place.
func (c *Config) profileNetwork(at string, p Profile) (sandbox.Network, error) {
	n := sandbox.Network{Limits: sandbox.NetworkLimits{
		Connections: p.NetworkLimits.Connections, Requests: p.NetworkLimits.Requests, BytesUp: int64(p.NetworkLimits.BytesUp), BytesDown: int64(p.NetworkLimits.BytesDown),
	}}
	if err := c.checkEndpoints(at+".network", p.Network, true); err != nil {
		return n, err
	}
	for _, e := range Endpoints(p.Network) {
		if e.Set != "" {
			n.Endpoints = append(n.Endpoints, Endpoints(c.Network.Sets[e.Set])...)
			continue
		}
		n.Endpoints = append(n.Endpoints, e)
	}
	for _, secret := range slices.Sorted(maps.Keys(p.Secrets)) {
		field := at + ".secrets." + sandbox.SafeText(secret, 60)
		if err := c.checkEndpoints(field, p.Secrets[secret], false); err != nil {
			return n, err
		}
		for _, e := range Endpoints(p.Secrets[secret]) {
			e.Secret = secret
			n.Endpoints = append(n.Endpoints, e)
		}
	}
	return n, nil
}

// inProfile says where an error of a profile stands in the file.
func (c *Config) inProfile(at string, e *sandbox.Error) error {
	field := join(at, e.Field)
	message := e.Message
	if rest, ofNetwork := strings.CutPrefix(e.Field, "network."); ofNetwork {
		field, message = at+".network", rest+": "+e.Message
		if limit, ok := strings.CutPrefix(rest, "limits."); ok {
			field, message = at+".network_limits."+limit, e.Message
		}
	}
	if e.Field == "" || !c.given(field) && c.given(at) {
		wrong := c.at(at, "%s", message).WithHint(e.Hint)
		return wrong.WithField(strings.TrimSuffix(field, "."))
	}
	return c.at(field, "%s", message).WithHint(e.Hint)
}

const maxProfiles = 100

func (c *Config) checkProfiles() error {
	if len(c.Profiles) > maxProfiles {
		return c.at("profiles", "more than %d profiles", maxProfiles)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		p := c.Profiles[name]
		at := "profiles." + sandbox.SafeText(name, 60)
		if err := c.checkLimitSet(at+".limits", p.Limits); err != nil {
			return err
		}
		full := p.Limits.WithDefaults()
		for _, info := range sandbox.LimitTable() {
			if most := c.Limits.Max.Get(info.Field); most != 0 && full.Get(info.Field) > most {
				return c.at(at+".limits."+info.Field, "%s is more than limits.max allows, %s",
					sandbox.FormatQuantity(full.Get(info.Field), info.Unit), sandbox.FormatQuantity(most, info.Unit)).WithHint("set it to at most that; what is not given has its default")
			}
		}
		if most := c.Limits.Max.CPUs; most != 0 && full.CPUs > most {
			return c.at(at+".limits.cpus", "%v is more than limits.max allows, %v", full.CPUs, most)
		}
		if p.TTL != 0 {
			if err := c.checkTime(at+".ttl", p.TTL, sandbox.MinTTLMS*time.Millisecond, c.TTL.Max); err != nil {
				return err
			}
		}
		for i, tenant := range p.Tenants {
			if !isWord(tenant) {
				return c.at(fmt.Sprintf("%s.tenants[%d]", at, i), "a tenant's name has 1 to 40 of a-z, 0-9 and -")
			}
		}
	}
	_, err := c.ProfileSet()
	return err
}
