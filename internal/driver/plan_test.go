package driver

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

var testReport = Report{
	Level:  sandbox.LevelNamespace,
	Driver: "test", SwitchUser: true, MountsAsSelf: true,
	Findings: []Finding{
		{Feature: "seccomp", Answer: Yes},
		{Feature: "landlock:7", Answer: Yes},
		{Feature: "disk", Answer: Yes},
		{Feature: "memory", Answer: No, Because: "no cgroup", Fix: sandbox.HostCommand("sudo make one")},
		{Feature: "cpus", Answer: Unknown, Because: "odd answer", Fix: sandbox.Text("look again")},
		{Feature: "io", Answer: No, Because: "there is no disk"},
	},
}

var testTemplate = image.Template{Name: sandbox.TemplateHost, ID: sandbox.TemplateHost, User: image.Usual()}

func TestMakePlanIsPure(t *testing.T) {
	spec := sandbox.Spec{Code: "x", Require: []string{"seccomp", "landlock:6"}}.WithDefaults()
	a, err := MakePlan(spec.Machine(), testTemplate, testReport, "id")
	if err != nil {
		t.Fatal(err)
	}
	b, err := MakePlan(spec.Machine(), testTemplate, testReport, "id")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(a, b); d != "" {
		t.Fatal(d)
	}
	want := sandbox.Isolation{
		Driver: "test", Enforced: []string{"seccomp", "landlock:7", "disk"},
		NotEnforced: []sandbox.Gap{
			{What: "memory", Why: "no cgroup", Fix: "sudo make one", Advice: sandbox.Advice{sandbox.HostCommand("sudo make one")}},
			{What: "cpus", Why: "could not tell: odd answer", Fix: "look again"},
			{What: "io", Why: "there is no disk"},
		},
	}
	if d := cmp.Diff(want, a.Posture); d != "" {
		t.Fatal(d)
	}
	if !a.SwitchUser || a.Limits != spec.Limits {
		t.Fatalf("%+v", a)
	}
}

func TestMakePlanRefuses(t *testing.T) {
	for required, says := range map[string]string{"memory": "no cgroup", "cpus": "could not tell", "landlock:9": "landlock:7", "network:none": "network:none"} {
		spec := sandbox.Spec{Code: "x", Require: []string{"seccomp", required}}.WithDefaults()
		var e *sandbox.Error
		if _, err := MakePlan(spec.Machine(), testTemplate, testReport, "id"); !errors.As(err, &e) || e.Code != sandbox.CodeRequirementUnmet ||
			e.Field != "require[1]" || !strings.Contains(e.Message, says) || e.Hint == "" {
			t.Errorf("%s: %+v", required, err)
		}
	}
	// What nothing changes has no fix, and the hint does not send anybody looking.
	_, err := MakePlan(sandbox.Spec{Code: "x", Require: []string{"io"}}.WithDefaults().Machine(), testTemplate, testReport, "id")
	if hint := sandbox.AsError(err).Hint; hint != "leave io out: nothing on this host changes that" {
		t.Errorf("io: hint %q", hint)
	}
	blocked := testReport
	blocked.Blocked = &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: "no"}
	if _, err := MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), testTemplate, blocked, "id"); !errors.Is(err, blocked.Blocked) {
		t.Errorf("%v", err)
	}
}

// A writable view of the host undoes the disk limit, and the plan says so.
func TestMakePlanWithMounts(t *testing.T) {
	spec := sandbox.Spec{Code: "x", Mounts: []sandbox.Mount{{Host: "/a", Guest: "/b", Writable: true}}}.WithDefaults()
	p, err := MakePlan(spec.Machine(), testTemplate, testReport, "id")
	if err != nil {
		t.Fatal(err)
	}
	if p.Enforces("disk") || p.SwitchUser {
		t.Fatalf("%+v", p)
	}
}

