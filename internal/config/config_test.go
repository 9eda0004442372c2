package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pinfold/sandbox"
)

// same compares what configurations mean, not where it stood.
var same = cmpopts.IgnoreUnexported(Config{})

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	if err := c.Validate(); err != nil {
		t.Fatalf("Validate: %v", err)
	}
	return c
}

func TestDefaultIsValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "# nothing\n", "---\n", "{}", "tls:\ncapacity:\npools:\n"} {
		if d := cmp.Diff(Default(), parse(t, text), same); d != "" {
			t.Errorf("%q changes the defaults:\n%s", text, d)
		}
	}
}

func TestEverythingIsRead(t *testing.T) {
	c := parse(t, `
listen: ["[::1]:0", "unix:/run/p.sock"]
state: /srv/pinfold
domain: box.example.com
allowed_hosts: [a.example.com, "10.0.0.1:7463", "::1"]
allowed_origins: ["https://app.example.com:8443"]
tls: {cert: c.pem, key: k.pem}
capacity: {sandboxes: 5, runs: 6, memory: 1.5GiB, cpus: 0.5, starts_per_second: 2.5, queue: 7, queue_timeout: 250ms, detached: 8}
quotas:
  default: {sandboxes: 2, cpus: 3}
  tenants:
    a-1: {sandboxes: 9}
limits:
  default: {memory_bytes: 64MiB, wall_time_ms: 2s, processes: 8}
  max: {memory_bytes: 134217728, wall_time_ms: 5000, cpus: 2}
ttl: {default: 1m, max: 1h}
pools:
- name: small
  limits: {cpus: 0.5}
  min: 1
  max: 2
drivers: {docker: {image: "python:3", engine: "unix:///run/e.sock", runtime: crun}, gvisor: {runsc: /usr/bin/runsc}, qemu: {enabled: true, program: /usr/bin/q, kernel: /boot/k, modules: /lib/modules/r}}
compile_cache: {bytes: 100MiB, tenant_bytes: 50MiB}
packages: {bytes: 2GiB, indexes: {npm: {url: "https://npm.test/", endpoints: ["npm.test=10.0.0.9"], secret: npm}}}
snapshots: {bytes: 1GiB, tenant_bytes: 100MiB, per_tenant: 7, ttl: 48h}
audit: {enabled: true, name: a.example.com, texts: true, texts_retention: 48h, text_bytes: 2MiB, on_failure: continue, witnesses: [/w, "https://w.example.com/c"], witness_for: [{name: b.example.com, key: "b.example.com+143e7a09+AVDActgoqGf/2DiC30gCbaMc853bFr5z1PaJwQ2i0NfC"}]}
retention: 24h
drain_timeout: 0s
log: {level: debug, format: json}
telemetry: {otlp_endpoint: "http://127.0.0.1:4318", service_name: x, sample: 0.1}
`)
	want := &Config{
		Listen: []string{"[::1]:0", "unix:/run/p.sock"}, State: "/srv/pinfold", Domain: "box.example.com",
		AllowedHosts: []string{"a.example.com", "10.0.0.1:7463", "::1"}, AllowedOrigins: []string{"https://app.example.com:8443"},
		TLS:      TLS{"c.pem", "k.pem"},
		Capacity: Capacity{5, 6, 3 << 29, 0.5, 2.5, 7, 250 * time.Millisecond, 8},
		Quotas:   Quotas{Default: Quota{Sandboxes: 2, CPUs: 3}, Tenants: map[string]Quota{"a-1": {Sandboxes: 9}}},
		Limits: Limits{
			Default: sandbox.Limits{MemoryBytes: 64 << 20, WallTimeMS: 2000, Processes: 8},
			Max:     sandbox.Limits{MemoryBytes: 128 << 20, WallTimeMS: 5000, CPUs: 2, OutputBytes: maxOutput},
		},
		TTL:          TTL{time.Minute, time.Hour},
		Pools:        []Pool{{Name: "small", Limits: sandbox.Limits{CPUs: 0.5}, Min: 1, Max: 2}},
		Drivers:      Drivers{Docker{"python:3", "unix:///run/e.sock", "crun"}, GVisor{"/usr/bin/runsc"}, QEMU{true, "/usr/bin/q", "/boot/k", "/lib/modules/r"}},
		CompileCache: CompileCache{100 << 20, 50 << 20},
		Packages:     Packages{Bytes: 2 << 30, Indexes: PackageIndexes{NPM: PackageIndex{"https://npm.test/", []string{"npm.test=10.0.0.9"}, "npm"}}},
		Snapshots:    Snapshots{1 << 30, 100 << 20, 7, 48 * time.Hour},
		Audit:        Audit{true, "a.example.com", true, 48 * time.Hour, 2 << 20, AuditContinue, []string{"/w", "https://w.example.com/c"}, []WatchedLog{{"b.example.com", "b.example.com+143e7a09+AVDActgoqGf/2DiC30gCbaMc853bFr5z1PaJwQ2i0NfC"}}},
		Retention:    24 * time.Hour, Log: Log{"debug", FormatJSON},
		Telemetry: Telemetry{"http://127.0.0.1:4318", "x", 0.1},
	}
	if d := cmp.Diff(want, c, same); d != "" {
		t.Fatal(d)
	}
	if q := c.Quotas.Quota("a-1"); q.Sandboxes != 9 || q.CPUs != 3 {
		t.Errorf("a tenant's quota is not completed by the default: %+v", q)
	}
	if q := c.Quotas.Quota("else"); q.Sandboxes != 2 {
		t.Errorf("a tenant without a quota does not get the default: %+v", q)
	}
}

