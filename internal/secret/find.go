package secret

import (
	"context"
	"fmt"

	"pinfold/sandbox"
)

// KeyEnv is the variable with the key of a server's secrets, where no file has it.
const KeyEnv = "PINFOLD_SECRETS_KEY"

// Finder finds secrets with their values.
type Finder interface {
	// Find returns a tenant's secret of that name. One that is not there is an error of
	// code not_found.
	Find(ctx context.Context, tenant, name string) (Secret, error)
}

// NotFound says that there is no secret of that name.
func NotFound(name string) error {
	return (&sandbox.Error{Code: sandbox.CodeNotFound, Message: fmt.Sprintf("no secret \"%s\"", sandbox.SafeText(name, 60))}).
		WithHint("list those that there are with: pinfold secret list")
}

// NotKept says that there are no secrets at all.
func NotKept() error {
	return (&sandbox.Error{Code: sandbox.CodeSpecInvalid, Message: "no secrets are kept here"}).
		WithHint("a server keeps them, whose configuration names a key: secrets.key_file, or " + KeyEnv + " in its environment")
}

// Fixed are secrets of one program's own, by name, for every tenant.
type Fixed map[string]Secret

// Find implements Finder.
func (f Fixed) Find(_ context.Context, _, name string) (Secret, error) {
	if len(f) == 0 {
		return Secret{}, NotKept()
	}
	if s, ok := f[name]; ok {
		return s, nil
	}
	return Secret{}, NotFound(name)
}

// NewFixed checks secrets of a program's own.
func NewFixed(given map[string]sandbox.SetSecret) (Fixed, error) {
	f := Fixed{}
	for name, s := range given {
		if err := sandbox.CheckSecretName(name); err != nil {
			return nil, err
		}
		s, err := s.Canonical()
		if err != nil {
			return nil, err
		}
		f[name] = New(name, s)
	}
	return f, nil
}
