package policy_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"pinfold/internal/egress"
	"pinfold/internal/policy"
	"pinfold/sandbox"
)

func made(t *testing.T, rules ...sandbox.PolicyRule) *policy.Policy {
	t.Helper()
	p, err := policy.New(sandbox.Policy{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func endpoints(t *testing.T, texts ...string) (all []sandbox.Endpoint) {
	t.Helper()
	for _, text := range texts {
		e, err := sandbox.ParseAllowed(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func saw(rule string, s sandbox.Severity) *policy.Seen {
	return policy.See([]sandbox.Finding{{Rule: rule, Severity: s}}, false)
}

// Each condition matches what it is for, and not its twin; all of a rule's have to be so.
func TestWhatARuleMatches(t *testing.T) {
	plain := policy.Facts{Kind: sandbox.PolicyRun, Tenant: "team-x", Key: "k1", Language: "python", Isolation: "namespace", Seen: policy.See(nil, false)}
	with := func(change func(*policy.Facts)) policy.Facts {
		f := plain
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		when    sandbox.PolicyWhen
		yes, no policy.Facts
	}{
		"severity": {
			sandbox.PolicyWhen{Severity: "warning"},
			with(func(f *policy.Facts) { f.Seen = saw("a", sandbox.SeverityDanger) }), with(func(f *policy.Facts) { f.Seen = saw("a", sandbox.SeverityNotice) }),
		},
		"finding": {
			sandbox.PolicyWhen{Findings: []string{"network-*"}},
			with(func(f *policy.Facts) { f.Seen = saw("network-call", sandbox.SeverityNotice) }), with(func(f *policy.Facts) { f.Seen = saw("process-start", sandbox.SeverityDanger) }),
		},
		"both of one finding": {
			sandbox.PolicyWhen{Severity: "danger", Findings: []string{"a"}},
			with(func(f *policy.Facts) { f.Seen = saw("a", sandbox.SeverityDanger) }),
			with(func(f *policy.Facts) {
				f.Seen = policy.See([]sandbox.Finding{{Rule: "a", Severity: sandbox.SeverityNotice}, {Rule: "b", Severity: sandbox.SeverityDanger}}, false)
			}),
		},
		"unread": {sandbox.PolicyWhen{Severity: "danger", Findings: []string{"a"}}, with(func(f *policy.Facts) { f.Seen = policy.See(nil, true) }), plain},
		"kind":   {sandbox.PolicyWhen{Kinds: []string{"run"}}, plain, with(func(f *policy.Facts) { f.Kind = sandbox.PolicyLiving })},
		"tenant": {sandbox.PolicyWhen{Tenants: []string{"a", "team-x"}}, plain, with(func(f *policy.Facts) { f.Tenant = "team-y" })},
		"key":    {sandbox.PolicyWhen{Keys: []string{"k1"}}, plain, with(func(f *policy.Facts) { f.Key = "k2" })},
		"language": {
			sandbox.PolicyWhen{Languages: []string{"python"}}, plain, with(func(f *policy.Facts) { f.Language = "sh" }),
		},
		"any network": {sandbox.PolicyWhen{Network: "any"}, with(func(f *policy.Facts) { f.Endpoints = endpoints(t, "a.org") }), plain},
		"no network":  {sandbox.PolicyWhen{Network: "none"}, plain, with(func(f *policy.Facts) { f.Endpoints = endpoints(t, "a.org") })},
		"host": {
			sandbox.PolicyWhen{Hosts: []string{"*.corp.example"}},
			with(func(f *policy.Facts) { f.Endpoints = endpoints(t, "a.org", "db.corp.example") }), with(func(f *policy.Facts) { f.Endpoints = endpoints(t, "corp.example.org") }),
		},
		"host that a wildcard may reach": {
			sandbox.PolicyWhen{Hosts: []string{"db.corp.example"}},
			with(func(f *policy.Facts) { f.Endpoints = endpoints(t, "*.corp.example") }), with(func(f *policy.Facts) { f.Endpoints = endpoints(t, "*.other.example") }),
		},
		"mounts":    {sandbox.PolicyWhen{Data: []string{"mounts"}}, with(func(f *policy.Facts) { f.Mounts = true }), with(func(f *policy.Facts) { f.Inputs = true })},
		"inputs":    {sandbox.PolicyWhen{Data: []string{"inputs"}}, with(func(f *policy.Facts) { f.Inputs = true }), with(func(f *policy.Facts) { f.Mounts = true })},
		"isolation": {sandbox.PolicyWhen{Isolation: []string{"process", "namespace"}}, plain, with(func(f *policy.Facts) { f.Isolation = "vm" })},
		"profile":   {sandbox.PolicyWhen{Profiles: []string{"plot"}}, with(func(f *policy.Facts) { f.Profile = "plot" }), plain},
		"all of it": {sandbox.PolicyWhen{Tenants: []string{"team-x"}, Languages: []string{"python"}}, plain, with(func(f *policy.Facts) { f.Language = "sh" })},
	} {
		p := made(t, sandbox.PolicyRule{ID: "r", When: c.when, Then: sandbox.PolicyThen{Refuse: "so"}})
		if o := p.Judge(c.yes, policy.Asked{}); o.Refused == nil || o.Refused.Code != sandbox.CodePolicyRefused || len(o.Result.Rules[0].Because) == 0 {
			t.Errorf("%s does not match: %+v", name, o.Result)
		}
		if o := p.Judge(c.no, policy.Asked{}); o.Refused != nil || len(o.Result.Rules) != 0 {
			t.Errorf("%s matches its twin: %+v", name, o.Result)
		}
	}
}

// A language has several names, and a rule is about it by each of them. What will run in a
// living sandbox nobody knows: it is of every language.
func TestRulesAboutLanguages(t *testing.T) {
	p := made(t, sandbox.PolicyRule{ID: "r", When: sandbox.PolicyWhen{Languages: []string{"Python3", "bash"}, Severity: "danger"}, Then: sandbox.PolicyThen{Refuse: "so"}})
	for name, c := range map[string]struct {
		f       policy.Facts
		refused bool
	}{
		"python":         {policy.Facts{Kind: sandbox.PolicyRun, Language: "python", Seen: policy.Unseen()}, true},
		"javascript":     {policy.Facts{Kind: sandbox.PolicyRun, Language: "javascript", Seen: policy.Unseen()}, false},
		"living sandbox": {policy.Facts{Kind: sandbox.PolicyLiving, Seen: policy.Unseen()}, true},
	} {
		if o := p.Judge(c.f, policy.Asked{}); o.Refused != nil != c.refused {
			t.Errorf("%s: %+v", name, o.Result)
		}
	}
}

// All rules that match apply in their order, each says what it changed, refusing wins, and
// rules look at what was asked for, not at what another made of it.
func TestRulesApplyTogether(t *testing.T) {
	p := made(
		t,
		sandbox.PolicyRule{ID: "container", Then: sandbox.PolicyThen{Isolation: "container", Limits: sandbox.Limits{WallTimeMS: 5000}}},
		sandbox.PolicyRule{ID: "vm", When: sandbox.PolicyWhen{Isolation: []string{"namespace"}}, Then: sandbox.PolicyThen{Isolation: "vm", Network: "none", Ask: "look"}},
		sandbox.PolicyRule{ID: "weaker", Then: sandbox.PolicyThen{Isolation: "process", Limits: sandbox.Limits{WallTimeMS: 60_000}, Allow: []string{"evil.example"}, Ask: "again"}},
	)
	asked := policy.Asked{Least: "namespace", Network: sandbox.Network{Endpoints: endpoints(t, "a.org")}, Limits: sandbox.Limits{}.WithDefaults()}
	o := p.Judge(policy.Facts{Isolation: "namespace"}, asked)
	if o.Asked.Isolation != "vm" || !o.Asked.Network.None() || o.Asked.Limits.WallTimeMS != 5000 || len(o.Asks) != 2 || o.Refused != nil {
		t.Errorf("%+v", o)
	}
	got, _ := json.Marshal(o.Result.Rules)
	const want = `[{"rule":"container","changes":[{"field":"isolation","from":"namespace","to":"container"},{"field":"limits.wall_time_ms","from":"30000","to":"5000"}]},` +
		`{"rule":"vm","because":["isolation namespace"],"changes":[{"field":"isolation","from":"container","to":"vm"},{"field":"network","from":"a.org:443","to":"none"}],"ask":"look"},` +
		`{"rule":"weaker","ask":"again"}]`
	if string(got) != want {
		t.Errorf("%s", got)
	}
	if o.Result.Limits.WallTimeMS != 5000 {
		t.Errorf("the most is %+v", o.Result.Limits)
	}
}

// Whatever the rules are, they make no request weaker.
func TestNoPolicyWeakens(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	hosts := []string{"a.org", "*.a.org", "b.a.org", "GET https://a.org/x/**", "https://a.org/x/y", "c.org:8443", "*.b.a.org"}
	levels := append([]string{""}, sandbox.IsolationLevels()...)
	narrowed := 0
	for range 5000 {
		var rules []sandbox.PolicyRule
		for i := range 1 + random.IntN(4) {
			then := sandbox.PolicyThen{Isolation: pick(levels...), Limits: sandbox.Limits{WallTimeMS: random.Int64N(50_000), CPUs: float64(1+random.IntN(3)) / 2}}
			if random.IntN(2) == 0 {
				then.Allow = []string{pick(hosts...)}
			} else if random.IntN(4) == 0 {
				then.Network = "none"
			}
			rules = append(rules, sandbox.PolicyRule{ID: string(rune('a' + i)), Then: then})
		}
		network, err := sandbox.Network{Endpoints: endpoints(t, pick(hosts...), pick("d.org", "c.org:8443"))}.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		asked := policy.Asked{Isolation: pick(levels...), Least: "namespace", Network: network, Limits: sandbox.Limits{}.WithDefaults()}
		if asked.Isolation != "" {
			asked.Least = asked.Isolation
		}
		got := made(t, rules...).Judge(policy.Facts{}, asked).Asked
		have := got.Isolation
		if have == "" {
			have = got.Least
		}
		if !sandbox.LevelAtLeast(have, asked.Least) || got.Limits.WallTimeMS > asked.Limits.WallTimeMS || got.Limits.CPUs > asked.Limits.CPUs || got.Limits.MemoryBytes != asked.Limits.MemoryBytes {
			t.Fatalf("%+v became %+v by %+v", asked, got, rules)
		}
		for _, e := range got.Network.Endpoints {
			narrowed++
			if !slices.ContainsFunc(network.Endpoints, func(was sandbox.Endpoint) bool {
				return (was.Host == e.Host || sandbox.MatchHost(was.Host, e.Host)) && len(egress.Within(e, []sandbox.Endpoint{was})) > 0
			}) {
				t.Fatalf("%v of %v became %v by %+v", e, network.Endpoints, got.Network.Endpoints, rules)
			}
		}
	}
	if narrowed < 1000 {
		t.Errorf("%d endpoints were left", narrowed)
	}
}

// A list that is too long to be shown whole is narrowed all the same.
func TestLongNetworkIsNarrowed(t *testing.T) {
	var all []string
	long := "/" + string(slices.Repeat([]byte("x"), 400))
	for i := range 10 {
		all = append(all, "https://a.org"+long+string(rune('a'+i)))
	}
	network, err := sandbox.Network{Endpoints: endpoints(t, append(all, "https://z.org/secret")...)}.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	o := made(t, sandbox.PolicyRule{ID: "r", Then: sandbox.PolicyThen{Allow: []string{"a.org"}}}).Judge(policy.Facts{}, policy.Asked{Network: network})
	for _, e := range o.Asked.Network.Endpoints {
		if e.Host == "z.org" {
			t.Errorf("%+v", o.Asked.Network)
		}
	}
}

// A scan is needed where a rule about findings could match, and nowhere else.
func TestWhoLooks(t *testing.T) {
	p := made(t, sandbox.PolicyRule{ID: "r", When: sandbox.PolicyWhen{Severity: "danger", Tenants: []string{"team-x"}}, Then: sandbox.PolicyThen{Ask: "look"}})
	x, y := policy.Facts{Tenant: "team-x"}, policy.Facts{Tenant: "team-y"}
	if !p.Looks(x) || p.Looks(y) || !p.MayAsk(x) || p.MayAsk(y) {
		t.Error("wrong")
	}
	var none *policy.Policy
	if none.Looks(x) || none.MayAsk(x) || none.Judge(x, policy.Asked{}).Result != nil {
		t.Error("no policy says something")
	}
}

// What is wrong with a policy is said with its field and what to do.
func TestWrongPolicies(t *testing.T) {
	refuse := sandbox.PolicyThen{Refuse: "so"}
	for field, p := range map[string]sandbox.Policy{
		"rules[0].id":                    {Rules: []sandbox.PolicyRule{{ID: "A B", Then: refuse}}},
		"rules[1].id":                    {Rules: []sandbox.PolicyRule{{ID: "a", Then: refuse}, {ID: "a", Then: refuse}}},
		"rules[0].then":                  {Rules: []sandbox.PolicyRule{{ID: "a"}}},
		"rules[0].when.severity":         {Rules: []sandbox.PolicyRule{{ID: "a", When: sandbox.PolicyWhen{Severity: "high"}, Then: refuse}}},
		"rules[0].when.network":          {Rules: []sandbox.PolicyRule{{ID: "a", When: sandbox.PolicyWhen{Network: "all"}, Then: refuse}}},
		"rules[0].when.hosts[0]":         {Rules: []sandbox.PolicyRule{{ID: "a", When: sandbox.PolicyWhen{Hosts: []string{"a b"}}, Then: refuse}}},
		"rules[0].when.data[0]":          {Rules: []sandbox.PolicyRule{{ID: "a", When: sandbox.PolicyWhen{Data: []string{"disk"}}, Then: refuse}}},
		"rules[0].when.isolation[0]":     {Rules: []sandbox.PolicyRule{{ID: "a", When: sandbox.PolicyWhen{Isolation: []string{"jail"}}, Then: refuse}}},
		"rules[0].when.tenants":          {Rules: []sandbox.PolicyRule{{ID: "a", When: sandbox.PolicyWhen{Tenants: []string{}}, Then: refuse}}},
		"rules[0].when.languages[1]":     {Rules: []sandbox.PolicyRule{{ID: "a", When: sandbox.PolicyWhen{Languages: []string{"python", "pyton"}}, Then: refuse}}},
		"rules[0].when.profiles[0]":      {Rules: []sandbox.PolicyRule{{ID: "a", When: sandbox.PolicyWhen{Profiles: []string{"No Name"}}, Then: refuse}}},
		"rules[0].then.isolation":        {Rules: []sandbox.PolicyRule{{ID: "a", Then: sandbox.PolicyThen{Isolation: "jail"}}}},
		"rules[0].then.network":          {Rules: []sandbox.PolicyRule{{ID: "a", Then: sandbox.PolicyThen{Network: "any"}}}},
		"rules[0].then.allow[0]":         {Rules: []sandbox.PolicyRule{{ID: "a", Then: sandbox.PolicyThen{Allow: []string{"@set"}}}}},
		"rules[0].then.limits.processes": {Rules: []sandbox.PolicyRule{{ID: "a", Then: sandbox.PolicyThen{Limits: sandbox.Limits{Processes: -1}}}}},
		"approval.pending":               {Approval: sandbox.PolicyApproval{Pending: -1}},
		"approval.timeout_ms":            {Approval: sandbox.PolicyApproval{TimeoutMS: -1}},
	} {
		_, err := policy.New(p)
		if e := sandbox.AsError(err); e == nil || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	p := sandbox.Policy{Rules: []sandbox.PolicyRule{{ID: "a", When: sandbox.PolicyWhen{Findings: []string{"proces-start"}}, Then: refuse}}}
	if e := sandbox.AsError(policy.CheckFindings(p, []string{"process-start", "network-call"})); e == nil || e.Field != "rules[0].when.findings[0]" || e.Hint == "" {
		t.Errorf("a rule of no scan: %v", e)
	}
	p.Rules[0].When.Findings = []string{"process-*", "network-call"}
	if err := policy.CheckFindings(p, []string{"process-start", "network-call"}); err != nil {
		t.Error(err)
	}
}

// What is kept of a run says what a policy would have done to it.
func TestTrial(t *testing.T) {
	p := made(
		t,
		sandbox.PolicyRule{ID: "danger", When: sandbox.PolicyWhen{Severity: "danger"}, Then: sandbox.PolicyThen{Refuse: "no"}},
		sandbox.PolicyRule{ID: "reach", When: sandbox.PolicyWhen{Network: "any"}, Then: sandbox.PolicyThen{Isolation: "vm"}},
		sandbox.PolicyRule{ID: "ask", When: sandbox.PolicyWhen{Tenants: []string{"team-y"}}, Then: sandbox.PolicyThen{Ask: "who"}},
	)
	var past []policy.Past
	for id, f := range map[string]policy.Facts{
		"run_1": {Tenant: "team-x", Isolation: "namespace", Seen: saw("a", sandbox.SeverityDanger)},
		"run_2": {Tenant: "team-x", Isolation: "namespace", Endpoints: endpoints(t, "a.org")},
		"run_3": {Tenant: "team-y", Isolation: "namespace", Seen: policy.See(nil, false)},
		"run_4": {Tenant: "team-x", Isolation: "namespace", Seen: policy.See(nil, false)},
	} {
		kept, err := f.Encode()
		if err != nil {
			t.Fatal(err)
		}
		seen, err := f.Seen.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var again policy.Facts
		if err := again.Decode(kept, seen); err != nil {
			t.Fatal(err)
		}
		past = append(past, policy.Past{ID: id, Facts: again})
	}
	r := p.Try(past)
	if r.Runs != 4 || r.Refused != 1 || r.Asked != 1 || r.Changed != 1 || r.Unscanned != 1 || len(r.Touched) != 3 || r.Rules[0].Matched != 1 || r.Rules[1].Matched != 1 || r.Rules[2].Matched != 1 {
		t.Errorf("%+v", r)
	}
}

// Facts of a run with a very long declaration are kept in bounded room, and wider.
func TestFactsAreBounded(t *testing.T) {
	f := policy.Facts{Tenant: "a"}
	for i := range 30 {
		e := sandbox.Endpoint{Host: string(rune('a'+i%26)) + ".org", Ports: []int{443}}
		for range 32 {
			e.Paths = append(e.Paths, "/"+string(slices.Repeat([]byte("x"), 500)))
		}
		f.Endpoints = append(f.Endpoints, e)
	}
	kept, err := f.Encode()
	var again policy.Facts
	if err != nil || len(kept) > 16<<10 || again.Decode(kept, nil) != nil || len(again.Endpoints) != 30 || again.Endpoints[0].Paths != nil {
		t.Errorf("%d bytes, %v", len(kept), err)
	}
}

// A rule that is added holds whatever it is about, also where the operator has none, and leaves
// the policy and its digest as they were.
func TestRuleOfAProfile(t *testing.T) {
	rule := &sandbox.PolicyRule{ID: "profile:p", Then: sandbox.PolicyThen{Ask: "why?"}}
	none, err := policy.New(sandbox.Policy{Approval: sandbox.PolicyApproval{TimeoutMS: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	some, err := policy.New(sandbox.Policy{Rules: []sandbox.PolicyRule{{ID: "first", When: sandbox.PolicyWhen{Tenants: []string{"a"}}, Then: sandbox.PolicyThen{Refuse: "no"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*policy.Policy{"no policy": nil, "no rules": none, "a rule": some} {
		if p.With(nil) != p {
			t.Errorf("%s: another policy without a rule", name)
		}
		more := p.With(rule)
		o := more.Judge(policy.Facts{Kind: sandbox.PolicyRun, Tenant: "b"}, policy.Asked{})
		if len(o.Asks) != 1 || o.Asks[0] != "why?" || o.Refused != nil || len(o.Result.Rules) != 1 || len(o.Result.Rules[0].Because) != 1 || !more.MayAsk(policy.Facts{}) || more.Looks(policy.Facts{}) {
			t.Errorf("%s: %+v", name, o)
		}
		if p != nil && (more.Digest() != p.Digest() || more.Timeout() != p.Timeout() || len(more.Rules()) != len(p.Rules())+1) {
			t.Errorf("%s: %s, %s", name, more.Digest(), p.Digest())
		}
		if o := p.Judge(policy.Facts{Kind: sandbox.PolicyRun, Tenant: "b"}, policy.Asked{}); len(o.Asks) != 0 || p.Empty() != (o.Result == nil) {
			t.Errorf("%s is another now: %+v", name, o)
		}
	}
	if o := some.With(rule).Judge(policy.Facts{Tenant: "a"}, policy.Asked{}); o.Refused == nil {
		t.Error("the operator's rule does not hold any more")
	}
	if more := (*policy.Policy)(nil).With(rule); more.Timeout().Minutes() != 10 || more.Pending() != sandbox.DefaultPending || more.Digest() == "" {
		t.Errorf("%+v", more)
	}
}
