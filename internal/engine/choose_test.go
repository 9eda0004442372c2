package engine

import (
	"slices"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/runs"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// A run, and a living sandbox, get the first driver that can do what they require.
func TestDriverByRequirement(t *testing.T) {
	host := hostFiles()
	template, err := image.Host(host)
	if err != nil {
		t.Fatal(err)
	}
	weak := fake.New(fake.Options{Name: "weak", Script: always(fake.Script{Program: exits(fake.Exit{})}), Report: func(r *driver.Report) {
		i := slices.IndexFunc(r.Findings, func(f driver.Finding) bool { return f.Feature == sandbox.FeatureSeccomp })
		r.Findings[i].Answer = driver.No
	}})
	strong := fake.New(fake.Options{Name: "strong", Script: always(fake.Script{Program: exits(fake.Exit{})})})
	e := New(Options{Drivers: []driver.Driver{weak, strong}, Template: func(string) (image.Template, error) { return template, nil }, Host: host})
	t.Cleanup(func() { _ = e.Close() })
	for _, test := range []struct {
		driver  string
		require []string
		want    string
	}{
		{"", nil, "weak"},
		{"", []string{sandbox.FeatureSeccomp}, "strong"},
		{"strong", nil, "strong"},
		{"weak", []string{sandbox.FeatureSeccomp}, ""},
	} {
		r, err := e.Run(t.Context(), runs.Request{Spec: sandbox.Spec{Language: "sh", Code: "scripted", Driver: test.driver, Require: test.require}})
		got := ""
		if err == nil {
			got = r.Isolation.Driver
		} else if sandbox.AsError(err).Code != sandbox.CodeRequirementUnmet {
			t.Errorf("%+v: %v", test, err)
		}
		if got != test.want {
			t.Errorf("%+v: a run by %q", test, got)
		}
		s, err := e.Create(t.Context(), "alice", sandbox.Create{Driver: test.driver, Require: test.require})
		if got = ""; err == nil {
			got = s.Info().Isolation.Driver
		}
		if got != test.want {
			t.Errorf("%+v: a sandbox by %q", test, got)
		}
	}
}
