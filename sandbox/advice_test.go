package sandbox

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// constructed has a fix of every constructor, as JSON and as Go say it.
var constructed = map[string]struct {
	fix        Fix
	json, inGo string
}{
	"Text":        {Text("try again"), "try again", "try again"},
	"Set":         {Set("limits.memory_bytes", 64<<20), `"limits": {"memory_bytes": 67108864}`, "Limits.MemoryBytes = 67108864"},
	"Omit":        {Omit("allowed_imports"), "leave allowed_imports out", "leave AllowedImports out"},
	"Copy":        {Copy("site"), `site in "files"`, "site in Files"},
	"HostCommand": {HostCommand("sudo -s"), "sudo -s", "sudo -s"},
	"Config":      {Config("capacity.cpus"), "capacity.cpus in the server's configuration", "Options.Capacity"},
	"Call":        {Call(CallListPools), "GET /v1/pools", "Pools"},
}

// Every constructor makes a fix of a kind that is listed, and both edges of this
// package have words for it.
func TestEveryFix(t *testing.T) {
	kinds := map[FixKind]bool{}
	for _, name := range constructors(t) {
		c, ok := constructed[name]
		if !ok {
			t.Errorf("%s is not tested", name)
			continue
		}
		kinds[c.fix.Kind] = true
		if got := c.fix.JSON(); got != c.json {
			t.Errorf("%s in JSON: %s", name, got)
		}
		if got := (Advice{c.fix}).String(); got != c.inGo {
			t.Errorf("%s in Go: %s", name, got)
		}
	}
	for _, kind := range FixKinds() {
		if !kinds[kind] {
			t.Errorf("nothing makes a fix of kind %s", kind)
		}
		delete(kinds, kind)
	}
	if len(kinds) > 0 {
		t.Errorf("kinds that FixKinds does not list: %v", kinds)
	}
}

// constructors are the functions of advice.go that return a Fix.
func constructors(t *testing.T) (names []string) {
	file, err := parser.ParseFile(token.NewFileSet(), "advice.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Type.Results == nil {
			continue
		}
		if of, ok := f.Type.Results.List[0].Type.(*ast.Ident); ok && of.Name == "Fix" {
			names = append(names, f.Name.Name)
		}
	}
	if len(names) < 7 {
		t.Fatalf("only %v", names)
	}
	return names
}

// Values are written as Go's compiler and as JSON want them.
func TestValuesOfFixes(t *testing.T) {
	for _, c := range []struct {
		fix        Fix
		json, inGo string
	}{
		{Set("cold", true), `"cold": true`, "Cold = true"},
		{Set("language", "python"), `"language": "python"`, `Language = "python"`},
		{Set("limits.cpus", 0.5), `"limits": {"cpus": 0.5}`, "Limits.CPUs = 0.5"},
		{Set("warm", []string{"numpy", "xml"}), `"warm": ["numpy", "xml"]`, `Warm = []string{"numpy", "xml"}`},
		{Set("env", map[string]string{"A": "b"}), `"env": {"A": "b"}`, `Env = map[string]string{"A":"b"}`},
		{Set("ttl_ms", 600_000), `"ttl_ms": 600000`, "TTLMS = 600000"},
		{Set("max", 5), `"max": 5`, "Max = 5"},
		{Set("terminal", Terminal{Cols: 80, Rows: 24}), `"terminal": {"cols": 80, "rows": 24}`, "Terminal = &sandbox.Terminal{Cols:80, Rows:24}"},
		{Set("unknown", 1), `"unknown": 1`, `"unknown": 1`},
	} {
		if got := [2]string{c.fix.JSON(), c.fix.inGo()}; got != [2]string{c.json, c.inGo} {
			t.Errorf("%+v: %q", c.fix, got)
		}
	}
}

// A hint travels as a text in the words of JSON and, where it is more, as data.
func TestAdviceTravels(t *testing.T) {
	e := (&Error{Code: "x", Message: "m"}).WithAdvice(Advise("write %s, or less", Set("limits.processes", 8)))
	const want = `{"code":"x","message":"m","hint":"write \"limits\": {\"processes\": 8}, or less",` +
		`"advice":[{"kind":"text","text":"write "},{"kind":"set","name":"limits.processes","value":8},{"kind":"text","text":", or less"}]}`
	got, err := json.Marshal(e)
	if err != nil || string(got) != want {
		t.Fatalf("%s %v", got, err)
	}
	var back Error
	if err := json.Unmarshal(got, &back); err != nil || !cmp.Equal(&back, e) {
		t.Errorf("%+v %v", back, err)
	}
	if plain := e.WithAdvice(Advise("try again")); plain.Hint != "try again" || plain.Advice != nil {
		t.Errorf("a text alone: %+v", plain)
	}
	if other := e.WithHint("try again"); other.Advice != nil {
		t.Errorf("another hint: %+v", other)
	}
	if !slices.Contains(Calls(), CallCreateSandbox) || (Advice{{Kind: "?"}, Text("x")}).Say(Fix.JSON) != "" {
		t.Error("an unknown kind has words")
	}
}
