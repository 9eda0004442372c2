package serve

import (
	"os"
	"path/filepath"

	"pinfold/internal/secret"
	"pinfold/internal/secret/vault"
)

// secretsDir is in the state directory. The key is not.
const secretsDir = "secrets"

// openSecrets opens what tenants' secrets are kept in, where the operator has given a key.
func (s *server) openSecrets() (err error) {
	key := os.Getenv(secret.KeyEnv)
	_ = os.Unsetenv(secret.KeyEnv) // nothing that is started has it
	if file := s.config.Secrets.KeyFile; file != "" {
		if key, err = vault.ReadKey(file); err != nil {
			return err
		}
	}
	if key == "" {
		return nil
	}
	s.secrets, err = vault.Open(filepath.Join(s.store.Dir(), secretsDir), key)
	return err
}
