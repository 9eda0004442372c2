package archtest

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// edges are the ways in: each thin, none knowing how a sandbox is made.
var edges = []string{"internal/api/...", "internal/cli/...", "client/..."}

// importRules say what the packages in "from" may not import, directly.
// Paths without a dot in the first element are the module's own.
var importRules = []struct {
	name   string
	from   []string
	except []string
	deny   []string
	reason string
}{
	{
		name: "engine", from: []string{"internal/engine/..."},
		deny:   append([]string{"internal/driver/docker/...", "internal/driver/gvisor/...", "internal/driver/native/...", "internal/driver/process/...", "internal/driver/qemu/...", "internal/driver/fake/...", "internal/linux/...", "internal/agent/..."}, edges...),
		reason: "the engine decides what lives and dies; drivers are handed to it, so that it can be tested without a kernel",
	},
	{
		name: "stores", from: []string{"internal/store/...", "internal/access/..."},
		deny:   []string{"internal/engine", "internal/driver/..."},
		reason: "what is kept is known by its record (internal/engine/records), not by who makes it",
	},
	{
		name: "driver contract", from: []string{"internal/driver"},
		deny:   append([]string{"internal/engine/...", "internal/guest/...", "internal/linux/...", "internal/store/..."}, edges...),
		reason: "the contract stands below everybody who keeps it",
	},
	{
		name: "audit log", from: []string{"internal/audit"},
		deny:   append([]string{"internal/engine", "internal/engine/runs", "internal/engine/living", "internal/driver/...", "internal/store/...", "internal/access"}, edges...),
		reason: "the log records what it is handed (internal/engine/records); who runs things knows it as an interface, so that it can be left out",
	},
	{
		name: "warm interpreters", from: []string{"internal/zygote/..."},
		deny:   append([]string{"internal/engine/...", "internal/driver/docker/...", "internal/driver/gvisor/...", "internal/driver/native/...", "internal/driver/process/...", "internal/driver/qemu/...", "internal/driver/fake/...", "internal/linux/...", "internal/agent/...", "internal/store/..."}, edges...),
		reason: "everything about warm interpreters but the kernel's part, which native has, and the pools, which the engine has",
	},
	{
		name: "drivers", from: []string{"internal/driver/..."}, except: []string{"internal/driver", "internal/driver/drivertest/..."},
		deny:   append([]string{"internal/engine/...", "internal/store/..."}, edges...),
		reason: "a driver makes machines and nothing else",
	},
	{
		name: "drivers for tests", from: []string{"cmd/...", "internal/...", "client/...", "sandbox/...", "."},
		deny:   []string{"internal/driver/fake/...", "internal/driver/plain/...", "internal/driver/drivertest/..."},
		except: []string{"internal/driver/fake/...", "internal/driver/plain/...", "internal/driver/drivertest/..."},
		reason: "they isolate nothing: the program must not be able to take one",
	},
	{
		name: "edges", from: edges,
		deny:   []string{"internal/driver/docker/...", "internal/driver/gvisor/...", "internal/driver/native/...", "internal/driver/process/...", "internal/driver/qemu/...", "internal/driver/fake/...", "internal/linux/...", "internal/agent/...", "internal/guest/..."},
		reason: "an edge asks the engine; isolation must not depend on which door a request came through",
	},
	{
		name: "guest", from: []string{"internal/guest/..."},
		deny:   append([]string{"internal/engine/...", "internal/driver/...", "internal/agent/...", "internal/linux/..."}, edges...),
		reason: "the host half of the protocol works over any connection and trusts nothing about the other end",
	},
	{
		name: "kernel mechanisms", from: []string{"internal/linux/..."},
		deny:   append([]string{"internal/engine/...", "internal/driver/...", "internal/agent/...", "internal/guest/...", "internal/wire/..."}, edges...),
		reason: "one kernel mechanism per package, of use without the rest",
	},
	{
		name: "egress", from: []string{"internal/egress/..."},
		deny:   append([]string{"internal/engine/...", "internal/driver/...", "internal/agent/...", "internal/guest/...", "internal/linux/...", "internal/store/...", "internal/secret/vault"}, edges...),
		reason: "what may leave is decided by doors and declarations, whoever made the machine",
	},
	{
		name: "output gate", from: []string{"internal/gate/..."},
		deny:   append([]string{"internal/engine/...", "internal/driver/...", "internal/agent/...", "internal/guest/...", "internal/linux/...", "internal/store/...", "internal/secret/vault"}, edges...),
		reason: "it judges bytes; who runs things knows it as an interface, so that it can be left out",
	},
	{
		name: "containers", from: []string{"internal/container/..."},
		deny:   append([]string{"internal/engine/...", "internal/agent/...", "internal/guest/...", "internal/store/..."}, edges...),
		reason: "what several drivers have in common stands between the contract and them",
	},
	{
		name: "agent", from: []string{"internal/agent/...", "cmd/pinfold-agent"},
		deny:   append([]string{"internal/engine/...", "internal/driver/...", "internal/guest/...", "internal/store/..."}, edges...),
		reason: "the agent runs beside hostile code: it holds as little of Pinfold as it can",
	},
	{
		name: "templates", from: []string{"internal/template", "internal/template/registry", "internal/template/engineimage"},
		deny:   append([]string{"internal/engine/...", "internal/guest/...", "internal/store/..."}, edges...),
		reason: "images are kept without anything being run; only package build runs something, and that in sandboxes of the engine's",
	},
	{
		name: "warden", from: []string{"internal/warden/...", "cmd/pinfold-warden"},
		deny:   append([]string{"internal/engine/...", "internal/guest/...", "internal/store/...", "internal/agent/..."}, edges...),
		reason: "a virtual machine's first process makes one sandbox and passes bytes on: what is said to the agent is none of its business",
	},
}