// The first driver that can do what is required makes the machine, not the first that
// there is.
func TestChoose(t *testing.T) {
	weak := Report{Driver: "weak", Level: sandbox.LevelNamespace, Findings: []Finding{{Feature: "seccomp", Answer: No, Because: "too old", Fix: sandbox.Text("upgrade")}}}
	strong := Report{Driver: "strong", Level: sandbox.LevelNamespace, Findings: []Finding{{Feature: "seccomp", Answer: Yes}}}
	blocked := Report{Driver: "blocked", Level: sandbox.LevelNamespace, Blocked: &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: "not here", Hint: "install it"}}
	for _, test := range []struct {
		name    string
		reports []Report
		require []string
		driver  string
		code    string
		says    []string
	}{
		{name: "nothing required", reports: []Report{blocked, weak, strong}, driver: "weak"},
		{name: "what the first cannot", reports: []Report{weak, strong}, require: []string{"seccomp"}, driver: "strong"},
		{
			name: "what none can", reports: []Report{blocked, weak}, require: []string{"seccomp"},
			code: sandbox.CodeRequirementUnmet, says: []string{"blocked: not here", "weak: seccomp", "too old", "install it"},
		},
		{name: "none works", reports: []Report{blocked, blocked}, code: sandbox.CodeDriverUnavailable, says: []string{"not here", "install it"}},
		{name: "the only one", reports: []Report{weak}, require: []string{"seccomp"}, code: sandbox.CodeRequirementUnmet, says: []string{"too old", "upgrade"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, err := Choose(sandbox.Spec{Require: test.require}.WithDefaults().Machine(), testTemplate, test.reports, "id")
			if test.code == "" {
				if err != nil || plan.Posture.Driver != test.driver {
					t.Fatalf("%q, %v", plan.Posture.Driver, err)
				}
				return
			}
			e := sandbox.AsError(err)
			if err == nil || e.Code != test.code {
				t.Fatalf("%+v", err)
			}
			for _, s := range test.says {
				if !strings.Contains(e.Message+" "+e.Hint, s) {
					t.Errorf("%q does not say %q", e.Message+" "+e.Hint, s)
				}
			}
			if test.require != nil && e.Field != "require[0]" {
				t.Errorf("field %q", e.Field)
			}
		})
	}
}

