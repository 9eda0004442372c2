package profile

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/sandbox"
)

func endpoint(t *testing.T, text, secret string) sandbox.Endpoint {
	t.Helper()
	e, err := sandbox.ParseEndpoint(text)
	if err != nil {
		t.Fatal(err)
	}
	e.Secret = secret
	return e
}

// wide is a profile that fixes something of everything.
func wide(t *testing.T) sandbox.Profile {
	return sandbox.Profile{
		Name: "wide", Description: "Reads issues.", Language: "py", Isolation: sandbox.LevelNamespace, Require: []string{"seccomp"}, Warm: []string{"json"},
		Packages: sandbox.Packages{Python: []string{"Rich==13.9.4"}, NPM: []string{"left-pad@1.3.0"}},
		Limits:   sandbox.Limits{MemoryBytes: 64 << 20, WallTimeMS: 5000, CPUs: 2},
		Network: sandbox.Network{
			Endpoints: []sandbox.Endpoint{
				endpoint(t, "GET,HEAD https://api.test/repos/**", "key"), endpoint(t, "plain.test:80,443", ""), endpoint(t, "db.test:5432=10.0.0.7", ""), endpoint(t, "*.many.test", ""),
			},
			Limits: sandbox.NetworkLimits{Requests: 100, BytesUp: 1000},
		},
		Gate: &sandbox.Gate{
			Keys: sandbox.GateRedact, Schemas: []sandbox.GateSchema{{Of: sandbox.GateStdout, Schema: []byte(`{"type": "object"}`)}},
			Artifacts: &sandbox.GateArtifacts{Max: 3, MediaTypes: []string{"image/*"}},
		},
	}
}

func living() sandbox.Profile {
	return sandbox.Profile{Name: "living", Language: "bash", Driver: "process", TTLMS: 60_000, Limits: sandbox.Limits{WallTimeMS: 1000, OutputBytes: 100}}
}

