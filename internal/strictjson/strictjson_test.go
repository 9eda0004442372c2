package strictjson

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pinfold/sandbox"
)

func TestDecodeSpec(t *testing.T) {
	var got sandbox.Spec
	err := Decode([]byte(`{"language":"python","code":"print(1)","limits":{"memory_bytes":16777216},"files":[{"path":"a","content":"b"}],"env":{"Any":"name"}}`), &got)
	if err != nil {
		t.Fatal(err)
	}
	want := sandbox.Spec{
		Language: "python", Code: "print(1)", Limits: sandbox.Limits{MemoryBytes: 16 << 20},
		Files: []sandbox.File{{Path: "a", Content: "b"}}, Env: map[string]string{"Any": "name"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("decoded spec (-want +got):\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	const spec, limit = sandbox.CodeSpecInvalid, sandbox.CodeLimitInvalid
	const all = "the fields are allowed_imports, args, artifacts, code, cold, driver, entrypoint, env, files, gate, isolation, language, limits, metadata, network, output_base64, packages, profile, require, scan, stdin, template, warm"
	for name, c := range map[string]struct{ in, code, field, hint string }{
		"unknown field":        {`{"langauge":"python"}`, spec, "langauge", `did you mean "language"?`},
		"wrong case":           {`{"Code":"x"}`, spec, "Code", `did you mean "code"?`},
		"nested unknown field": {`{"files":[{"path":"a"},{"pth":"b"}]}`, spec, "files[1].pth", `did you mean "path"?`},
		"unknown limit":        {`{"limits":{"memory_byte":1}}`, spec, "limits.memory_byte", `did you mean "memory_bytes"?`},
		"no near name":         {`{"zzzzzzzz":1}`, spec, "zzzzzzzz", all},
		"mounts":               {`{"mounts":[]}`, spec, "mounts", all},
		"escape in the name":   {`{"\u001b[2J":1}`, spec, `\x1b[2J`, all},
		"twice":                {`{"code":"a","code":"b"}`, spec, "code", "leave one of the two out"},
		"wrong type":           {`{"code":7}`, spec, "code", `write "code": "7"`},
		"one for a list":       {`{"warm":"numpy"}`, spec, "warm", `write "warm": ["numpy"]`},
		"in a list":            {`{"args":["a",5]}`, spec, "args[1]", `write "5"`},
		"null in a list":       {`{"args":["a",null,"b"]}`, spec, "args[1]", "leave it out"},
		"null for a file":      {`{"files":[null]}`, spec, "files[0]", "leave it out"},
		"null in a map":        {`{"env":{"x":null}}`, spec, "env.x", "leave it out"},
		"half a pair":          {`{"code":"a\\\ud800\u0041"}`, spec, "code", `write the character itself, or both halves: \ud83d\ude00`},
		"the other half":       {`{"args":["\ud83d\ude00\udc00"]}`, spec, "args[0]", `write the character itself, or both halves: \ud83d\ude00`},
		"half a name":          {`{"env":{"\ud800":"x"}}`, spec, "env", `write the character itself, or both halves: \ud83d\ude00`},
		"a list for one":       {`{"language":["python"]}`, spec, "language", `write "language": "python"`},
		"a number for a word":  {`{"language":3}`, spec, "language", `write "language": "python"`},
		"files by name":        {`{"files":{"a.py":"print(1)"}}`, spec, "files", `write "files": [{"path": "data.csv", "content": "a,b"}]`},
		"a list of packages":   {`{"packages":["rich"]}`, spec, "packages", `write "packages": {"python": ["rich==13.9.4"]}`},
		"one package":          {`{"packages":{"python":"rich"}}`, spec, "packages.python", `write "python": ["rich==VERSION"]`},
		"one of a version":     {`{"packages":{"npm":"@a/b@1.0.0"}}`, spec, "packages.npm", `write "npm": ["@a/b@1.0.0"]`},
		"one without":          {`{"packages":{"npm":"@a/b"}}`, spec, "packages.npm", `write "npm": ["@a/b@VERSION"]`},
		"packages by name":     {`{"packages":{"npm":{"a":"1.0.0"}}}`, spec, "packages.npm", `write "npm": ["left-pad@1.3.0"]`},
		"artifacts by name":    {`{"artifacts":{"a":true}}`, spec, "artifacts", `write "artifacts": ["*.png"]`},
		"another API's name":   {`{"files":[{"name":"a"}]}`, spec, "files[0].name", `did you mean "path"?`},
		"another word for it":  {`{"image":"host"}`, spec, "image", `did you mean "template"?`},
		"a name that is none":  {`{"cwd":"/"}`, spec, "cwd", all},
		"a command for code":   {`{"cmd":["x"]}`, spec, "cmd", all},
		"word for a truth":     {`{"cold":"yes"}`, spec, "cold", `write "cold": true`},
		"no for a truth":       {`{"cold":0}`, spec, "cold", `write "cold": false`},
		"text for an object":   {`{"env":"A=b"}`, spec, "env", `write "env": {"NAME": "value"}`},
		"limits as a list":     {`{"limits":[1]}`, spec, "limits", `write "limits": {"memory_bytes": 268435456}`},
		"size as text":         {`{"limits":{"memory_bytes":"64MiB"}}`, limit, "limits.memory_bytes", `write "limits": {"memory_bytes": 67108864}`},
		"size as nonsense":     {`{"limits":{"memory_bytes":"lots"}}`, limit, "limits.memory_bytes", `write "limits": {"memory_bytes": 268435456}`},
		"time as text":         {`{"limits":{"wall_time_ms":"5s"}}`, limit, "limits.wall_time_ms", `write "limits": {"wall_time_ms": 5000}`},
		"time in seconds":      {`{"limits":{"wall_time_ms":0.5}}`, limit, "limits.wall_time_ms", `write "limits": {"wall_time_ms": 1}`},
		"count as text":        {`{"limits":{"processes":"8"}}`, limit, "limits.processes", `write "limits": {"processes": 8}`},
		"CPUs as text":         {`{"limits":{"cpus":"0.5"}}`, limit, "limits.cpus", `write "limits": {"cpus": 0.5}`},
		"too small a size":     {`{"limits":{"memory_bytes":64}}`, limit, "limits.memory_bytes", `write "limits": {"memory_bytes": 268435456}, or leave it out for that default`},
		"a limit's flag":       {`{"timeout":5}`, spec, "timeout", `write "limits": {"wall_time_ms": 30000}`},
		"a flag with a line":   {`{"cpu-time":5}`, spec, "cpu-time", `write "limits": {"cpu_time_ms": 30000}`},
		"a limit outside":      {`{"memory_bytes":5}`, spec, "memory_bytes", `write "limits": {"memory_bytes": 268435456}`},
		"a flag among limits":  {`{"limits":{"memory":5}}`, spec, "limits.memory", `did you mean "memory_bytes"?`},
		"escapes in a value":   {`{"warm":"\u001b[2J"}`, spec, "warm", `write "warm": ["\u001b[2J"]`},
		"zero limit":           {`{"limits":{"wall_time_ms":0}}`, limit, "limits.wall_time_ms", `write "limits": {"wall_time_ms": 30000}, or leave it out for that default; zero does not mean unlimited`},
		"trailing text":        {`{"code":"a"} {}`, spec, "", ""},
		"cut short":            {`{"code":`, spec, "", "send all of it: each {, [ and \" needs the one that closes it"},
		"not json":             {`hello`, spec, "", ""},
		"empty":                {``, spec, "", "send a JSON object with language and code, or with files and entrypoint"},
		"only spaces":          {" \n", spec, "", "send a JSON object with language and code, or with files and entrypoint"},
		"deep":                 {strings.Repeat("[", 1<<20), spec, "", ""},
		"a list":               {`[]`, spec, "", ""},
		"too many values":      {`{"args":[` + strings.Repeat(`"",`, 200_000) + `""]}`, spec, "", ""},
		"bytes, not text":      {"{\"code\":\"\xff\xfe\"}", spec, "", "send bytes that are not text as a file, with content_base64"},
		"cut surrogate":        {"{\"code\":\"\xed\xa0\x80\"}", spec, "", "send bytes that are not text as a file, with content_base64"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Decode([]byte(c.in), new(sandbox.Spec))
			if err == nil {
				t.Fatal("no error")
			}
			e := sandbox.AsError(err)
			got := []string{e.Code, e.Field, e.Hint}
			if diff := cmp.Diff([]string{c.code, c.field, c.hint}, got); diff != "" {
				t.Fatalf("%v (-want +got):\n%s", e, diff)
			}
		})
	}
}

// What would silently mean the default is refused where a field says so; beside it, zero
// and empty text are values, and what is left out or null has the default.
func TestDecodeRefusesZero(t *testing.T) {
	for _, c := range []struct {
		in, field, says string
		into            any
	}{
		{`{"snapshot": ""}`, "snapshot", "is empty", new(sandbox.Create)},
		{`{"ttl_ms": 0}`, "ttl_ms", "is 0", new(sandbox.Create)},
		{`{"idle_ms": -0.0}`, "idle_ms", "", new(sandbox.Create)},
		{`{"ttl_ms": 0}`, "ttl_ms", "is 0", new(sandbox.TakeSnapshot)},
		{`{"isolation": ""}`, "isolation", "is empty", new(sandbox.Create)},
		{`{"on_out_of_memory": ""}`, "on_out_of_memory", "is empty", new(sandbox.Create)},
		{`{"template": ""}`, "template", "is empty", new(sandbox.Spec)},
		{`{"driver": ""}`, "driver", "is empty", new(sandbox.Spec)},
		{`{"count": 0}`, "count", "is 0", new(sandbox.ForkSandbox)},
		{`{"ttl_ms": 0}`, "ttl_ms", "is 0", new(sandbox.ForkSandbox)},
		{`{"shell": "x", "wall_time_ms": 0}`, "wall_time_ms", "is 0", new(sandbox.Command)},
		{`{"shell": "x", "output_bytes": 0}`, "output_bytes", "is 0", new(sandbox.Command)},
	} {
		e := sandbox.AsError(Decode([]byte(c.in), c.into))
		if e == nil || e.Code != sandbox.CodeSpecInvalid || e.Field != c.field || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: %+v", c.in, e)
			continue
		}
		if want := "leave " + c.field + " out for the default"; c.says != "" && e.Hint != want {
			t.Errorf("%s: the hint is %q, want %q", c.in, e.Hint, want)
		}
	}
	for in, into := range map[string]any{
		`{"name": "", "ttl_ms": null}`:                                           new(sandbox.TakeSnapshot),
		`{"metadata": {"a": "", "b": "\ufffd\ud83d\ude00\\ud800"}, "env": null}`: new(sandbox.Create),
		`{"count": 1, "ttl_ms": 100}`:                                            new(sandbox.ForkSandbox),
	} {
		if err := Decode([]byte(in), into); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// Who sends nothing is told what must be sent, and not {} where that is refused.
func TestNothingIsToldWhatIsNeeded(t *testing.T) {
	for want, into := range map[string]any{
		"send {}, with the fields that are to differ from their defaults": new(sandbox.Create),
		"send a JSON object with args, or with shell":                     new(sandbox.Command),
		"send a JSON object with cols and rows":                           new(sandbox.Terminal),
		"send a JSON object with port": new(struct {
			Port int `json:"port"`
			TTL  int `json:"ttl_ms,omitempty"`
		}),
	} {
		if e := sandbox.AsError(Decode([]byte(" "), into)); e == nil || e.Hint != want {
			t.Errorf("%T: %+v", into, e)
		}
	}
}

// What people write in the request of a process, and what they meant.
func TestDecodeCommand(t *testing.T) {
	for in, want := range map[string][2]string{
		`{"args":"ls -l"}`:                        {"args", `write "args": ["ls", "-l"], or "shell": "ls -l"`},
		`{"args":"ls"}`:                           {"args", `write "args": ["ls"], or "shell": "ls"`},
		`{"args":"ls | wc"}`:                      {"args", `write "shell": "ls | wc"`},
		`{"args":""}`:                             {"args", `write "args": [""]`},
		`{"args":["cat"],"stdin":"hallo"}`:        {"stdin", `write "stdin": true, and start it without ?wait=true; then send the text with POST to its /stdin, and its end with DELETE`},
		`{"shell":"x","limits":{"cpus":1}}`:       {"limits", `write "wall_time_ms": 30000 without "limits"; the other limits are the sandbox's`},
		`{"shell":"x","timeout_ms":500}`:          {"timeout_ms", `did you mean "wall_time_ms"?`},
		`{"shell":"x","cwd":"/"}`:                 {"cwd", `did you mean "dir"?`},
		`{"cmd":["x"]}`:                           {"cmd", `did you mean "args"?`},
		`{"Command":"ls"}`:                        {"Command", `did you mean "args"?`},
		`{"shell":"x","timeout":5}`:               {"timeout", `did you mean "wall_time_ms"?`},
		`{"shell":"x","terminal":{"args":"a b"}}`: {"terminal.args", "the fields are cols, rows"},
	} {
		e := sandbox.AsError(Decode([]byte(in), new(sandbox.Command)))
		if e == nil || e.Field != want[0] || e.Hint != want[1] {
			t.Errorf("%s: %+v", in, e)
			continue
		}
		if hint, ok := strings.CutPrefix(e.Hint, "write "); ok { // what is to be pasted is accepted
			hint, _, _ = strings.Cut(hint, ", or ")
			hint, _, _ = strings.Cut(hint, ", and ")
			hint, _, _ = strings.Cut(hint, " without ")
			if err := Decode([]byte("{"+hint+"}"), new(sandbox.Command)); err != nil {
				t.Errorf("%s: the hint %s: %v", in, hint, err)
			}
		}
	}
}

// A small text must not become a large heap: 40 MiB of {} took 2.65 GiB before
// anybody counted them.
func TestManyEmptyValuesAreRefusedBeforeTheyAreMade(t *testing.T) {
	for name, c := range map[string]struct{ head, part, tail string }{
		"files":   {`{"files":[`, `{},`, `{}]}`},
		"args":    {`{"args":[`, `"",`, `""]}`},
		"nested":  {`{"files":[`, `[[]],`, `[]]}`},
		"escaped": {`{"code":"\\",`, `"x":"\"",`, `"y":1}`},
	} {
		data := []byte(c.head + strings.Repeat(c.part, 8<<20/len(c.part)) + c.tail)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := Decode(data, new(sandbox.Spec))
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "more than 100000 values") {
			t.Errorf("%s: %v", name, err)
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 1<<20 {
			t.Errorf("%s: %d bytes were made of it", name, made)
		}
	}
}

// What a request may hold at most stays below the bound, and text that looks
// like JSON is text.
func TestTheLargestRequestIsDecoded(t *testing.T) {
	spec := sandbox.Spec{Language: "python", Code: strings.Repeat(`"},[{,\`, 200_000)}
	for range sandbox.MaxFiles {
		spec.Files = append(spec.Files, sandbox.File{Path: "a", Content: "b"})
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var got sandbox.Spec
	if err := Decode(data, &got); err != nil || len(got.Files) != sandbox.MaxFiles || got.Code != spec.Code {
		t.Fatalf("%v, %d files", err, len(got.Files))
	}
}

// Whatever a hint says to write can be decoded in the place of what was wrong.
func TestHintsWorkWhenPasted(t *testing.T) {
	for _, in := range []string{
		`{"warm":"numpy"}`, `{"code":7}`, `{"cold":"no"}`, `{"env":[1]}`, `{"limits":{"memory_bytes":"1.5GiB"}}`, `{"limits":{"memory_bytes":"8ZiB"}}`,
		`{"limits":{"wall_time_ms":"forever"}}`, `{"limits":{"wall_time_ms":1e300}}`, `{"limits":{"cpus":"many"}}`, `{"limits":{"inodes":0}}`, `{"timeout":"5s"}`, `{"args":"x\"y\u0000"}`,
		`{"language":3}`, `{"files":{}}`, `{"packages":[]}`, `{"limits":[]}`, `{"artifacts":{}}`,
	} {
		e := sandbox.AsError(Decode([]byte(in), new(sandbox.Spec)))
		if e == nil || e.Field == "" {
			t.Errorf("%s: %v", in, e)
			continue
		}
		member, _, _ := strings.Cut(strings.TrimPrefix(e.Hint, "write "), ", or leave")
		if err := Decode([]byte("{"+member+"}"), new(sandbox.Spec)); err != nil {
			t.Errorf("%s: %q: %v", in, e.Hint, err)
		}
	}
	for in, want := range map[string]string{`{"ttl":600}`: `did you mean "ttl_ms"?`, `{"idle_seconds":600}`: `did you mean "idle_ms"?`} {
		if e := sandbox.AsError(Decode([]byte(in), new(sandbox.Create))); e == nil || e.Hint != want {
			t.Errorf("%s: %+v", in, e)
		}
	}
	for in, want := range map[string]string{
		`{"ttl_ms":"10m"}`: `write "ttl_ms": 600000`, `{"ttl_ms":"soon"}`: `write "ttl_ms": 30000`, `{"ttl_ms":1.5}`: `write "ttl_ms": 2`, `{"ttl_ms":1e99}`: `write "ttl_ms": 30000`,
	} {
		if e := sandbox.AsError(Decode([]byte(in), new(sandbox.Create))); e == nil || e.Hint != want || !strings.Contains(e.Message, "whole number") {
			t.Errorf("%s: %+v", in, e)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"language":"python","limits":{"cpus":1},"files":[{"path":"a"}]}`))
	f.Add([]byte(`{"code":"a","code":"b"}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var spec sandbox.Spec
		if err := Decode(data, &spec); err == nil && !json.Valid(data) {
			t.Fatalf("accepted what is not JSON: %q", data)
		}
	})
}

// Bytes are base64, and what is not is the request's fault.
func TestDecodeRefusesBytes(t *testing.T) {
	var into struct {
		Content []byte `json:"content_base64"`
	}
	err := sandbox.AsError(Decode([]byte(`{"content_base64":"!!"}`), &into))
	if err == nil || err.Code != sandbox.CodeSpecInvalid || !strings.Contains(err.Message, "base64") {
		t.Error(err)
	}
}