// TestRulesAreAboutPackages: a rule with a name that no package bears holds nothing.
func TestRulesAreAboutPackages(t *testing.T) {
	for _, rule := range importRules {
		for _, pattern := range slices.Concat(rule.from, rule.except, rule.deny) {
			if !slices.ContainsFunc(packages(t), func(p pkg) bool { return matches(p.path(), []string{pattern}) }) {
				t.Errorf("%s: no package is called %s", rule.name, pattern)
			}
		}
	}
}

func TestPackagesImportOnlyDownwards(t *testing.T) {
	for _, rule := range importRules {
		t.Run(rule.name, func(t *testing.T) {
			for _, p := range packages(t) {
				if !matches(p.path(), rule.from) || matches(p.path(), rule.except) {
					continue
				}
				for _, imported := range p.Imports {
					if matches(inModule(imported), rule.deny) {
						t.Errorf("%s imports %s: %s", p.path(), inModule(imported), rule.reason)
					}
				}
			}
		})
	}
}

func TestDriversAreStrangersToEachOther(t *testing.T) {
	for _, p := range packages(t) {
		mine, ok := driverOf(p.path())
		if !ok || mine == "drivertest" {
			continue
		}
		for _, imported := range p.Imports {
			if other, ok := driverOf(inModule(imported)); ok && other != mine {
				t.Errorf("%s imports %s: what two drivers share belongs below them both", p.path(), inModule(imported))
			}
		}
	}
}

// engineLayers are the engine's packages from the bottom up.
var engineLayers = []string{
	"internal/engine/admission", "internal/engine/stdio", "internal/engine/records", "internal/engine/verdict", "internal/engine/replay", "internal/engine/planner",
	"internal/engine/execution", "internal/engine/snapshots", "internal/engine/pool", "internal/engine/runs", "internal/engine/living",
	"internal/engine",
}

// TestEngineIsBuiltInLayers keeps a part of the engine readable without those that
// use it: each imports only parts below it.
func TestEngineIsBuiltInLayers(t *testing.T) {
	for _, p := range packages(t) {
		if !matches(p.path(), []string{"internal/engine/..."}) {
			continue
		}
		mine := slices.Index(engineLayers, p.path())
		if mine < 0 {
			t.Errorf("%s has no place among the engine's layers", p.path())
		}
		for _, imported := range p.Imports {
			if slices.Index(engineLayers, inModule(imported)) > mine {
				t.Errorf("%s imports %s, which stands above it", p.path(), inModule(imported))
			}
		}
	}
}

