package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"pinfold/internal/profile"
	"pinfold/sandbox"
)

type confined struct{}

// Confine has requests under a context name one of these profiles: those of the key by which
// they are made. A nil list confines nothing.
func Confine(ctx context.Context, profiles []string) context.Context {
	if profiles == nil {
		return ctx
	}
	return context.WithValue(ctx, confined{}, profiles)
}

// Run puts the profile that a run names over what it asks for. The reference is nil where it
// names none.
func (p Policy) Run(ctx context.Context, tenant string, s sandbox.Spec) (sandbox.Spec, *sandbox.ProfileRef, error) {
	if err := mayUse(ctx, s.Profile); err != nil {
		return s, nil, err
	}
	return p.Profiles.Run(p.whose(tenant), s)
}

// Create is Run for a living sandbox.
func (p Policy) Create(ctx context.Context, tenant string, c sandbox.Create) (sandbox.Create, *sandbox.ProfileRef, error) {
	if err := mayUse(ctx, c.Profile); err != nil {
		return c, nil, err
	}
	return p.Profiles.Create(p.whose(tenant), c)
}

// whose profiles a tenant may use.
func (p Policy) whose(tenant string) string {
	if p.Network.Own {
		return profile.Anyone
	}
	return tenant
}

// mayUse refuses what is not of the profiles to which a context is confined.
func mayUse(ctx context.Context, name string) error {
	only, confined := ctx.Value(confined{}).([]string)
	if !confined || slices.Contains(only, name) {
		return nil
	}
	err := &sandbox.Error{Code: sandbox.CodeProfileDenied, Field: "profile", Message: "this key is for some profiles only"}
	if name != "" {
		err.Message += fmt.Sprintf(", and %s is none of them", sandbox.SafeText(name, 80))
	}
	if len(only) == 0 {
		return err.WithHint("use another key: this one may use none")
	}
	return err.WithAdvice(sandbox.Advise("write %s; it may use %s", sandbox.Set("profile", only[0]), sandbox.Text(strings.Join(only, ", "))))
}
