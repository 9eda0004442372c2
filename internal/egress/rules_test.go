package egress

import (
	"strings"
	"testing"

	"pinfold/sandbox"
)

// The positive control of every attack here is naive: a server that decodes and cleans a
// path reads something else in it than what the rule is about.
func TestPathsInEveryReading(t *testing.T) {
	rules := []sandbox.Endpoint{
		{Methods: []string{"GET"}, Paths: []string{"/repos/**", "/v1/*/items", "/exact", "/@*"}},
		{Methods: []string{"POST"}, Paths: []string{"/issues"}},
	}
	for target, want := range map[string]sandbox.DenialReason{
		"GET /repos/a":                             "",
		"GET /repos/":                              sandbox.DeniedRequest,
		"GET /repos//":                             sandbox.DeniedRequest,
		"GET /repos/%3Fa":                          sandbox.DeniedRequest,
		"GET /repos/%23a":                          sandbox.DeniedRequest,
		"GET /exact%3Fa":                           sandbox.DeniedRequest,
		"GET /repos/a%3Fb":                         "",
		"GET /repos/..%3F/admin":                   sandbox.DeniedMalformed,
		"GET /repos/a%FF":                          sandbox.DeniedMalformed,
		"GET /repos/%C0%AE%C0%AE/admin":            sandbox.DeniedMalformed,
		"GET /repos/%EF%BC%8E%EF%BC%8E/admin":      sandbox.DeniedMalformed,
		"GET /repos/%E2%80%A5/admin":               sandbox.DeniedMalformed,
		"GET /repos/..%EF%BC%8Fadmin":              sandbox.DeniedMalformed,
		"GET /repos/a/b/c?x=/../admin":             "",
		"GET /repos/a%20b/%C3%A4":                  "",
		"GET /repos/a%2Fb":                         "", // either way it is below
		"GET /repos/a;v=1/b":                       "",
		"GET /repos/a//b":                          "",
		"GET /repos/100%25":                        "",
		"GET /v1/x/items":                          "",
		"GET /v1/a%2ab/items":                      "",
		"GET /exact?y":                             "",
		"POST /issues":                             "",
		"GET /repos":                               sandbox.DeniedRequest,
		"GET /repository":                          sandbox.DeniedRequest,
		"GET /":                                    sandbox.DeniedRequest,
		"GET /exact/":                              sandbox.DeniedRequest,
		"GET /Exact":                               sandbox.DeniedRequest,
		"GET /v1/a/b/items":                        sandbox.DeniedRequest,
		"GET /v1/a%2Fb/items":                      sandbox.DeniedRequest, // a server that decodes first has two segments
		"GET /v1//items":                           sandbox.DeniedRequest,
		"GET /exact;/../x":                         sandbox.DeniedMalformed,
		"GET /exact;x":                             sandbox.DeniedRequest,
		"GET //exact":                              sandbox.DeniedRequest,
		"GET /@a%2fb":                              sandbox.DeniedRequest,
		"GET /issues":                              sandbox.DeniedRequest,
		"POST /repos/a":                            sandbox.DeniedRequest,
		"get /repos/a":                             sandbox.DeniedRequest,
		"HEAD /repos/a":                            sandbox.DeniedRequest,
		"GET /repos/../admin":                      sandbox.DeniedMalformed,
		"GET /repos/./a":                           sandbox.DeniedMalformed,
		"GET /repos/..":                            sandbox.DeniedMalformed,
		"GET /repos/%2e%2e/admin":                  sandbox.DeniedMalformed,
		"GET /repos/.%2E/admin":                    sandbox.DeniedMalformed,
		"GET /repos/..%2fadmin":                    sandbox.DeniedMalformed,
		"GET /repos%2f..%2fadmin":                  sandbox.DeniedMalformed,
		"GET /repos/..;/admin":                     sandbox.DeniedMalformed,
		"GET /repos/..;x=1%2fadmin":                sandbox.DeniedMalformed,
		"GET /repos/..%3b/admin":                   sandbox.DeniedMalformed,
		"GET /repos/..%20/admin":                   sandbox.DeniedMalformed,
		"GET /repos/%252e%252e/admin":              sandbox.DeniedMalformed,
		"GET /repos/%25%32%65%2e/admin":            sandbox.DeniedMalformed,
		"GET /repos/..%5cadmin":                    sandbox.DeniedMalformed,
		`GET /repos/..\admin`:                      sandbox.DeniedMalformed,
		"GET /repos/a%00":                          sandbox.DeniedMalformed,
		"GET /repos/a%0d%0aX:y":                    sandbox.DeniedMalformed,
		"GET /repos/%zz":                           sandbox.DeniedMalformed,
		"GET /repos/%":                             sandbox.DeniedMalformed,
		"GET /repos/a#b":                           sandbox.DeniedMalformed,
		"GET /repos/ä":                             sandbox.DeniedMalformed,
		"GET http://evil.test/repos/a":             sandbox.DeniedMalformed,
		"GET *":                                    sandbox.DeniedMalformed,
		"GET ":                                     sandbox.DeniedMalformed,
		"GET /repos/" + strings.Repeat("a/", 1000): "",
	} {
		method, path, _ := strings.Cut(target, " ")
		if got, err := allows(rules, method, path); got != want || (err == nil) != (want == "") {
			t.Errorf("%.60s: %q %v, want %q", target, got, err, want)
		}
	}
}

func TestSegments(t *testing.T) {
	for text, want := range map[string]bool{
		"* x": true, "* ": true, "a* abc": true, "a*c abc": true, "a*c ac": true, "a*b*c axxbyyc": true, "*.git x.git": true,
		"a* ba": false, "a*c ab": false, "a*b*c acb": false, "abc ab": false, "a*a a": false, "*.git x.gi": false,
	} {
		pattern, segment, _ := strings.Cut(text, " ")
		if matchesSegment(pattern, segment) != want {
			t.Errorf("%s: not %v", text, want)
		}
	}
}

func FuzzAllows(f *testing.F) {
	for _, s := range []string{"/repos/a", "/repos/..%2fadmin", "/repos/%252e", "/a;b//c?d"} {
		f.Add(s)
	}
	rules := []sandbox.Endpoint{{Paths: []string{"/repos/**"}}}
	f.Fuzz(func(t *testing.T, target string) {
		if _, err := allows(rules, "GET", target); err != nil {
			return
		}
		path, _, _ := strings.Cut(target, "?")
		if !strings.HasPrefix(strings.ReplaceAll(strings.ToLower(path), "%2f", "/"), "/") || strings.Contains(path, "/../") || strings.Contains(strings.ToLower(path), "%2e%2e/") {
			t.Fatalf("%q passes", target)
		}
	})
}
