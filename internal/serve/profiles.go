package serve

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"pinfold/internal/config"
	"pinfold/internal/profile"
	"pinfold/sandbox"
)

// readProfiles are the profiles of a configuration. One that reaches what none of its tenants
// may is an error: its manifest would promise what every request is refused.
func readProfiles(ctx context.Context, c *config.Config) (profile.Set, error) {
	set, err := c.ProfileSet()
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		p := set[name]
		tenants := p.Tenants
		if len(tenants) == 0 {
			tenants = append([]string{""}, slices.Sorted(maps.Keys(c.Network.Tenants))...) // the first is any other
		}
		var refused error
		usable := slices.ContainsFunc(tenants, func(tenant string) bool {
			_, err := networkPolicy(c.Network).Endpoints(ctx, tenant, p.Network)
			if refused == nil {
				refused = err
			}
			return err == nil
		})
		if !usable {
			e := sandbox.AsError(refused)
			return nil, &sandbox.Error{Code: sandbox.CodeConfigInvalid, Field: "profiles." + name, Message: fmt.Sprintf("it reaches what its tenants may not: %s", e.Message), Hint: e.Hint, Advice: e.Advice, Err: refused}
		}
	}
	return set, nil
}
