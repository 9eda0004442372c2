package config

import (
	"strings"
	"testing"

	"pinfold/sandbox"
)

const toolsFile = `
network:
  allow: ["@ours", "GET https://api.test/**"]
  sets: {ours: [a.test, "b.test:80"]}
limits: {max: {memory_bytes: 512MiB}}
profiles:
  plots:
    description: Draws charts.
    language: py
    isolation: kernel
    require: [seccomp]
    warm: [json]
    packages: {python: ["rich==13.9.4"]}
    limits: {wall_time_ms: 20s, memory_bytes: 128MiB, cpus: 0.5}
    network: ["@ours"]
    secrets: {github: ["GET https://api.test/repos/**"]}
    network_limits: {connections: 3, requests: 100, bytes_up: 1MiB, bytes_down: 5}
    gate:
      keys: withhold
      artifacts: {max: 3, media_types: [image/*]}
      schemas: [{of: stdout, schema: {type: object, properties: {n: {type: integer, minimum: 1}}}}]
    approval: which repository?
    tenants: [team-a]
  shell:
    language: bash
    driver: native
    ttl: 30m
  empty:
    language: sh
`

// What stands in a configuration is what requests get, with sets in their places.
func TestProfiles(t *testing.T) {
	c := parse(t, toolsFile)
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	set, err := c.ProfileSet()
	if err != nil {
		t.Fatal(err)
	}
	p := set["plots"].Profile
	var reach []string
	for _, e := range p.Network.Endpoints {
		reach = append(reach, e.String()+"/"+e.Secret)
	}
	if p.Language != "python" || p.Isolation != "kernel" || p.Limits.WallTimeMS != 20_000 || p.Limits.CPUs != 0.5 || p.Limits.DiskBytes == 0 || p.Warm[0] != "json" || p.Packages.Python[0] != "rich==13.9.4" || p.Approval != "which repository?" ||
		strings.Join(reach, " ") != "a.test:443/ b.test:80/ GET https://api.test/repos/**/github" || p.Network.Limits != (sandbox.NetworkLimits{Connections: 3, Requests: 100, BytesUp: 1 << 20, BytesDown: 5}) ||
		p.Gate.Keys != sandbox.GateWithhold || p.Gate.Artifacts.Max != 3 || !strings.Contains(string(p.Gate.Schemas[0].Schema), `"minimum":1`) || set["plots"].Tenants[0] != "team-a" {
		t.Errorf("%+v %v", p, reach)
	}
	if shell := set["shell"].Profile; shell.TTLMS != 1_800_000 || shell.Driver != "native" || shell.Gate != nil || set["empty"].Gate != nil {
		t.Errorf("%+v", shell)
	}
	if set, err := Default().ProfileSet(); err != nil || len(set) != 0 {
		t.Errorf("by default there are %v: %v", set, err)
	}
}

// What is wrong is said with its key and where it stands.
func TestWrongProfiles(t *testing.T) {
	for field, change := range map[string][2]string{
		"profiles.plots.languages":                     {"language: py", "languages: py"},
		"profiles.plots.language":                      {"language: py", "language: pascal"},
		"profiles.shell.language":                      {"language: bash", "description: x"},
		"profiles.plots.isolation":                     {"isolation: kernel", "isolation: moat"},
		"profiles.plots.require[0]":                    {"[seccomp]", "[luck]"},
		"profiles.plots.limits.memory_bytes":           {"128MiB", "1GiB"}, // more than limits.max
		"profiles.plots.limits.cpus":                   {"cpus: 0.5", "cpus: 0"},
		"profiles.plots.limits.wall_time":              {"wall_time_ms", "wall_time"},
		"profiles.plots.network[0]":                    {`network: ["@ours"]`, `network: ["@theirs"]`},
		"profiles.plots.secrets.github[0]":             {`GET https://api.test/repos/**`, `@ours`},
		"profiles.plots.network":                       {`github: [`, `"git hub": [`},
		"profiles.plots.network_limits.bytes_down":     {"bytes_down: 5", "bytes_down: 2000000000000000"},
		"profiles.plots.gate.kez":                      {"keys: withhold", "kez: withhold"},
		"profiles.plots.gate.keys":                     {"keys: withhold", "keys: drop"},
		"profiles.plots.gate.schemas[0].schema":        {"type: object,", "type: thing,"},
		"profiles.plots.gate.artifacts.media_types[0]": {"image/*", "Image"},
		"profiles.plots.tenants[0]":                    {"team-a]", "Team A]"},
		"profiles.shell.ttl":                           {"30m", "30d"},
		"profiles.bad name":                            {"  empty:", "  bad name:"},
	} {
		c, err := Parse("f.yaml", []byte(strings.Replace(toolsFile, change[0], change[1], 1)))
		if err == nil {
			err = c.Validate()
		}
		e := sandbox.AsError(err)
		if e == nil || e.Code != sandbox.CodeConfigInvalid || !strings.HasPrefix(e.Field, field) || !strings.Contains(e.Message, "f.yaml:") {
			t.Errorf("%s: %+v", field, e)
		}
	}
	for _, hostile := range []string{"&a x", "*a", "!!binary aGk=", strings.Repeat("[", 40) + strings.Repeat("]", 40)} {
		if _, err := Parse("f.yaml", []byte("profiles: {a: {language: sh, gate: {keys: "+hostile+"}}}")); err == nil {
			t.Errorf("%.20s is taken", hostile)
		}
	}
}
