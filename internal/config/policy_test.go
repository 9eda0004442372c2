package config

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"pinfold/internal/policy"
	"pinfold/sandbox"
)

// The example of docs/policy.md is right, and does what the page says.
func TestExampleOfThePolicyPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no example")
	}
	c := parse(t, string(block[1]))
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	p, err := c.Policy.Ready()
	if err != nil {
		t.Fatal(err)
	}
	if p.Timeout().Minutes() != 10 || p.Pending() != 20 || p.Own() {
		t.Errorf("%s, %d, %v", p.Timeout(), p.Pending(), p.Own())
	}
	endpoint := func(text string) sandbox.Network {
		e, err := sandbox.ParseAllowed(text)
		if err != nil {
			t.Fatal(err)
		}
		return sandbox.Network{Endpoints: []sandbox.Endpoint{e}}
	}
	saw := func(rule string, s sandbox.Severity) *policy.Seen {
		return policy.See([]sandbox.Finding{{Rule: rule, Severity: s}}, false)
	}
	asked := policy.Asked{Least: "namespace", Limits: sandbox.Limits{WallTimeMS: 600_000}}
	o := p.Judge(policy.Facts{Kind: "run", Isolation: "namespace", Seen: saw("process-start", sandbox.SeverityDanger)}, asked)
	if o.Asked.Isolation != "vm" || o.Asked.Limits.WallTimeMS != 60_000 || len(o.Asks) != 0 {
		t.Errorf("danger-in-vm: %+v", o)
	}
	o = p.Judge(policy.Facts{Kind: "run", Seen: saw("obfuscated-name", sandbox.SeverityWarning)}, asked)
	if len(o.Asks) != 1 || o.Changed {
		t.Errorf("hidden-code-asks: %+v", o)
	}
	asked.Network = endpoint("*.pythonhosted.org")
	o = p.Judge(policy.Facts{Kind: "run", Tenant: "team-x", Inputs: true, Endpoints: asked.Network.Endpoints, Seen: policy.See(nil, false)}, asked)
	if len(o.Asked.Network.Endpoints) != 1 || o.Asked.Network.Endpoints[0].Host != "files.pythonhosted.org" {
		t.Errorf("data-stays-here: %+v", o.Asked.Network)
	}
	asked.Network = endpoint("*.corp.example.com")
	o = p.Judge(policy.Facts{Kind: "run", Language: "sh", Endpoints: asked.Network.Endpoints, Seen: policy.See(nil, false)}, asked)
	if o.Refused == nil || !strings.Contains(o.Refused.Message, "no-internal-hosts refuses it: shell programs do not reach internal hosts") {
		t.Errorf("no-internal-hosts: %v", o.Refused)
	}
}

// What is wrong with a policy is said with its line, the field and what was probably meant.
func TestWrongPolicies(t *testing.T) {
	for text, want := range map[string][]string{
		"policy:\n  rules:\n    - id: a\n      when: {findings: [proces-start]}\n      then: {refuse: x}":                                 {"f.yaml:4:", "policy.rules[0].when.findings[0]", "process-start"},
		"policy:\n  rules:\n    - id: a\n      when: {severity: high}\n      then: {refuse: x}":                                           {"f.yaml:4:", "policy.rules[0].when.severity", "warning, danger"},
		"policy:\n  rules:\n    - id: a\n      then: {isolaton: vm}":                                                                      {"f.yaml:4:", "policy.rules[0].then.isolaton", "isolation"},
		"policy:\n  rules:\n    - id: a\n      then: {}":                                                                                  {"policy.rules[0].then", "does nothing"},
		"policy:\n  rules:\n    - then: {refuse: x}":                                                                                      {"policy.rules[0].id"},
		"policy:\n  rules:\n    - id: a\n      when: {tenants: []}\n      then: {refuse: x}":                                              {"policy.rules[0].when.tenants", "leave it out"},
		"policy:\n  rules:\n    - id: a\n      when: {languages: [pyton]}\n      then: {refuse: x}":                                       {"f.yaml:4:", "policy.rules[0].when.languages[0]", "python"},
		"policy:\n  rules:\n    - id: a\n      when: {tenants: [Team_X]}\n      then: {refuse: x}":                                        {"f.yaml:4:", "policy.rules[0].when.tenants[0]", "a-z, 0-9"},
		"profiles:\n  plot: {language: python}\npolicy:\n  rules:\n    - id: a\n      when: {profiles: [plott]}\n      then: {refuse: x}": {"f.yaml:6:", "policy.rules[0].when.profiles[0]", "plot"},
		"policy:\n  approval: {timeout: 0s}":                                                                                              {"policy.approval.timeout"},
		"policy:\n  approval: {pending: 0}":                                                                                               {"policy.approval.pending"},
	} {
		c, err := Parse("f.yaml", []byte(text))
		if err == nil {
			err = c.Validate()
		}
		if err == nil {
			t.Errorf("nothing is wrong with\n%s", text)
			continue
		}
		said := err.Error()
		if e := sandbox.AsError(err); e != nil {
			said += "\n" + e.Field + "\n" + e.Hint
		}
		for _, w := range want {
			if !strings.Contains(said, w) {
				t.Errorf("%q is missing in:\n%s", w, said)
			}
		}
	}
}
