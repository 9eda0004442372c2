package serve

import (
	"strings"
	"testing"

	"pinfold/internal/config"
	"pinfold/sandbox"
)

// A profile that none of its tenants could use is refused at the start.
func TestProfilesThatNobodyCouldUse(t *testing.T) {
	const head = "network:\n  allow: ['GET https://a.test/v1/**']\n  tenants: {team: [b.test]}\nprofiles:\n  p:\n    language: python\n"
	for body, wrong := range map[string]bool{
		"": false,
		"    network: ['GET https://a.test/v1/x']":                      false,
		"    secrets: {key: ['GET https://a.test/v1/x']}":               false,
		"    network: [b.test]":                                         false, // for the team it is
		"    network: [b.test]\n    tenants: [team]":                    false,
		"    network: [b.test]\n    tenants: [other]":                   true,
		"    network: [a.test]":                                         true,
		"    network: ['GET https://a.test/v1/x']\n    tenants: [team]": true,
		"    network: [c.test]":                                         true,
	} {
		c, err := config.Parse("f.yaml", []byte(head+body+"\n"))
		if err == nil {
			err = c.Validate()
		}
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		set, err := readProfiles(t.Context(), c)
		e := sandbox.AsError(err)
		if (err != nil) != wrong || wrong && (e.Code != sandbox.CodeConfigInvalid || e.Field != "profiles.p" || e.Hint == "") || !wrong && len(set) != 1 {
			t.Errorf("%s: %v", body, err)
		}
		found := ""
		for _, f := range Check(t.Context(), c, Options{NewEngine: fakeEngine(nil)}) {
			if f.What == "profiles" && f.OK == wrong {
				t.Errorf("%s: %+v", body, f)
			}
			found += " " + f.What
		}
		if !strings.Contains(found, " profiles") {
			t.Errorf("the check is silent: %s", found)
		}
	}
}