// Every wrong input names its key, its place, and where possible what was
// meant.
func TestWrongInputs(t *testing.T) {
	for _, c := range []struct{ text, field, place, hint string }{
		{"lisen: []", "lisen", "f.yaml:1:1:", `"listen"`},
		{"capacity:\n  memry: 1GiB", "capacity.memry", "f.yaml:2:3:", `"memory"`},
		{"queue_timeout: 5s", "queue_timeout", "f.yaml:1:1:", "did you mean capacity.queue_timeout? Keys stand below"},
		{"memory: 5GiB", "memory", "f.yaml:1:1:", "did you mean capacity.memory or quotas.default.memory?"},
		{"capacity:\n  otlp_endpoint: x", "capacity.otlp_endpoint", "f.yaml:2:3:", "did you mean telemetry.otlp_endpoint?"},
		{"capacity:\n  frobnicate: 1", "capacity.frobnicate", "f.yaml:2:3:", "the keys here are cpus"},
		{"quotas: {tenants: {a: {sandbox: 1}}}", "quotas.tenants.a.sandbox", "f.yaml:1:", `"sandboxes"`},
		{"limits: {max: {memory: 1GiB}}", "limits.max.memory", "f.yaml:1:", `"memory_bytes"`},
		{"pools:\n- nam: x", "pools[0].nam", "f.yaml:2:3:", `"name"`},
		{"<<: {state: x}", "<<", "f.yaml:1:1:", ""},
		{"state: a\nstate: b", "state", "f.yaml:2:1:", ""},
		{"log:\n  level: info\n  level: info", "log.level", "f.yaml:3:3:", ""},
		{"state: &a x\ndomain: *a", "state", "f.yaml:1:8:", "write the value out"},
		{"listen: *a", "", "f.yaml:1:", ""},
		{"state: !!binary eA==", "state", "f.yaml:1:", ""},
		{"? [a]\n: b", "", "f.yaml:1:3:", ""},
		{"listen: 127.0.0.1:1", "listen", "f.yaml:1:9:", "- "},
		{"listen: [null]", "listen[0]", "f.yaml:1:10:", ""},
		{"tls: [x]", "tls", "f.yaml:1:6:", ""},
		{"state: [x]", "state", "f.yaml:1:8:", ""},
		{"- a", "", "f.yaml:1:1:", ""},
		{"just text", "", "f.yaml:1:1:", ""},
		{"a: [1,\nb", "", "f.yaml:", ""},
		{"\tstate: x", "", "f.yaml:1:1:", "spaces"},
		{"state: x\n---\nstate: y", "", "f.yaml:", ""},
		{"state: \x00", "", "f.yaml:", ""},
		{"state: \xff\xfe", "", "f.yaml:", ""},
		{strings.Repeat("[", 100), "", "f.yaml:1:", ""},
		{"state: " + strings.Repeat("x", 5000), "state", "f.yaml:1:8:", ""},
		{"\x1b[2J: x", "", "f.yaml", ""},
		{`"\e[2J": x`, `\x1b[2J`, "f.yaml:1:1:", ""},
		{"insecure_listen: yes", "insecure_listen", "f.yaml:1:", ""},
		{"capacity: {sandboxes: 0}", "capacity.sandboxes", "f.yaml:1:", "does not mean unlimited"},
		{"capacity: {sandboxes: -1}", "capacity.sandboxes", "f.yaml:1:", ""},
		{"capacity: {sandboxes: 1.5}", "capacity.sandboxes", "f.yaml:1:", ""},
		{"capacity: {sandboxes: 99999999999999999999}", "capacity.sandboxes", "f.yaml:1:", ""},
		{"capacity: {sandboxes: '5'}", "capacity.sandboxes", "f.yaml:1:", ""},
		{"capacity: {memory: 1XiB}", "capacity.memory", "f.yaml:1:", "64MiB"},
		{"capacity: {memory: 1KiB}", "capacity.memory", "f.yaml:1:", ""},
		{"capacity: {memory: -1}", "capacity.memory", "f.yaml:1:", ""},
		{"capacity: {cpus: .nan}", "capacity.cpus", "f.yaml:1:", ""},
		{"capacity: {cpus: .inf}", "capacity.cpus", "f.yaml:1:", ""},
		{"capacity: {starts_per_second: 0}", "capacity.starts_per_second", "f.yaml:1:", ""},
		{"capacity: {queue_timeout: 30}", "capacity.queue_timeout", "f.yaml:1:", "2s"},
		{"capacity: {queue_timeout: 0s}", "capacity.queue_timeout", "f.yaml:1:", ""},
		{"quotas: {default: {memory: 0}}", "quotas.default.memory", "f.yaml:1:", ""},
		{"quotas: {tenants: {A: {}}}", "quotas.tenants.A", "f.yaml:1:", ""},
		{"limits: {default: {memory_bytes: 0}}", "limits.default.memory_bytes", "f.yaml:1:", ""},
		{"limits: {default: {memory_bytes: 1}}", "limits.default.memory_bytes", "f.yaml:1:", ""},
		{"limits: {default: {cpus: 0}}", "limits.default.cpus", "f.yaml:1:", ""},
		{"limits: {default: {processes: 1MiB}}", "limits.default.processes", "f.yaml:1:", ""},
		{"limits: {default: {memory_bytes: 1GiB}, max: {memory_bytes: 64MiB}}", "limits.default.memory_bytes", "f.yaml:1:", ""},
		{"limits: {default: {cpus: 4}, max: {cpus: 2}}", "limits.default.cpus", "f.yaml:1:", ""},
		{"listen: []", "listen", "f.yaml:1:", ""},
		{"listen: [nonsense]", "listen[0]", "f.yaml:1:", "127.0.0.1:7463"},
		{"listen: ['127.0.0.1:99999']", "listen[0]", "f.yaml:1:", ""},
		{"listen: ['example.com:80']", "listen[0]", "f.yaml:1:", ""},
		{"listen: ['127.0.0.1:1', '127.0.0.1:1']", "listen[1]", "f.yaml:1:", ""},
		{"listen: ['0.0.0.0:7463']", "listen[0]", "f.yaml:1:", "--insecure-listen"},
		{"listen: [':7463']", "listen[0]", "f.yaml:1:", "--tls-cert"},
		{"listen: ['unix:relative.sock']", "listen[0]", "f.yaml:1:", ""},
		{"listen: ['unix:/a/../b']", "listen[0]", "f.yaml:1:", ""},
		{"listen: ['unix:/" + strings.Repeat("x", 200) + "']", "listen[0]", "f.yaml:1:", ""},
		{"tls: {cert: x}", "tls.key", "", "--tls-key"},
		{"tls: {key: x}", "tls.cert", "", "--tls-cert"},
		{"state: ''", "state", "f.yaml:1:", "--state"},
		{`state: "a\0b"`, "state", "f.yaml:1:", ""},
		{"domain: 10.0.0.1", "domain", "f.yaml:1:", ""},
		{"domain: Example.COM", "domain", "f.yaml:1:", ""},
		{"domain: '*.example.com'", "domain", "f.yaml:1:", ""},
		{"allowed_hosts: ['https://a']", "allowed_hosts[0]", "f.yaml:1:", ""},
		{"allowed_hosts: ['*']", "allowed_hosts[0]", "f.yaml:1:", ""},
		{"allowed_origins: ['*']", "allowed_origins[0]", "f.yaml:1:", ""},
		{"allowed_origins: ['null']", "allowed_origins[0]", "f.yaml:1:", ""},
		{"allowed_origins: ['https://a.example.com/']", "allowed_origins[0]", "f.yaml:1:", ""},
		{"allowed_origins: ['https://u@a.example.com']", "allowed_origins[0]", "f.yaml:1:", ""},
		{"ttl: {default: 2h, max: 1h}", "ttl.default", "f.yaml:1:", ""},
		{"ttl: {max: 8760h}", "ttl.max", "f.yaml:1:", ""},
		{"pools: [{min: 1}]", "pools[0].name", "", ""},
		{"pools: [{name: a}, {name: a}]", "pools[1].name", "f.yaml:1:", ""},
		{"pools: [{name: a, min: 5, max: 2}]", "pools[0].max", "f.yaml:1:", ""},
		{"pools: [{name: a, min: -1}]", "pools[0].min", "f.yaml:1:", ""},
		{"pools: [{name: a, language: c}]", "pools[0].language", "f.yaml:1:29:", "python, javascript"},
		{"pools: [{name: a, language: pythn}]", "pools[0].language", "f.yaml:1:29:", `"python"`},
		{"pools: [{name: a, warm: [numpy]}]", "pools[0].language", "", "name it"},
		{"pools: [{name: a, language: python, warm: [numpy, 'os;x']}]", "pools[0].warm[1]", "f.yaml:1:", ""},
		{"pools: [{name: a, limits: {memory_bytes: 1}}]", "pools[0].limits.memory_bytes", "f.yaml:1:", ""},
		{"audit: {witness_for: [{name: b.example.com, key: x}]}", "audit.witness_for[0].key", "f.yaml:1:", "pinfold audit key"},
		{"audit: {witness_for: [{name: c.example.com, key: 'b.example.com+143e7a09+AVDActgoqGf/2DiC30gCbaMc853bFr5z1PaJwQ2i0NfC'}]}", "audit.witness_for[0].name", "f.yaml:1:", "b.example.com"},
		{"audit: {witness_for: [{name: b.example.com, key: 'b.example.com+143e7a09+AVDActgoqGf/2DiC30gCbaMc853bFr5z1PaJwQ2i0NfC'}, {name: b.example.com, key: 'b.example.com+143e7a09+AVDActgoqGf/2DiC30gCbaMc853bFr5z1PaJwQ2i0NfC'}]}", "audit.witness_for[1].key", "f.yaml:1:", ""},
		{"audit: {witness_for: [" + strings.Repeat("{name: b},", 65) + "]}", "audit.witness_for", "f.yaml:1:", ""},
		{"retention: 1s", "retention", "f.yaml:1:", ""},
		{"drain_timeout: 99999h", "drain_timeout", "f.yaml:1:", ""},
		{"drain_timeout: 9999999999h", "drain_timeout", "f.yaml:1:", ""},
		{"log: {level: inf}", "log.level", "f.yaml:1:", `"info"`},
		{"log: {format: xml}", "log.format", "f.yaml:1:", ""},
		{"telemetry: {otlp_endpoint: 'ftp://x'}", "telemetry.otlp_endpoint", "f.yaml:1:", "4318"},
		{"telemetry: {otlp_endpoint: 'http://u:p@x'}", "telemetry.otlp_endpoint", "f.yaml:1:", ""},
		{"telemetry: {service_name: ''}", "telemetry.service_name", "f.yaml:1:", ""},
		{"telemetry: {sample: 1.1}", "telemetry.sample", "f.yaml:1:", ""},
	} {
		cfg, err := Parse("f.yaml", []byte(c.text))
		if err == nil {
			err = cfg.Validate()
		}
		var e *sandbox.Error
		if !errors.As(err, &e) {
			t.Errorf("%.60q: accepted", c.text)
			continue
		}
		if e.Code != sandbox.CodeConfigInvalid || e.Field != c.field || !strings.HasPrefix(e.Message, c.place) || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%.60q: field %q, message %q, hint %q; want field %q, place %q, hint %q", c.text, e.Field, e.Message, e.Hint, c.field, c.place, c.hint)
		}
		if strings.ContainsAny(e.Field+e.Message+e.Hint, "\x1b\x00\n") {
			t.Errorf("%.60q: raw bytes in %+v", c.text, e)
		}
	}
}

