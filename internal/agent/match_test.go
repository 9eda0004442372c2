//go:build linux

package agent

import (
	"path"
	"strings"
	"testing"
	"time"
)

// walked says whether a whole path is accepted, going name by name as a walk
// does.
func walked(p patterns, name string) (matches, literal bool) {
	at := p.start()
	for part := range strings.SplitSeq(name, "/") {
		if !p.goesOn(at) {
			return false, false
		}
		at = p.step(at, part)
	}
	return p.accepts(at)
}

func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		pattern string
		yes, no []string
	}{
		{"*.svg", []string{"a.svg", ".svg"}, []string{"a/b.svg", "a.png", "svg"}},
		{"a/*/c", []string{"a/b/c"}, []string{"a/c", "a/b/b/c"}},
		{"**", []string{"a", "a/b/c"}, nil},
		{"**/x", []string{"x", "a/x", "a/b/x"}, []string{"x/a", "ax"}},
		{"a/**", []string{"a/b", "a/b/c"}, []string{"b", "b/a"}},
		{"a/**/z", []string{"a/z", "a/b/z", "a/b/c/z"}, []string{"a", "z", "a/z/b"}},
		{"**/a/**/b", []string{"a/b", "x/a/y/b", "a/a/b/b"}, []string{"b/a", "a"}},
		{"**/**/x", []string{"x", "a/b/x"}, []string{"a"}},
		{"a//b/", []string{"a/b"}, []string{"a"}},
		{"[ab]?", []string{"ax", "bé"}, []string{"a", "cx"}},
		{`a\*`, []string{"a*"}, []string{"ab"}},
	} {
		p, err := compile([]string{test.pattern})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range test.yes {
			if ok, _ := walked(p, name); !ok {
				t.Errorf("%q does not match %q", test.pattern, name)
			}
		}
		for _, name := range test.no {
			if ok, _ := walked(p, name); ok {
				t.Errorf("%q matches %q", test.pattern, name)
			}
		}
	}
}

func TestLiteralPatterns(t *testing.T) {
	p, err := compile([]string{"*.txt", "dir/a.txt"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"dir/a.txt": true, "b.txt": false} {
		if ok, literal := walked(p, name); !ok || literal != want {
			t.Errorf("%s: matches %v, literal %v", name, ok, literal)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for name, globs := range map[string][]string{
		"malformed": {"[a"},
		"too long":  {strings.Repeat("a/", maxStates)},
		"too many":  strings.Split(strings.Repeat("**/a,", maxStates), ","),
	} {
		if _, err := compile(globs); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The worst pattern there is must not make one entry expensive.
func TestWorstPatternIsCheap(t *testing.T) {
	p, err := compile([]string{strings.Repeat("**/*/", maxStates/2-2) + "x"})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	at := p.start()
	for range 20 {
		at = p.step(at, strings.Repeat("a", 200))
	}
	if d := time.Since(begin); d > time.Second || len(at) > maxStates {
		t.Fatalf("%d states after %v", len(at), d)
	}
}

func FuzzPatterns(f *testing.F) {
	f.Add("**/*.svg", "a/b.svg")
	f.Add("a/[b-c]/**", "a/b/c")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		p, err := compile([]string{pattern})
		if err != nil {
			return
		}
		got, _ := walked(p, name)
		// Without "**" the meaning is path.Match's.
		clean := strings.Join(p[0].parts, "/")
		if !strings.Contains(clean, "**") && clean == pattern && pattern != "" && !strings.ContainsAny(pattern, `[\`) {
			if want, err := path.Match(pattern, name); err == nil && got != want && path.Clean(name) == name {
				t.Fatalf("%q on %q: %v, path.Match says %v", pattern, name, got, want)
			}
		}
	})
}

func FuzzEntries(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x18\x00\x08name\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, e := range parseEntries(b) {
			if e.name == "." || e.name == ".." || strings.IndexByte(e.name, 0) >= 0 {
				t.Fatalf("entry %q", e.name)
			}
		}
	})
}
