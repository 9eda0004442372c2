package access

import (
	"context"
	"time"

	"pinfold/internal/engine/admission"
	"pinfold/sandbox"
)

// quotaWait bounds how long a start waits for the store to say what its tenant
// may have.
const quotaWait = 5 * time.Second

// SetQuota sets what a tenant may have, and makes the tenant if need be. Zero
// fields stand for the server's defaults.
func (s *Service) SetQuota(ctx context.Context, tenant string, q admission.Quota) error {
	if err := CheckTenant(tenant); err != nil {
		return err
	}
	if err := checkQuota(q); err != nil {
		return err
	}
	if err := s.options.Store.SaveTenant(ctx, Tenant{Name: tenant, CreatedAt: s.now().UTC().Round(0), Quota: q}); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.quotas, tenant)
	s.mu.Unlock()
	return nil
}

// Tenants returns all tenants by name.
func (s *Service) Tenants(ctx context.Context) ([]Tenant, error) {
	return s.options.Store.ListTenants(ctx)
}

// Quota returns what a tenant may have, with the defaults filled in. When the
// store cannot say, it is what it was the last time, and at first the default.
func (s *Service) Quota(tenant string) admission.Quota {
	s.mu.Lock()
	c, known := s.quotas[tenant]
	s.mu.Unlock()
	now := s.now()
	if known && fresh(c.until, now) {
		return c.value
	}
	ctx, cancel := context.WithTimeout(context.Background(), quotaWait)
	defer cancel()
	t, err := s.options.Store.FindTenant(ctx, tenant)
	if err != nil && sandbox.AsError(err).Code != sandbox.CodeNotFound {
		s.options.Log.Error("a tenant's quota could not be read; the last known one holds", "tenant", tenant, "error", err)
		if !known {
			c.value = s.options.Default
		}
	} else {
		c.value = t.Quota.Or(s.options.Default)
	}
	c.until = now.Add(cacheFor)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.quotas) >= cacheSize {
		clear(s.quotas)
	}
	s.quotas[tenant] = c
	return c.value
}