func TestInsecureListen(t *testing.T) {
	for _, text := range []string{
		"listen: ['0.0.0.0:1']\ninsecure_listen: true",
		"listen: ['0.0.0.0:1']\ntls: {cert: a, key: b}",
		"listen: ['127.9.9.9:1', '[::1]:1', 'localhost:1', 'unix:/x']",
	} {
		parse(t, text)
	}
}

func TestOverride(t *testing.T) {
	c, err := Parse("f.yaml", []byte("listen: ['nonsense']\nlog: {level: nonsense}\nstate: /a"))
	if err != nil {
		t.Fatal(err)
	}
	c.Override(Overrides{Listen: []string{"also nonsense"}, LogLevel: "debug", TLSCert: "c", TLSKey: "k", Domain: "d.example"})
	var e *sandbox.Error
	if err := c.Validate(); !errors.As(err, &e) || e.Field != "listen[0]" || strings.Contains(e.Message, "f.yaml") {
		t.Errorf("a flag's error is blamed on the file: %v", err)
	}
	c.Override(Overrides{Listen: []string{"0.0.0.0:0"}})
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.State != "/a" || c.Log.Level != "debug" || c.TLS != (TLS{"c", "k"}) || c.Domain != "d.example" {
		t.Errorf("%+v", c)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.yaml")
	if err := os.WriteFile(file, []byte("state: /x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(file); err != nil || c.State != "/x" {
		t.Fatalf("%+v, %v", c, err)
	}
	pipe, big := filepath.Join(dir, "pipe"), filepath.Join(dir, "big")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(big, []byte(strings.Repeat("# x\n", MaxFile/4+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe, big, filepath.Join(dir, "none"), "/dev/zero", "\x1b[2J"} {
		var e *sandbox.Error
		if _, err := Load(path); !errors.As(err, &e) || e.Code != sandbox.CodeConfigInvalid || strings.Contains(e.Message, "\x1b") {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// The example is what is installed; it says what holds anyway, it names every
// key, and what is commented out in it is right as well.
func TestExample(t *testing.T) {
	installed, err := os.ReadFile("../../packaging/pinfold.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(installed) != Example() {
		t.Error("packaging/pinfold.yaml differs from internal/config/example.yaml: copy it")
	}
	if d := cmp.Diff(Default(), parse(t, Example()), same); d != "" {
		t.Errorf("the example does not say the defaults:\n%s", d)
	}
	comment := regexp.MustCompile(`(?m)^# (( {2})*(- )?(([a-z_]+:( |$))|unix:|https:|[a-z]+\.example\.com))`)
	full := comment.ReplaceAllString(Example(), "$1")
	c := parse(t, full)
	var check func(v reflect.Value, at string)
	check = func(v reflect.Value, at string) {
		for f := range v.Type().Fields() {
			name := f.Tag.Get("yaml")
			if name == "" {
				continue
			}
			if !c.given(join(at, name)) {
				t.Errorf("the example does not have %s", join(at, name))
			}
			if inner := v.FieldByIndex(f.Index); inner.Kind() == reflect.Struct && inner.Type() != reflect.TypeFor[sandbox.Limits]() {
				check(inner, join(at, name))
			}
		}
	}
	check(reflect.ValueOf(c).Elem(), "")
	check(reflect.ValueOf(c.Pools[0]), "pools[0]")
	for _, info := range sandbox.LimitTable() {
		if d := sandbox.DefaultLimits().Get(info.Field); c.Limits.Default.Get(info.Field) != d {
			t.Errorf("limits.default.%s is not the default", info.Field)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(Example()))
	f.Add([]byte("pools: [{name: a, limits: {cpus: .5}}]"))
	f.Add([]byte("a: &a [*a, *a]"))
	f.Add([]byte("\"\\e\": !!x y"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if err == nil {
			err = c.Validate()
		}
		if err == nil {
			return
		}
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.CodeConfigInvalid {
			t.Fatalf("%q: %#v", data, err)
		}
		if text := e.Field + e.Message + e.Hint; sandbox.SafeText(text, len(text)+1) != text {
			t.Fatalf("%q: not printable: %q", data, text)
		}
	})
}

// What is wrong with an index is said when the server starts, with the key.
func TestPackages(t *testing.T) {
	for text, field := range map[string]string{
		"packages: {bytes: 1KiB}": "packages.bytes", "packages: {bytes: 0}": "packages.bytes",
		`packages: {indexes: {python: {url: "http://pypi.test/simple"}}}`:                        "packages.indexes.python.url",
		`packages: {indexes: {npm: {endpoints: [npm.test]}}}`:                                    "packages.indexes.npm.url",
		`packages: {indexes: {npm: {url: "https://npm.test", endpoints: [a.test, "*.b.test"]}}}`: "packages.indexes.npm.endpoints[1]",
		`packages: {indexes: {npm: {url: "https://npm.test", secret: "no secret's name"}}}`:      "packages.indexes.npm.secret",
	} {
		c, err := Parse("f.yaml", []byte(text))
		if err == nil {
			err = c.Validate()
		}
		if e := sandbox.AsError(err); e == nil || e.Field != field {
			t.Errorf("%s: %v", text, err)
		}
	}
	if all := parse(t, `packages: {indexes: {python: {url: "https://pypi.test/simple"}}}`).Packages.Indexes.Of(); len(all) != 1 || all["python"].URL != "https://pypi.test/simple" {
		t.Errorf("%+v", all)
	}
}

func TestSnapshots(t *testing.T) {
	if c := parse(t, "snapshots: {bytes: 0}"); c.Snapshots.Bytes != 0 || c.Validate() != nil {
		t.Errorf("%+v, %v", c.Snapshots, c.Validate())
	}
	for text, field := range map[string]string{
		"snapshots: {bytes: 1KiB}":                         "snapshots.bytes",
		"snapshots: {bytes: -1}":                           "snapshots.bytes",
		"snapshots: {tenant_bytes: 0}":                     "snapshots.tenant_bytes",
		"snapshots: {bytes: 100MiB, tenant_bytes: 200MiB}": "snapshots.tenant_bytes",
		"snapshots: {per_tenant: 0}":                       "snapshots.per_tenant",
		"snapshots: {per_tenant: 100000}":                  "snapshots.per_tenant",
		"snapshots: {ttl: 0s}":                             "snapshots.ttl",
		"snapshots: {size: 100MiB}":                        "snapshots.size",
	} {
		c, err := Parse("f.yaml", []byte(text))
		if err == nil {
			err = c.Validate()
		}
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestCompileCache(t *testing.T) {
	for _, off := range []string{"compile_cache: {bytes: 0}", "compile_cache:\n  bytes: 0\n  tenant_bytes: 50MiB"} {
		if c := parse(t, off); c.CompileCache.Bytes != 0 || c.Validate() != nil {
			t.Errorf("%q: %+v, %v", off, c.CompileCache, c.Validate())
		}
	}
	for text, field := range map[string]string{
		"compile_cache: {bytes: 1KiB}":                         "compile_cache.bytes",
		"compile_cache: {bytes: -1}":                           "compile_cache.bytes",
		"compile_cache: {tenant_bytes: 0}":                     "compile_cache.tenant_bytes",
		"compile_cache: {bytes: 100MiB, tenant_bytes: 200MiB}": "compile_cache.tenant_bytes",
		"compile_cache: {size: 100MiB}":                        "compile_cache.size",
	} {
		c, err := Parse("f.yaml", []byte(text))
		if err == nil {
			err = c.Validate()
		}
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A result is made whole in memory: 30 runs of 64 MiB took the server down. An
// operator may allow more.
func TestOutputIsBoundedByDefault(t *testing.T) {
	if got := Default().Limits.Max.OutputBytes; got != 8<<20 {
		t.Errorf("%d bytes by default", got)
	}
	c, err := Parse("f.yaml", []byte("limits:\n  max:\n    output_bytes: 64MiB\n    cpus: 1\n"))
	if err != nil || c.Limits.Max.OutputBytes != 64<<20 {
		t.Errorf("%v %+v", err, c)
	}
	c, err = Parse("f.yaml", []byte("limits:\n  max:\n    cpus: 1\n"))
	if err != nil || c.Limits.Max.OutputBytes != 8<<20 {
		t.Errorf("another limit took the bound away: %v", err)
	}
}

// All that is wrong with a file is told at once: keys that are not known, values that cannot be
// read and those out of range, each in its line, and nothing that only follows from another.
func TestAllThatIsWrongIsTold(t *testing.T) {
	const text = `capacty: {}
foo: 1
limits:
  max:
    memory: 1GiB
    processes: many
    inodes: 1
capacity:
  memory: 99999999999TiB
  cpus: 999999999
  queue_timeout: 0s
ttl:
  default: soon
listen: [[], "127.0.0.1:1"]
pools:
  - name: a
    languge: python
`
	c, err := Parse("f.yaml", []byte(text))
	if c == nil || err == nil {
		t.Fatalf("%v, %v", c, err)
	}
	all := errors.Join(err, c.Validate()).Error()
	for _, want := range []string{":1:1: ", ":2:1: ", ":5:5: ", ":6:16: ", ":7:13: ", ":9:11: ", ":10:9: ", ":11:18: ", ":13:12: ", ":14:10: ", ":17:5: "} {
		if !strings.Contains(all, "f.yaml"+want) {
			t.Errorf("nothing about %s", want)
		}
	}
	if n := strings.Count(all, "\n") + 1; n != 11 {
		t.Errorf("%d errors:\n%s", n, all)
	}
}
