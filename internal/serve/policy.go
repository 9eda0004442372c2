package serve

import (
	"pinfold/internal/config"
	"pinfold/internal/policy"
)

// rules is the policy that holds now, or nil.
func (s *server) rules() *policy.Policy { return s.policy.Load() }

// setPolicy takes over the policy of a configuration. After an error the one before holds.
func (s *server) setPolicy(c *config.Config) error {
	p, err := c.Policy.Ready()
	if err != nil {
		return err
	}
	was := s.policy.Swap(p)
	if p != nil && (was == nil || was.Digest() != p.Digest()) {
		s.log.Info("the policy holds from now on", "rules", len(p.Rules()), "digest", p.Digest())
	}
	if p == nil && was != nil {
		s.log.Warn("there is no policy any more", "digest", was.Digest())
	}
	if s.changes != nil {
		s.changes.recordPolicy()
	}
	return nil
}
