//go:build !lean

package cli

import (
	"pinfold/internal/config"
	"pinfold/internal/profile"
	"pinfold/sandbox"
)

// profiled is what a run of this host's asks for with the profile that it names, if it names
// one: those of a file. A server has its own. The rule is nil, or has a person asked.
func (a *app) profiled(f *runFlags, spec sandbox.Spec) (sandbox.Spec, *sandbox.ProfileRef, *sandbox.PolicyRule, error) {
	switch {
	case a.remote() && f.profiles != "":
		return spec, nil, nil, usageError("--profiles: a server has profiles of its own").WithHint("leave it out, or leave --server out to run here")
	case a.remote() || spec.Profile == "":
		return spec, nil, nil, nil
	case f.profiles == "":
		return spec, nil, nil, usageError("--profile %s: here is no server, and no file with profiles", sandbox.SafeText(spec.Profile, 80)).
			WithHint("name the file with --profiles FILE, which has profiles: as a server's configuration, or a server with --server")
	}
	set, err := readProfiles(f.profiles)
	if err != nil {
		return spec, nil, nil, err
	}
	rule := set.Rule(spec.Profile)
	spec, named, err := set.Run(profile.Anyone, spec)
	spec.Profile = "" // from here on it is a run like others
	return spec, named, rule, err
}

// readProfiles reads those of a server's configuration.
func readProfiles(file string) (profile.Set, error) {
	c, err := config.Load(file)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return nil, prefixed("--profiles", err)
	}
	return c.ProfileSet()
}
