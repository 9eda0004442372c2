package serve

import (
	"testing"

	"pinfold/internal/access"
	"pinfold/internal/engine/records"
)

// Whoever has a key of a tenant's may write into its sandboxes, also without the scope that
// builds templates. So builds have a tenant of which there can be no key.
func TestNobodyIsTheTenantOfBuilds(t *testing.T) {
	if access.CheckTenant(buildTenant) == nil {
		t.Errorf("a key can be of the tenant %s", buildTenant)
	}
	if err := access.CheckTenant(records.LocalTenant); err != nil {
		t.Errorf("control: %v", err)
	}
}