// TestLeanProgramIsLean keeps out of what users start a thousand times what makes its
// start slow: each of these has a function that runs before main, or is large.
func TestLeanProgramIsLean(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "lean", "pinfold/cmd/pinfold").Output()
	if err != nil {
		t.Fatal(err)
	}
	heavy := []string{"internal/api", "internal/audit", "internal/bench", "internal/compare", "internal/config", "internal/driver/docker", "internal/driver/gvisor", "internal/driver/qemu", "internal/gate", "internal/scan", "internal/serve", "internal/store", "internal/telemetry"}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		for _, prefix := range []string{"modernc.org/", "go.opentelemetry.io/", "go.yaml.in/", "github.com/prometheus/", "github.com/moby/"} {
			if strings.HasPrefix(path, prefix) {
				t.Errorf("the lean program imports %s", path)
			}
		}
		if slices.Contains(heavy, inModule(path)) {
			t.Errorf("the lean program imports %s", path)
		}
	}
}

func TestOnlyTheWiringKnowsDrivers(t *testing.T) {
	wiring := []string{".", "cmd/pinfold", "internal/wiring", "test/...", "internal/warden"} // the last is on another computer
	for _, p := range packages(t) {
		if _, isDriver := driverOf(p.path()); isDriver || matches(p.path(), wiring) {
			continue
		}
		for _, imported := range p.Imports {
			if name, ok := driverOf(inModule(imported)); ok {
				t.Errorf("%s imports the driver %s: only the wiring chooses drivers", p.path(), name)
			}
		}
	}
}

// driverOf names the driver to which a package belongs.
func driverOf(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, "internal/driver/")
	if !ok {
		return "", false
	}
	name, _, _ := strings.Cut(rest, "/")
	return name, true
}

// standardOnly are packages that need nothing but the standard library and
// the named packages of our own.
var standardOnly = []struct {
	path   string
	own    []string
	reason string
}{
	{"sandbox", nil, "the public vocabulary must cost its users nothing"},
	{"internal/wire", nil, "both halves read hostile frames with it: every line of it is ours to check"},
	{"internal/driver", []string{"sandbox", "internal/image", "internal/zygote", "internal/filetree"}, "the contract is vocabulary"},
	{"internal/filetree", nil, "the agent reads with it what the host wrote, and the host what a guest named"},
	{"internal/image", []string{"sandbox"}, "what is inside is part of every plan: data, which costs the contract nothing"},
	{"internal/zygote", []string{"sandbox"}, "the contract and both ends of a protocol, without a kernel: drivers, the engine and the table of languages stand on it"},
}

func TestVocabularyNeedsOnlyTheStandardLibrary(t *testing.T) {
	for _, rule := range standardOnly {
		for _, p := range packages(t) {
			if p.path() != rule.path {
				continue
			}
			for _, imported := range p.Imports {
				if !isStandard(t, imported) && !slices.Contains(rule.own, inModule(imported)) {
					t.Errorf("%s imports %s: %s", p.path(), imported, rule.reason)
				}
			}
		}
	}
}

// reaches says what a package must not contain, however indirectly.
var reaches = []struct {
	from, deny []string
	reason     string
}{
	{
		[]string{"cmd/pinfold-agent"},
		[]string{"net/http", "crypto/tls", "os/exec", "plugin"},
		"the agent stays small and has nothing that a guest could make it speak with",
	},
	{
		[]string{"cmd/pinfold-warden"},
		[]string{"net/http", "crypto/tls", "plugin"},
		"the first process of a virtual machine is small, and part of what each machine has in memory",
	},
	{[]string{"sandbox"}, []string{"net", "os/exec"}, "data and validation start nothing"},
}

func TestNothingComesInByTheBackDoor(t *testing.T) {
	for _, rule := range reaches {
		for _, p := range packages(t) {
			if !matches(p.path(), rule.from) {
				continue
			}
			for _, dep := range p.Deps {
				if matches(dep, rule.deny) {
					t.Errorf("%s depends on %s: %s", p.path(), dep, rule.reason)
				}
			}
		}
	}
}

