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
	for name, c := range map[string]struct{ in, code, field, hint string }{
		"unknown field":        {`{"langauge":"python"}`, spec, "langauge", `did you mean "language"?`},
		"wrong case":           {`{"Code":"x"}`, spec, "Code", `did you mean "code"?`},
		"nested unknown field": {`{"files":[{"path":"a"},{"pth":"b"}]}`, spec, "files[1].pth", `did you mean "path"?`},
		"unknown limit":        {`{"limits":{"memory_byte":1}}`, spec, "limits.memory_byte", `did you mean "memory_bytes"?`},
		"no near name":         {`{"zzzzzzzz":1}`, spec, "zzzzzzzz", ""},
		"mounts":               {`{"mounts":[]}`, spec, "mounts", ""},
		"escape in the name":   {`{"\u001b[2J":1}`, spec, `\x1b[2J`, ""},
		"twice":                {`{"code":"a","code":"b"}`, spec, "code", ""},
		"wrong type":           {`{"code":7}`, spec, "code", ""},
		"zero limit":           {`{"limits":{"wall_time_ms":0}}`, limit, "limits.wall_time_ms", "leave it out for the default of 30s; zero does not mean unlimited"},
		"trailing text":        {`{"code":"a"} {}`, spec, "", ""},
		"cut short":            {`{"code":`, spec, "", ""},
		"not json":             {`hello`, spec, "", ""},
		"empty":                {``, spec, "", ""},
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