func TestDoorsOfDeclaredEndpoints(t *testing.T) {
	report := Report{Driver: "x", Level: sandbox.LevelNamespace, Findings: []Finding{{Feature: sandbox.FeatureNetworkNone, Answer: Yes}, {Feature: sandbox.FeatureNetwork, Answer: Yes}}}
	spec := sandbox.Spec{Code: "x"}.WithDefaults().Machine()
	plan, err := MakePlan(spec, image.Template{}, report, "a")
	if err != nil || len(plan.Doors) != 0 || !plan.Enforces(sandbox.FeatureNetworkNone) || slices.Contains(plan.Posture.Enforced, sandbox.FeatureNetwork) {
		t.Fatalf("%+v %v", plan, err)
	}
	spec.Network = sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "A.test", Ports: []int{443, 80}}, {Host: "b.test"}, {Host: "a.test", Ports: []int{81}}}}
	plan, err = MakePlan(spec, image.Template{}, report, "a")
	want := []Door{
		{Host: "a.test", At: netip.MustParseAddrPort("127.66.0.2:80")},
		{Host: "a.test", At: netip.MustParseAddrPort("127.66.0.2:81")},
		{Host: "a.test", At: netip.MustParseAddrPort("127.66.0.2:443")},
		{Host: "b.test", At: netip.MustParseAddrPort("127.66.0.3:443")},
	}
	if err != nil || !slices.Equal(plan.Doors, append(want, proxies()...)) || plan.Enforces(sandbox.FeatureNetworkNone) || !plan.Enforces(sandbox.FeatureNetwork) {
		t.Fatalf("%+v %v", plan, err)
	}
	spec.Network = sandbox.Network{Mode: sandbox.NetworkAsk}
	plan, err = MakePlan(spec, image.Template{}, report, "a")
	if err != nil || !slices.Equal(plan.Doors, proxies()) || len(plan.Names()) > 0 || plan.Enforces(sandbox.FeatureNetworkNone) || !plan.Enforces(sandbox.FeatureNetwork) {
		t.Errorf("what only asks: %+v %v", plan, err)
	}
	spec.Network = sandbox.Network{}
	spec.Network.Endpoints = []sandbox.Endpoint{{Host: "a.test", Methods: []string{"GET"}}, {Host: "b.test"}, {Host: "a.test", Methods: []string{"PUT"}, Paths: []string{"/a"}}}
	plan, err = MakePlan(spec, image.Template{}, report, "a")
	if want := append([]Door{want[2], want[3]}, proxies()...); err != nil || !slices.Equal(plan.Doors, want) || len(plan.Network.Endpoints) != 3 {
		t.Errorf("a host with two rules: %+v %v", plan, err)
	}
	spec.Require = []string{sandbox.FeatureMemory, sandbox.FeatureNetworkNone}
	if _, err := MakePlan(spec, image.Template{}, report, "a"); sandbox.AsError(err).Code != sandbox.CodeRequirementUnmet || sandbox.AsError(err).Field != "require[1]" {
		t.Errorf("%v", err)
	}
	spec.Require = nil
	other := Report{Driver: "y", Level: sandbox.LevelNamespace, Findings: report.Findings[:1]}
	if _, err := MakePlan(spec, image.Template{}, other, "a"); sandbox.AsError(err).Code != sandbox.CodeNetworkUnsupported || !strings.Contains(err.Error(), "y driver") {
		t.Errorf("%v", err)
	}
	if plan, err := Choose(spec, image.Template{}, []Report{other, report}, "a"); err != nil || plan.Posture.Driver != "x" {
		t.Errorf("%v %v", plan, err)
	}
	spec.Network.Endpoints[0].Host = "*.test"
	if _, err := MakePlan(spec, image.Template{}, report, "a"); sandbox.AsError(err).Field != "network.endpoints[0].host" {
		t.Errorf("%v", err)
	}
}

// A wildcard has doors, and is no name that a sandbox's list of hosts can have.
func TestWildcardsAreNoNames(t *testing.T) {
	report := Report{Driver: "x", Level: sandbox.LevelNamespace, Findings: []Finding{{Feature: sandbox.FeatureNetwork, Answer: Yes}}}
	spec := sandbox.Spec{Code: "x"}.WithDefaults().Machine()
	spec.Network = sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "*.a.test", Ports: []int{80, 443}}, {Host: "b.test"}}}
	plan, err := MakePlan(spec, image.Template{}, report, "a")
	want := []Door{
		{Host: "*.a.test", At: netip.MustParseAddrPort("127.66.0.2:80")},
		{Host: "*.a.test", At: netip.MustParseAddrPort("127.66.0.2:443")},
		{Host: "b.test", At: netip.MustParseAddrPort("127.66.0.3:443")},
	}
	if err != nil || !slices.Equal(plan.Doors, append(want, proxies()...)) {
		t.Fatalf("%+v %v", plan.Doors, err)
	}
	if names := plan.Names(); !slices.Equal(names, []image.Name{{Host: "b.test", At: netip.MustParseAddr("127.66.0.3")}}) {
		t.Errorf("%+v", names)
	}
}

// What a driver shows in place of a template is what the plan says.
func TestPlanOfAnotherTemplate(t *testing.T) {
	asked, shown := image.Template{ID: "asked"}, image.Template{ID: "shown", User: image.User{UID: 7}}
	spec := sandbox.Spec{Code: "x"}.WithDefaults().Machine()
	for _, test := range []struct {
		shows *image.Template
		want  string
	}{{nil, "asked"}, {&shown, "shown"}} {
		p, err := MakePlan(spec, asked, Report{Level: sandbox.LevelContainer, Template: test.shows}, "id")
		if err != nil || p.Template.ID != test.want || (p.User.UID == 7) != (test.want == "shown") {
			t.Errorf("%+v, %v", p.Template, err)
		}
	}
}
