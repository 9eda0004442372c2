package sandbox

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "1k": 1024, "64MiB": 64 << 20, "1.5GiB": 3 << 29, "10MB": 10_000_000, "2 TiB": 2 << 40, "7b": 7,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"1.5", "0.5b", "", "-1", "MiB", "1XiB", "99999999999TiB", "1e400", "NaN", "0x10", "١"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]int64{"2s": 2000, "500ms": 500, "1m30s": 90_000, "1us": 1, "0s": 0} {
		if got, err := ParseTime(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "-1s", "1y", "99999999999h"} {
		if got, err := ParseTime(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

func TestFormatQuantity(t *testing.T) {
	for _, c := range []struct {
		v    int64
		u    Unit
		want string
	}{
		{256 << 20, UnitBytes, "256MiB"},
		{1<<28 + 1, UnitBytes, "268435457B"},
		{3 << 29, UnitBytes, "1.5GiB"},
		{0, UnitBytes, "0B"},
		{30_000, UnitMilliseconds, "30s"},
		{500, UnitMilliseconds, "500ms"},
		{90_000, UnitMilliseconds, "1m30s"},
		{3_600_000, UnitMilliseconds, "1h"},
		{1_000_000_000_000_000, UnitMilliseconds, "1000000000000000ms"}, // more than a time.Duration holds
		{-1_000_000_000_000_000, UnitMilliseconds, "-1000000000000000ms"},
		{64, UnitCount, "64"},
	} {
		got := FormatQuantity(c.v, c.u)
		if got != c.want {
			t.Errorf("%d %s: %q, want %q", c.v, c.u, got, c.want)
		}
	}
}

func TestLimitsJSON(t *testing.T) {
	for text, field := range map[string]string{
		`{"memory_bytes": 0}`:              "limits.memory_bytes",
		`{"wall_time_ms": -1}`:             "limits.wall_time_ms",
		`{"processes": 1.5}`:               "limits.processes",
		`{"disk_bytes": 1e30}`:             "limits.disk_bytes",
		`{"inodes": 99999999999999999999}`: "limits.inodes",
		`{"memory": 1}`:                    "limits.memory",
		`{"cpus": 0}`:                      "limits.cpus",
		`{"cpus": "1"}`:                    "limits.cpus",
		`[]`:                               "limits",
	} {
		var l Limits
		var e *Error
		if err := json.Unmarshal([]byte(text), &l); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v, want an error about %s", text, err, field)
		}
	}
	var l Limits
	if err := json.Unmarshal([]byte(`{"cpus": 0.5, "memory_bytes": 67108864, "inodes": null}`), &l); err != nil {
		t.Fatal(err)
	}
	want := DefaultLimits()
	want.CPUs, want.MemoryBytes = 0.5, 64<<20
	if d := cmp.Diff(want, l.WithDefaults()); d != "" {
		t.Fatal(d)
	}
}

// Only who wrote zero, or less, is told what zero does not mean.
func TestLimitHint(t *testing.T) {
	info := LimitTable()[2]
	for value, want := range map[int64]bool{0: true, -1: true, 1: false, info.Max + 1: false} {
		e := AsError(info.Check(value))
		if strings.Contains(e.Hint, "zero") != want || !strings.Contains(e.Hint, "256MiB") {
			t.Errorf("%d: hint %q", value, e.Hint)
		}
	}
}

// Zero never means infinite, whatever is left out.
func TestNoLimitIsMissing(t *testing.T) {
	l := Limits{}.WithDefaults()
	for _, info := range LimitTable() {
		if l.Get(info.Field) <= 0 {
			t.Errorf("%s has no default", info.Field)
		}
		if err := (Limits{}).Validate(); err != nil {
			t.Error(err)
		}
		over := Limits{}
		over.Set(info.Field, info.Max+1)
		if err := over.Validate(); err == nil {
			t.Errorf("%s: no upper bound", info.Field)
		}
	}
	for _, v := range []float64{0, -1, math.NaN(), math.Inf(1), 1e9} {
		if CheckCPUs(v) == nil {
			t.Errorf("%v CPUs accepted", v)
		}
	}
}

func TestGuestPath(t *testing.T) {
	for _, p := range []string{"a", "a/b.txt", "ünï.txt", "-x", ".hidden", "a b"} {
		if err := CheckGuestPath("f", p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []string{
		"", "../x", "/abs", "a/../../x", "link/", "link/.", "a//b", ".", "..", "a\x00b", "a\nb", strings.Repeat("a", 5000),
		"a\xff", "a\u202Eb", "a\x1b[2J", strings.Repeat("b", 256),
	} {
		var e *Error
		if err := CheckGuestPath("f", p); !errors.As(err, &e) || e.Code != CodePathInvalid || e.Field != "f" {
			t.Errorf("%.40q: %v", p, err)
		} else if SafeText(e.Message, 10_000) != e.Message {
			t.Errorf("%.40q: the message is not printable: %q", p, e.Message)
		}
	}
}

func TestSpecValidate(t *testing.T) {
	good := Spec{Code: "x"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*Spec){
		"code":                    func(s *Spec) { s.Code = "" },
		"entrypoint":              func(s *Spec) { s.Entrypoint = "a" },
		"limits.memory_bytes":     func(s *Spec) { s.Limits.MemoryBytes = -1 },
		"files[0].path":           func(s *Spec) { s.Files = []File{{Path: "../x"}} },
		"files[1].path":           func(s *Spec) { s.Files = []File{{Path: "a"}, {Path: "/a"}} },
		"files[0]":                func(s *Spec) { s.Files = []File{{Path: "a", Content: "x", ContentBase64: "eA=="}} },
		"files[0].content_base64": func(s *Spec) { s.Files = []File{{Path: "a", ContentBase64: "!"}} },
		"args[0]":                 func(s *Spec) { s.Args = []string{"a\x00"} },
		"env.A=B":                 func(s *Spec) { s.Env = map[string]string{"A=B": "x"} },
		"artifacts[0]":            func(s *Spec) { s.Artifacts = []string{"[x"} },
		"require[0]":              func(s *Spec) { s.Require = []string{"magic"} },
		"network":                 func(s *Spec) { s.Network.Mode = "host" },
		"allowed_imports[0]":      func(s *Spec) { s.AllowedImports = []string{"xml.dom"} },
		"allowed_imports[1]":      func(s *Spec) { s.AllowedImports = []string{"json", "a,b"} },
		"allowed_imports[2]":      func(s *Spec) { s.AllowedImports = []string{"größe", "_x1", ""} },
		"allowed_imports":         func(s *Spec) { s.AllowedImports = make([]string, MaxImports+1) },
		"mounts[0]":               func(s *Spec) { s.Mounts = []Mount{{Host: "relative", Guest: "/x"}} },
	} {
		s := good
		change(&s)
		var e *Error
		if err := s.Validate(); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// An empty list is another wish than none, also after it has travelled.
func TestAllowedImportsTravel(t *testing.T) {
	for _, imports := range [][]string{nil, {}, {"json"}} {
		b, err := json.Marshal(Spec{Code: "x", AllowedImports: imports})
		if err != nil {
			t.Fatal(err)
		}
		var got Spec
		if err := json.Unmarshal(b, &got); err != nil || (got.AllowedImports == nil) != (imports == nil) || len(got.AllowedImports) != len(imports) {
			t.Errorf("%#v arrives as %#v: %v", imports, got.AllowedImports, err)
		}
	}
}

func TestRichJSON(t *testing.T) {
	const text = `{"application/json":{"n":12345678901234567890},"text/plain":"a"}`
	var r Rich
	if err := json.Unmarshal([]byte(text), &r); err != nil || r["text/plain"] != "a" {
		t.Fatalf("%v %v", r, err)
	}
	if b, err := json.Marshal(r); err != nil || string(b) != text {
		t.Fatalf("%s %v", b, err)
	}
	if err := json.Unmarshal([]byte(`[]`), &r); err == nil {
		t.Fatal("a list is taken for a value")
	}
}

func TestSatisfies(t *testing.T) {
	for _, c := range []struct {
		enforced, required string
		want               bool
	}{
		{"memory", "memory", true},
		{"landlock:7", "landlock", true},
		{"landlock:7", "landlock:6", true},
		{"landlock:7", "landlock:8", false},
		{"landlock", "landlock:1", false},
		{"network:none", "network", false},
		{"network:none", "network:none", true},
		{"seccomp", "memory", false},
	} {
		if got := Satisfies(c.enforced, c.required); got != c.want {
			t.Errorf("%s for %s: %v", c.enforced, c.required, got)
		}
	}
	if KnownFeature("magic") || !KnownFeature("landlock:6") || !KnownFeature("network:none") {
		t.Error("KnownFeature is wrong")
	}
}

func FuzzSafeText(f *testing.F) {
	f.Add("a\x1b]0;title\x07b\u202Ec\xff")
	f.Fuzz(func(t *testing.T, s string) {
		out := SafeText(s, 100)
		if !utf8.ValidString(out) || strings.ContainsAny(out, "\x1b\x07\r\n\u202e\u2066") {
			t.Fatalf("%q became %q", s, out)
		}
	})
}

func FuzzLimitsJSON(f *testing.F) {
	f.Add(`{"memory_bytes": 1, "cpus": 0.1}`)
	f.Fuzz(func(t *testing.T, s string) {
		var l Limits
		if json.Unmarshal([]byte(s), &l) == nil && l.Validate() != nil {
			t.Fatalf("%s was accepted", s)
		}
	})
}
