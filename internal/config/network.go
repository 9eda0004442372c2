package config

import (
	"fmt"
	"maps"
	"slices"

	"pinfold/internal/packages"
	"pinfold/sandbox"
)

// Network says what sandboxes may reach. Endpoints are texts that sandbox.ParseAllowed
// reads.
type Network struct {
	// Sets are endpoints by the name of a set, which lists and requests name as @NAME.
	Sets map[string][]string `yaml:"sets"`
	// Allow are the endpoints that requests may declare; none: nothing.
	Allow []string `yaml:"allow"`
	// Tenants have lists of their own in the place of Allow.
	Tenants map[string][]string `yaml:"tenants"`
}

// Endpoints are those of a list of texts. The configuration must be valid.
func Endpoints(list []string) []sandbox.Endpoint {
	all := make([]sandbox.Endpoint, 0, len(list))
	for _, text := range list {
		if e, err := sandbox.ParseAllowed(text); err == nil {
			all = append(all, e)
		}
	}
	return all
}

// EndpointsByName are those of several lists.
func EndpointsByName(lists map[string][]string) map[string][]sandbox.Endpoint {
	all := map[string][]sandbox.Endpoint{}
	for name, list := range lists {
		all[name] = Endpoints(list)
	}
	return all
}

func (c *Config) checkNetwork() error {
	n := c.Network
	for _, name := range slices.Sorted(maps.Keys(n.Sets)) {
		field := "network.sets." + sandbox.SafeText(name, 60)
		if err := sandbox.CheckSetName(name); err != nil {
			return c.at(field, "%s", sandbox.AsError(err).Message).WithHint(sandbox.AsError(err).Hint)
		}
		if len(n.Sets[name]) == 0 {
			return c.at(field, "has no endpoints").WithHint("write some, or leave the set out")
		}
		if err := c.checkEndpoints(field, n.Sets[name], false); err != nil {
			return err
		}
	}
	if err := c.checkEndpoints("network.allow", n.Allow, true); err != nil {
		return err
	}
	for _, tenant := range slices.Sorted(maps.Keys(n.Tenants)) {
		field := "network.tenants." + sandbox.SafeText(tenant, 60)
		if !isWord(tenant) {
			return c.at(field, "a tenant's name has 1 to 40 of a-z, 0-9 and -")
		}
		if err := c.checkEndpoints(field, n.Tenants[tenant], true); err != nil {
			return err
		}
	}
	return nil
}

// checkPackages checks the indexes of packages.
func (c *Config) checkPackages() error {
	if err := c.checkNumbers(number{"packages.bytes", float64(c.Packages.Bytes), minPackages, maxMemory}); err != nil {
		return err
	}
	for kind, i := range map[string]PackageIndex{sandbox.PackagesPython: c.Packages.Indexes.Python, sandbox.PackagesNPM: c.Packages.Indexes.NPM} {
		at := "packages.indexes." + kind
		if i.URL == "" {
			if len(i.Endpoints) > 0 || i.Secret != "" {
				return c.at(at+".url", "is missing").WithHint("write where the index is, such as https://pypi.org/simple/")
			}
			continue
		}
		if _, err := (packages.Index{URL: i.URL, Endpoints: i.Endpoints, Secret: i.Secret}).Network(); err != nil {
			e := sandbox.AsError(err)
			return c.at(at+"."+e.Field, "%s", e.Message).WithHint(e.Hint)
		}
	}
	return nil
}

// minPackages holds a few small ones.
const minPackages = 64 << 20

// checkEndpoints checks a list of endpoints, which may name sets or not.
func (c *Config) checkEndpoints(field string, list []string, sets bool) error {
	for i, text := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		e, err := sandbox.ParseAllowed(text)
		if err != nil {
			return c.at(at, "%s", sandbox.AsError(err).Message).WithHint(sandbox.AsError(err).Hint)
		}
		_, there := c.Network.Sets[e.Set]
		switch {
		case e.Set == "":
		case !sets:
			return c.at(at, "a set has endpoints, and no sets").WithHint("write the endpoints of that set")
		case !there:
			return c.at(at, "there is no set \"%s\"", e.Set).WithHint("sets stand in network.sets, by their names")
		}
	}
	return nil
}
