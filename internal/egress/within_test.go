package egress

import (
	"math/rand/v2"
	"strings"
	"testing"

	"pinfold/sandbox"
)

func TestPathsWithinPaths(t *testing.T) {
	for text, want := range map[string]bool{
		"/a /a": true, "/** /a": true, "/** /a/**": true, "/a/** /a/b": true, "/a/** /a/*/c": true, "/a/** /a/b/**": true, "/a/** /a/**": true,
		"/*/b /a/b": true, "/*/b /*/b": true, "/a*/b /ab*/b": true, "/*x* /axb*": true, "/a/** /a/*.git": true, "/ /": true, "/a/ /a/": true,
		"/*/** /a/**": true, "/a/** /a/*/**": true, "/* /": true,

		"/a /b": false, "/a /a/": false, "/a/** /a": false, "/a/** /a/": false, "/a/** /**": false, "/a/b /a/*": false, "/a/b /a/**": false,
		"/a/** /a/*": false, "/** /*": false, "/** /": false, // these stand for a slash at the end, too
		"/ab* /a*": false, "/*/b /*/*": false, "/a/** /ab/c": false, "/a/** /*/b": false, "/a* /a/b": false, "/a/*/c /a/**": false,
		"/a*a /a": false, "/x*y /x*": false,
	} {
		wide, narrow, _ := strings.Cut(text, " ")
		if Covers(wide, narrow) != want {
			t.Errorf("%s: not %v", text, want)
		}
	}
}

// What is taken for narrower lets no path pass that the wider one does not. Among so many
// pairs there are some that are, and others that have a path outside.
func TestNothingPassesBesideTheWiderPath(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same ones each time
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	path := func(words ...string) string {
		var b strings.Builder
		for range 1 + r.IntN(3) {
			b.WriteString("/")
			for range r.IntN(4) {
				b.WriteString(pick(words...))
			}
		}
		return b.String()
	}
	pattern := func() string {
		p := strings.ReplaceAll(strings.ReplaceAll(path("a", "b", "*"), "**", "*"), "**", "*")
		return p + pick("", sandbox.Below)
	}
	var paths [][]string
	for range 500 {
		paths = append(paths, strings.Split(path("a", "b", "/")[1:], "/"))
	}
	within, outside := 0, 0
	for range 20_000 {
		wide, narrow := pattern(), pattern()
		covered, beside := Covers(wide, narrow), false
		for _, p := range paths {
			if beside = matches(narrow, p) && !matches(wide, p); beside && covered {
				t.Fatalf("%s is within %s, but %q is not", narrow, wide, p)
			}
			if beside {
				break
			}
		}
		if covered {
			within++
		}
		if beside {
			outside++
		}
	}
	if within < 100 || outside < 100 {
		t.Errorf("%d within, %d outside", within, outside)
	}
}

func TestWithin(t *testing.T) {
	rule := func(methods []string, paths ...string) sandbox.Endpoint {
		return sandbox.Endpoint{Methods: methods, Paths: paths}
	}
	get, both := []string{"GET"}, []string{"GET", "POST"}
	for name, c := range map[string]struct {
		asked   sandbox.Endpoint
		allowed []sandbox.Endpoint
		by      int
	}{
		"all of all":                    {rule(nil), []sandbox.Endpoint{rule(nil)}, 1},
		"less of all":                   {rule(get, "/a"), []sandbox.Endpoint{rule(nil)}, 1},
		"the same":                      {rule(get, "/a"), []sandbox.Endpoint{rule(get, "/a")}, 1},
		"each of several":               {rule(both, "/a"), []sandbox.Endpoint{rule([]string{"POST"}, "/a"), rule(get, "/**")}, 2},
		"a method of several":           {rule(get), []sandbox.Endpoint{rule(both)}, 1},
		"nothing is allowed":            {rule(get), nil, 0},
		"all requests, of some methods": {rule(nil), []sandbox.Endpoint{rule(get)}, 0},
		"all requests, of some paths":   {rule(nil), []sandbox.Endpoint{rule(nil, "/**")}, 0},
		"all methods of a path":         {rule(nil, "/a"), []sandbox.Endpoint{rule(get, "/a")}, 0},
		"all paths of a method":         {rule(get), []sandbox.Endpoint{rule(get, "/**")}, 0},
		"one method too many":           {rule(both, "/a"), []sandbox.Endpoint{rule(get, "/a")}, 0},
		"the method of another path":    {rule([]string{"POST"}, "/a"), []sandbox.Endpoint{rule(get, "/a"), rule([]string{"POST"}, "/b")}, 0},
		"a secret, and some methods":    {sandbox.Endpoint{Secret: "x"}, []sandbox.Endpoint{rule(get)}, 0},
	} {
		if by := Within(c.asked, c.allowed); len(by) != c.by {
			t.Errorf("%s: by %v", name, by)
		}
	}
}
