//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pinfold/test/ledger"
)

// The names and JSON types of a result, which are fixed. What stands in
// brackets is an element of a list.
var resultFields = map[string]string{
	"id": "string", "status": "string", "signal": "string", "timed_out": "bool",
	"cause": "object", "cause.kind": "string", "cause.evidence": "string",
	"stdout": "string", "stderr": "string", "stdout_truncated": "bool", "stderr_truncated": "bool",
	"stdout_bytes": "number", "stderr_bytes": "number", "results": "list",
	"artifacts": "list", "artifacts[].path": "string", "artifacts[].size": "number",
	"artifacts[].sha256": "string", "artifacts[].media_type": "string",
	"usage": "object", "usage.wall_ms": "number", "usage.cpu_ms": "number", "usage.memory_peak_bytes": "number",
	"usage.processes_peak": "number", "usage.disk_peak_bytes": "number", "usage.inodes_peak": "number",
	"usage.read_bytes": "number", "usage.written_bytes": "number",
	"isolation": "object", "isolation.driver": "string", "isolation.enforced": "list", "isolation.enforced[]": "string",
	"isolation.not_enforced": "list", "isolation.not_enforced[].what": "string",
	"isolation.not_enforced[].why": "string", "isolation.not_enforced[].fix": "string",
	"timings": "object", "timings.queue_ms": "number", "timings.create_ms": "number",
	"timings.exec_ms": "number", "timings.destroy_ms": "number",
}

// Fields whose presence or type depends on how the program ended.
var resultVariants = []struct {
	name, code string
	args       []string
	fields     map[string]string
}{
	{"succeeded", "open('plot.svg', 'w').write('<svg/>')", nil, map[string]string{"exit_code": "number"}},
	{
		"killed", "open('plot.svg', 'w').write('<svg/>')\nwhile True: pass",
		[]string{"--cpu-time", "300ms"},
		map[string]string{"exit_code": "null", "cause.limit": "number", "cause.observed": "number", "cause.hint": "string"},
	},
}

func TestResultFields(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	for _, v := range resultVariants {
		t.Run(v.name, func(t *testing.T) {
			o := start(t, bin, v.code, append([]string{"run", "--json", "-l", "python", "--artifact", "*.svg", "-"}, v.args...)...)
			var r map[string]any
			if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
				t.Fatalf("%v: %s%s", err, o.stdout, o.stderr)
			}
			if o.stderr != "" || strings.Count(o.stdout, "\n") != 1 {
				t.Errorf("more than one line of JSON: %q %q", o.stdout, o.stderr)
			}
			got := map[string]string{}
			types(got, "", r)
			for _, want := range []map[string]string{resultFields, v.fields} {
				for field, kind := range want {
					if got[field] != kind {
						t.Errorf("%s is %q, not %q", field, got[field], kind)
					}
				}
			}
			if fmt.Sprint(r["status"]) != v.name {
				t.Errorf("status %v", r["status"])
			}
		})
	}
	again(t)
}

// types notes the JSON type of everything below a value.
func types(into map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		into[path] = "object"
		for name, field := range v {
			types(into, strings.TrimPrefix(path+"."+name, "."), field)
		}
	case []any:
		into[path] = "list"
		for _, element := range v {
			types(into, path+"[]", element)
		}
	case string:
		into[path] = "string"
	case float64:
		into[path] = "number"
	case bool:
		into[path] = "bool"
	case nil:
		into[path] = "null"
	}
}

// An artifact is what the program wrote, and says so.
func TestArtifactInTheResult(t *testing.T) {
	r, _ := run(t, pinfold(t), "python", "open('plot.svg', 'w').write('<svg/>')", "--artifact", "*.svg")
	if len(r.Artifacts) != 1 {
		t.Fatalf("%+v", r.Artifacts)
	}
	a := r.Artifacts[0]
	const sum = "d4dc56669143034f31aa309635d4113d9ad76a02b1739da22c965ed2049be9e6"
	if a.Path != "plot.svg" || a.Size != 6 || a.SHA256 != sum || a.MediaType != "image/svg+xml" || string(a.Content) != "<svg/>" {
		t.Fatalf("%+v", a)
	}
}

// As an ordinary user without cgroups the limits that need one are said to be
// missing, each with its reason and its fix, and required ones are refused with
// the same fix. Root on this kind of host lacks none of them.
func TestWhatIsNotEnforced(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	r, _ := run(t, bin, "python", "print(1)")
	missing := map[string]string{}
	for _, gap := range r.Isolation.NotEnforced {
		if gap.Why == "" || (gap.Fix == "" && gap.What != "io") { // nothing changes that the sandbox has no disk
			t.Errorf("a gap without reason or fix: %+v", gap)
		}
		missing[gap.What] = gap.Fix
	}
	for _, feature := range []string{"memory", "cpus", "uid:distinct"} {
		enforced := slices.Contains(r.Isolation.Enforced, feature)
		fix, lacking := missing[feature]
		if enforced == lacking {
			t.Fatalf("%s is enforced: %v, and not enforced: %v", feature, enforced, lacking)
		}
		if os.Geteuid() == 0 && lacking {
			t.Errorf("root has no %s: %s", feature, fix)
		}
		o := start(t, bin, "print(1)", "run", "-l", "python", "--require", feature, "-")
		switch {
		case enforced && o.code != 0:
			t.Errorf("%s is enforced and refused: %+v", feature, o)
		case lacking && (o.code != 126 || o.stdout != "" || !strings.Contains(o.stderr, "hint: ") || !strings.Contains(o.stderr, fix)):
			t.Errorf("%s, exit status %d; want 126 and %q: %s%s", feature, o.code, fix, o.stdout, o.stderr)
		}
	}
	again(t)
}

// Every limit that has a flag reaches the program's result.
func TestRequestOverSpec(t *testing.T) {
	spec := `{"language": "python", "code": "import os, sys; print(sys.argv[1:], os.environ['K'], sys.stdin.read())",
		"args": ["a"], "env": {"K": "v"}, "stdin": "s", "limits": {"wall_time_ms": 5000}, "metadata": {"m": "1"}}`
	o := start(t, pinfold(t), spec, "run", "--json", "--spec", "-", "--env", "K=w")
	var r struct {
		Stdout   string
		Language string
		Metadata map[string]string
	}
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatalf("%v: %+v", err, o)
	}
	want := r
	want.Stdout, want.Language, want.Metadata = "['a'] w s\n", "python", map[string]string{"m": "1"}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
}