// dependencies is the list of other people's modules: who may import what.
// What is not here may not be imported; tests may import what they like.
var dependencies = []struct {
	module string
	users  []string
	reason string
}{
	{
		"golang.org/x/sys",
		[]string{"internal/linux/...", "internal/agent/...", "cmd/pinfold-agent", "internal/container", "internal/driver/native/...", "internal/driver/process/...", "internal/driver/docker/...", "internal/driver/gvisor/...", "internal/driver/qemu/...", "internal/driver/drivertest/...", "internal/warden/...", "test/..."},
		"the kernel is spoken to in few places",
	},
	{"github.com/moby/moby", []string{"internal/driver/docker"}, "the Docker Engine's API, as its makers say it; one driver speaks it"},
	{"github.com/containerd/errdefs", []string{"internal/driver/docker"}, "the kinds of that client's errors"},
	{"github.com/spf13/cobra", []string{"internal/cli/...", "cmd/pinfold"}, "flags are the command line's business"},
	{"github.com/spf13/pflag", []string{"internal/cli/...", "cmd/pinfold"}, "flags are the command line's business"},
	{"github.com/danielgtaylor/huma", []string{"internal/api/..."}, "the OpenAPI document and its schemas are made of it; nobody else needs to know"},
	{"github.com/coder/websocket", []string{"internal/api/...", "client", "test/..."}, "terminals are the only thing that needs frames both ways"},
	{"go.yaml.in/yaml/v4", []string{"internal/config", "internal/template/build"}, "the configuration and declarations of templates, read strictly"},
	{"github.com/google/go-cmp", []string{"internal/driver/drivertest/...", "test/..."}, "it panics by design; tests only"},
	{"golang.org/x/net", []string{"internal/egress"}, "the Public Suffix List, which says below which names anybody can have one"},
	{"golang.org/x/mod", []string{"internal/audit"}, "the tree of the audit log and its signed notes, as Go's checksum database and Certificate Transparency have them"},
	{"modernc.org/sqlite", []string{"internal/store"}, "one package knows the database"},
	{"filippo.io/age", []string{"internal/secret/vault"}, "one package encrypts what is kept: a format that others read, by an author of Go's own cryptography, and nothing of it invented here"},
	{"github.com/santhosh-tekuri/jsonschema/v6", []string{"internal/gate"}, "schemas for output: it passes the drafts' own tests, and every reference can be refused; its start is slow, so the lean program has none of it"},
	{"github.com/gabriel-vasile/mimetype", []string{"internal/gate"}, "what a file is by its content: it knows tables, workbooks, Parquet and SVG, which net/http takes for text, zip or bytes"},
	{"github.com/klauspost/compress", []string{"internal/template"}, "layers of images come compressed with zstd, too, which the standard library does not read, and with gzip, which it reads half as fast"},
	{"github.com/google/go-containerregistry", []string{"internal/template/registry"}, "one package speaks with registries: their references, their tokens, Docker's credentials"},
	{"mvdan.cc/sh/v3", []string{"internal/scan"}, "the parser of shfmt: the only kept one of Bash in Go; its recursion is bounded from outside"},
	{"github.com/tdewolff/parse/v2", []string{"internal/scan"}, "a parser of JavaScript of today that bounds its own depth; what uses it looks at programs and nothing else"},
	{"pgregory.net/rapid", []string{"internal/store/storetest/..."}, "tests only"},
	{"github.com/rogpeppe/go-internal", []string{"test/..."}, "tests only"},
}

func TestOtherPeoplesModulesStayWhereTheyBelong(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			if isStandard(t, imported) || imported == module || strings.HasPrefix(imported, module+"/") {
				continue
			}
			if why := refuse(p.path(), imported); why != "" {
				t.Errorf("%s imports %s: %s", p.path(), imported, why)
			}
		}
	}
}

// refuse says why a package may not import a module's package, or "".
func refuse(path, imported string) string {
	for _, d := range dependencies {
		if imported == d.module || strings.HasPrefix(imported, d.module+"/") {
			if matches(path, d.users) {
				return ""
			}
			return fmt.Sprintf("%s (allowed in %s)", d.reason, strings.Join(d.users, ", "))
		}
	}
	return "it is not in the table of dependencies; each one is a decision, with a reason"
}