func set(t *testing.T, all ...sandbox.Profile) Set {
	t.Helper()
	s := Set{}
	for _, p := range all {
		if err := s.Add(Entry{Profile: p}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// A request that says nothing gets what the profile has, and nothing is left open.
func TestProfileFillsARequest(t *testing.T) {
	s := set(t, wide(t), living())
	got, ref, err := s.Run("t", sandbox.Spec{Profile: "wide", Code: "x", Require: []string{"memory", "seccomp"}})
	if err != nil {
		t.Fatal(err)
	}
	full := sandbox.Limits{MemoryBytes: 64 << 20, WallTimeMS: 5000, CPUs: 2}.WithDefaults()
	if got.Language != "python" || got.Template != "host" || got.Isolation != "namespace" || got.Limits != full || !slices.Equal(got.Require, []string{"seccomp", "memory"}) ||
		!slices.Equal(got.Warm, []string{"json"}) || got.Packages.Python[0] != "rich==13.9.4" || len(got.Packages.NPM) != 1 || got.Gate.Keys != sandbox.GateRedact || len(got.Network.Endpoints) != 4 || got.Network.Limits.BytesUp != 1000 {
		t.Errorf("%+v", got)
	}
	if ref.Name != "wide" || !strings.HasPrefix(ref.Digest, "sha256:") || len(ref.Digest) != len("sha256:")+64 {
		t.Errorf("%+v", ref)
	}
	if again, err := got.Network.Canonical(); err != nil || !reflect.DeepEqual(again, got.Network) {
		t.Errorf("%+v %v", again, err)
	}
	c, ref, err := s.Create("t", sandbox.Create{Profile: "living"})
	if err != nil || c.Driver != "process" || c.Isolation != "" || c.Limits.WallTimeMS != 1000 || !c.Network.None() || ref.Name != "living" {
		t.Errorf("%+v %v", c, err)
	}
	if got, ref, err := s.Run("t", sandbox.Spec{Code: "x"}); err != nil || ref != nil || got.Language != "" {
		t.Errorf("without a profile: %+v %v", got, err)
	}
}

// What is narrower passes, and is what was asked for.
func TestProfileIsNarrowed(t *testing.T) {
	s := set(t, wide(t))
	for name, body := range map[string]string{
		"everything": `{"language": "python3", "template": "host", "driver": "qemu", "isolation": "vm", "limits": {"memory_bytes": 16777216, "cpus": 0.5}, "warm": ["json"], "gate": {"keys": "withhold", "formulas": "flag", "artifacts": {"max": 1, "media_types": ["image/png"]}}}`,
		"cold":       `{"cold": true}`,
		"packages":   `{"packages": {"python": ["RICH==13.9.4"]}, "network": "none"}`,
		"nothing":    `{"network": "none"}`,
		"rules":      `{"network": {"endpoints": [{"host": "API.test", "methods": ["GET"], "paths": ["/repos/x/**"], "secret": "key"}], "limits": {"requests": 1}}}`,
		"no secret":  `{"network": {"endpoints": [{"host": "api.test", "methods": ["GET"], "paths": ["/repos/x"]}]}}`,
		"ruled":      `{"network": {"endpoints": [{"host": "plain.test", "ports": [80], "methods": ["GET"]}], "limits": {"bytes_up": 10}}}`,
		"below":      `{"network": {"endpoints": [{"host": "x.many.test"}, {"host": "*.y.many.test"}]}}`,
		"address":    `{"network": {"endpoints": [{"host": "db.test", "ports": [5432], "address": "10.0.0.7"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			spec := read(t, body)
			got, _, err := s.Run("t", spec)
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
			if spec.Limits.MemoryBytes != 0 && got.Limits.MemoryBytes != spec.Limits.MemoryBytes || spec.Isolation != "" && got.Isolation != spec.Isolation {
				t.Errorf("%+v", got)
			}
			if got.Gate.Keys == sandbox.GateFlag || got.Gate.Keys == "" || got.Gate.Artifacts.Max > 3 || len(got.Gate.Schemas) != 1 {
				t.Errorf("%+v", got.Gate)
			}
			if name == "packages" != (len(got.Packages.NPM) == 0) || len(got.Packages.Python) != 1 {
				t.Errorf("%+v", got.Packages)
			}
			n := got.Network
			if name != "everything" && name != "cold" && len(n.Endpoints) != len(spec.Network.Endpoints) || n.Limits.BytesUp > 1000 || n.Limits.Requests > 100 && slices.ContainsFunc(n.Endpoints, sandbox.Endpoint.Ruled) {
				t.Errorf("%+v", n)
			}
			if name == "address" && n.Endpoints[0].Address != "10.0.0.7" || name == "no secret" && n.Endpoints[0].Secret != "" {
				t.Errorf("%+v", n)
			}
		})
	}
}

func read(t *testing.T, body string) sandbox.Spec {
	t.Helper()
	spec := sandbox.Spec{}
	if err := json.Unmarshal([]byte(body), &spec); err != nil {
		t.Fatal(err)
	}
	spec.Profile, spec.Code = "wide", "x"
	return spec
}

// What is wider is refused, with the field, what the profile has, and what to do.
func TestWiderIsRefused(t *testing.T) {
	s := set(t, wide(t))
	for _, c := range []struct{ field, body string }{
		{"language", `{"language": "bash"}`},
		{"template", `{"template": "other"}`},
		{"isolation", `{"isolation": "process"}`},
		{"isolation", `{"isolation": "process", "driver": "process"}`},
		{"limits.memory_bytes", `{"limits": {"memory_bytes": 67108865}}`},
		{"limits.inodes", `{"limits": {"inodes": 16385}}`},
		{"limits.cpus", `{"limits": {"cpus": 2.1}}`},
		{"warm[1]", `{"warm": ["json", "numpy"]}`},
		{"packages.python", `{"packages": {"python": ["rich==13.9.5"]}}`},
		{"packages.npm", `{"packages": {"python": ["rich==13.9.4"], "npm": ["left-pad@1.3.1"]}}`},
		{"gate.keys", `{"gate": {"keys": "flag"}}`},
		{"gate.validators", `{"gate": {"validators": [{"language": "bash", "code": "true"}]}}`},
		{"gate.artifacts.max", `{"gate": {"artifacts": {"max": 4}}}`},
		{"gate.artifacts.action", `{"gate": {"artifacts": {"action": "flag"}}}`},
		{"gate.artifacts.media_types[1]", `{"gate": {"artifacts": {"media_types": ["image/png", "text/csv"]}}}`},
		{"network.endpoints[0].host", `{"network": {"endpoints": [{"host": "other.test"}]}}`},
		{"network.endpoints[1].host", `{"network": {"endpoints": [{"host": "plain.test"}, {"host": "db.test", "ports": [22]}]}}`},
		{"network.endpoints[0].host", `{"network": {"endpoints": [{"host": "many.test"}]}}`},
		{"network.endpoints[0].host", `{"network": {"endpoints": [{"host": "*.other.test"}]}}`},
		{"network.endpoints[0]", `{"network": {"endpoints": [{"host": "api.test"}]}}`},
		{"network.endpoints[0]", `{"network": {"endpoints": [{"host": "api.test", "methods": ["GET", "POST"], "paths": ["/repos/**"], "secret": "key"}]}}`},
		{"network.endpoints[0]", `{"network": {"endpoints": [{"host": "api.test", "methods": ["GET"], "secret": "key"}]}}`},
		{"network.endpoints[0]", `{"network": {"endpoints": [{"host": "api.test", "methods": ["GET"], "paths": ["/**"]}]}}`},
		{"network.endpoints[0].secret", `{"network": {"endpoints": [{"host": "api.test", "methods": ["GET"], "paths": ["/repos/x"], "secret": "other"}]}}`},
		{"network.endpoints[0].secret", `{"network": {"endpoints": [{"host": "plain.test", "secret": "key"}]}}`},
		{"network.endpoints[0].address", `{"network": {"endpoints": [{"host": "plain.test", "address": "127.0.0.1"}]}}`},
		{"network.endpoints[0].address", `{"network": {"endpoints": [{"host": "db.test", "ports": [5432], "address": "127.0.0.1"}]}}`},
		{"network.endpoints[0].set", `{"network": {"endpoints": [{"set": "indexes"}]}}`},
		{"network.limits.bytes_up", `{"network": {"endpoints": [{"host": "plain.test"}], "limits": {"bytes_up": 1001}}}`},
		{"network.limits.requests", `{"network": {"endpoints": [{"host": "plain.test", "methods": ["GET"]}], "limits": {"requests": 101}}}`},
	} {
		_, _, err := s.Run("t", read(t, c.body))
		e := sandbox.AsError(err)
		if e == nil || e.Code != sandbox.CodeProfileDenied || e.Field != c.field || e.Hint == "" || !strings.Contains(e.Message, "wide") {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		if fix, ok := e.Advice.Find(sandbox.FixSet); ok && strings.HasPrefix(fix.Name, "limits.") { // it works when pasted
			spec := read(t, `{"limits": {"`+strings.TrimPrefix(fix.Name, "limits.")+`": `+string(fix.Value)+`}}`)
			if _, _, err := s.Run("t", spec); err != nil {
				t.Errorf("%s: the hint: %v", c.body, err)
			}
		}
	}
	mounted := sandbox.Spec{Profile: "wide", Code: "x", Mounts: []sandbox.Mount{{Host: "/etc", Guest: "/x"}}}
	if _, _, err := s.Run("t", mounted); sandbox.AsError(err).Field != "mounts" {
		t.Error(err)
	}
	if _, _, err := set(t, living()).Create("t", sandbox.Create{Profile: "living", Network: sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test"}}}}); sandbox.AsError(err).Code != sandbox.CodeProfileDenied {
		t.Error(err)
	}
	if _, _, err := set(t, living()).Create("t", sandbox.Create{Profile: "living", Driver: "native"}); sandbox.AsError(err).Field != "driver" {
		t.Error(err)
	}
}

// Names that a profile declares by themselves are held to that, also where a wildcard of it,
// or of the request, would let them do more.
func TestNamesBelowWildcardsStayNarrow(t *testing.T) {
	s := set(t, sandbox.Profile{Name: "wide", Language: "python", Network: sandbox.Network{Endpoints: []sandbox.Endpoint{
		endpoint(t, "*.a.test", ""), endpoint(t, "GET https://x.a.test/only", ""), endpoint(t, "GET https://*.deep.a.test/d/**", ""), endpoint(t, "y.a.test:8443", ""),
	}}})
	for body, refused := range map[string]bool{
		`{"host": "z.a.test"}`: false,
		`{"host": "x.a.test", "methods": ["GET"], "paths": ["/only"]}`: false,
		`{"host": "x.a.test"}`:                                             true,
		`{"host": "x.a.test", "methods": ["GET"]}`:                         true,
		`{"host": "y.a.test"}`:                                             true, // at that port the wildcard is not for it
		`{"host": "n.deep.a.test"}`:                                        true,
		`{"host": "*.deep.a.test"}`:                                        true,
		`{"host": "n.deep.a.test", "methods": ["GET"], "paths": ["/d/x"]}`: false,
		`{"host": "*.a.test"}`:                                             true, // x, y and deep would be held to it
		`{"host": "*.a.test"}, {"host": "x.a.test", "methods": ["GET"], "paths": ["/only"]}, {"host": "y.a.test", "ports": [8443]}, {"host": "*.deep.a.test", "methods": ["GET"], "paths": ["/d/**"]}`: false,
		`{"host": "*.b.a.test"}`: false,
		`{"host": "*.test"}`:     true,
	} {
		_, _, err := s.Run("t", read(t, `{"network": {"endpoints": [`+body+`]}}`))
		if (err != nil) != refused || err != nil && sandbox.AsError(err).Code != sandbox.CodeProfileDenied && body != `{"host": "*.test"}` {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// An endpoint whose requests get a secret is read by the host: one that nobody reads is wider.
func TestEndpointsStayRead(t *testing.T) {
	s := set(t, sandbox.Profile{Name: "wide", Language: "python", Network: sandbox.Network{Endpoints: []sandbox.Endpoint{endpoint(t, "a.test", "key")}}})
	for body, refused := range map[string]bool{`{"host": "a.test"}`: true, `{"host": "a.test", "secret": "key"}`: false, `{"host": "a.test", "methods": ["GET"]}`: false} {
		if _, _, err := s.Run("t", read(t, `{"network": {"endpoints": [`+body+`]}}`)); (err != nil) != refused {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// Each field of a request is decided: it is the caller's own, or the profile has a word.
func TestEveryFieldOfARequestIsDecided(t *testing.T) {
	held := []string{"Profile", "Language", "Limits", "Template", "Driver", "Isolation", "Require", "Network", "Warm", "Packages", "Mounts", "Gate", "TTLMS"}
	own := []string{
		"Code", "Entrypoint", "Files", "Args", "Env", "Stdin", "Artifacts", "Cold", "Scan", "OutputBase64", "Metadata", "AllowedImports",
		"OnOutOfMemory", "IdleMS", "Snapshot",
	}
	for _, request := range []any{sandbox.Spec{}, sandbox.Create{}} {
		for f := range reflect.TypeOf(request).Fields() {
			if !slices.Contains(held, f.Name) && !slices.Contains(own, f.Name) {
				t.Errorf("%T has %s: may who names a profile choose it? See narrowing.machine", request, f.Name)
			}
		}
	}
}

// Living sandboxes live as long as the profile says in all, and their processes get no more
// than the sandbox has.
func TestLivingSandboxesOfProfiles(t *testing.T) {
	s := set(t, wide(t), living())
	for field, c := range map[string]sandbox.Create{"profile": {Profile: "wide"}, "ttl_ms": {Profile: "living", TTLMS: 60_001}} {
		if _, _, err := s.Create("t", c); sandbox.AsError(err).Code != sandbox.CodeProfileDenied || sandbox.AsError(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if ms := s.Life("living", 300_000); ms != 60_000 || s.Life("living", 10) != 10 || s.Life("", 5) != 5 {
		t.Error(ms)
	}
	made := time.Now()
	if err := s.Extend("living", made, made.Add(time.Minute)); err != nil {
		t.Error(err)
	}
	for name, until := range map[string]time.Duration{"living": time.Minute + time.Millisecond, "gone": time.Second} {
		if err := s.Extend(name, made, made.Add(until)); err == nil {
			t.Errorf("%s lives %s", name, until)
		}
	}
	got := sandbox.Limits{WallTimeMS: 1000, OutputBytes: 100}
	for field, c := range map[string]sandbox.Command{"wall_time_ms": {WallTimeMS: 1001}, "output_bytes": {OutputBytes: 101}} {
		if err := Command("living", got, c); sandbox.AsError(err).Field != field || sandbox.AsError(err).Hint == "" {
			t.Errorf("%s: %v", field, err)
		}
		if err := Command("", got, c); err != nil {
			t.Error(err)
		}
	}
	if err := Command("living", got, sandbox.Command{WallTimeMS: 1000}); err != nil {
		t.Error(err)
	}
}

// A profile that has a person asked says so to models, and adds a rule that no request can leave
// out. It has no living sandboxes.
func TestProfilesThatAsk(t *testing.T) {
	p := wide(t)
	if r := set(t, p).Rule("wide"); r != nil {
		t.Errorf("nobody wants that: %+v", r)
	}
	p.Approval = "which customers?"
	s := set(t, p)
	if r := s.Rule("wide"); r == nil || r.ID != "profile:wide" || r.Then.Ask != p.Approval || !reflect.DeepEqual(r.When, sandbox.PolicyWhen{}) {
		t.Errorf("%+v", r)
	}
	if s.Rule("other") != nil || s.Rule("") != nil {
		t.Error("a rule of no profile")
	}
	if text := summary(s.Tools("t", nil, noLevels)[0]); !strings.Contains(text, "A person has to approve each run before it starts") {
		t.Error(text)
	}
	box := living()
	box.Approval = "why?"
	if err := s.Add(Entry{Profile: box}); sandbox.AsError(err) == nil || sandbox.AsError(err).Field != "ttl" || !strings.Contains(sandbox.AsError(err).Hint, "approval") {
		t.Errorf("%v", err)
	}
}

// A profile is its tenants' alone: others do not learn that it is there.
func TestProfilesOfTenants(t *testing.T) {
	s := set(t, living())
	p := wide(t)
	if err := s.Add(Entry{Profile: p, Tenants: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Run("a", read(t, `{}`)); err != nil {
		t.Error(err)
	}
	_, _, theirs := s.Run("b", read(t, `{}`))
	_, _, none := set(t, living()).Run("b", read(t, `{}`))
	if theirs == nil || sandbox.AsError(theirs).Code != sandbox.CodeProfileUnknown || theirs.Error() != none.Error() || sandbox.AsError(theirs).Hint != sandbox.AsError(none).Hint {
		t.Errorf("%v, and where there is none: %v", theirs, none)
	}
	if names := s.Names("b"); !slices.Equal(names, []string{"living"}) {
		t.Error(names)
	}
	if tools := s.Tools("a", []string{"wide", "other"}, noLevels); len(tools) != 1 || tools[0].Profile.Name != "wide" {
		t.Errorf("%+v", tools)
	}
}

// What is wrong with a profile is said with its field.
func TestWrongProfiles(t *testing.T) {
	for field, p := range map[string]sandbox.Profile{
		"name":                      {Name: "a b", Language: "python"},
		"description":               {Name: "a", Language: "python", Description: "\x1b[2J"},
		"language":                  {Name: "a"},
		"warm":                      {Name: "a", Language: "bash", Warm: []string{"x"}},
		"limits.memory_bytes":       {Name: "a", Language: "python", Limits: sandbox.Limits{MemoryBytes: 1}},
		"isolation":                 {Name: "a", Language: "python", Isolation: "moat"},
		"require[0]":                {Name: "a", Language: "python", Require: []string{"luck"}},
		"network.endpoints[0].host": {Name: "a", Language: "python", Network: sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "-"}}}},
		"network":                   {Name: "a", Language: "python", Network: sandbox.Network{Endpoints: []sandbox.Endpoint{{Set: "x"}}}},
		"approval":                  {Name: "a", Language: "python", Approval: "why\nnow?"},
		"gate.keys":                 {Name: "a", Language: "python", Gate: &sandbox.Gate{Keys: "drop"}},
		"ttl":                       {Name: "a", Language: "python", TTLMS: 1000, Gate: &sandbox.Gate{Validators: []sandbox.GateValidator{{Language: "python", Code: "1"}}}},
	} {
		if err := (Set{}).Add(Entry{Profile: p}); sandbox.AsError(err) == nil || sandbox.AsError(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A digest is of all that a profile fixes: each change of it makes another.
func TestDigestIsOfAllThatIsFixed(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func(*sandbox.Profile){
		"":            func(*sandbox.Profile) {},
		"description": func(p *sandbox.Profile) { p.Description += "!" },
		"limits":      func(p *sandbox.Profile) { p.Limits.DiskBytes = 1 << 20 },
		"isolation":   func(p *sandbox.Profile) { p.Isolation = "vm" },
		"endpoint":    func(p *sandbox.Profile) { p.Network.Endpoints[0].Methods = []string{"GET"} },
		"secret":      func(p *sandbox.Profile) { p.Network.Endpoints[0].Secret = "other" },
		"bytes":       func(p *sandbox.Profile) { p.Network.Limits.BytesDown = 5 },
		"gate":        func(p *sandbox.Profile) { p.Gate.Keys = sandbox.GateWithhold },
		"template":    func(p *sandbox.Profile) { p.Template = "other" },
		"driver":      func(p *sandbox.Profile) { p.Driver = "native" },
		"require":     func(p *sandbox.Profile) { p.Require = nil },
		"approval":    func(p *sandbox.Profile) { p.Approval = "why?" },
		"reason":      func(p *sandbox.Profile) { p.Approval = "why now?" },
		"life":        func(p *sandbox.Profile) { p.Gate, p.TTLMS = nil, 1000 },
	} {
		p := wide(t)
		change(&p)
		_, ref, err := set(t, p).Run("t", sandbox.Spec{Profile: "wide", Code: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if other, twice := seen[ref.Digest]; twice {
			t.Errorf("%q and %q have one digest", name, other)
		}
		seen[ref.Digest] = name
		if _, again, _ := set(t, p).Run("t", sandbox.Spec{Profile: "wide", Code: "y", Limits: sandbox.Limits{CPUs: 0.5}}); *again != *ref {
			t.Errorf("%s: the same profile has two digests", name)
		}
	}
}

func noLevels(string) string { return "" }
