package api

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"pinfold/internal/nearest"
	"pinfold/sandbox"
)

// kind is what a parameter's text must be.
type kind string

const (
	kindText kind = "string"
	kindInt  kind = "integer"
	kindBool kind = "boolean"
	kindDate kind = "date" // 2006-01-02
	kindTime kind = "time" // 2006-01-02T15:04:05Z, RFC 3339
	kindMode kind = "mode" // permission bits in octal
)

// param is one parameter of a query. What is not in a route's table is refused.
type param struct {
	name     string
	kind     kind
	doc      string
	required bool
	many     bool // may be given several times
	min, max int64
	fallback string   // what an absent one means
	words    []string // the words that are accepted
}

const maxParamBytes = 4096

// values are the parameters of one request, checked against the table.
type values map[string][]string

// parseQuery reads a query strictly: a slip must not silently mean "all".
func parseQuery(raw string, table []param) (values, error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, badRequest("", "the query is malformed", "encode it as in ?path=a%20b")
	}
	names := make([]string, len(table))
	for i, p := range table {
		names[i] = p.name
	}
	for name := range q {
		if !slices.Contains(names, name) {
			return nil, unknownParam(name, names)
		}
	}
	for _, p := range table {
		if err := p.check(q[p.name]); err != nil {
			return nil, err
		}
		if len(q[p.name]) == 0 && p.fallback != "" {
			q[p.name] = []string{p.fallback}
		}
	}
	return values(q), nil
}

func unknownParam(name string, names []string) error {
	hint := "this route takes no parameters"
	if len(names) > 0 {
		hint = "the parameters are " + strings.Join(names, ", ")
	}
	if near := nearest.Word(strings.ToLower(name), names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return badRequest(sandbox.SafeText(name, 60), "no such parameter", hint)
}

func (p param) check(given []string) error {
	switch {
	case len(given) == 0 && p.required:
		return badRequest(p.name, "is missing", "add ?"+p.name+"=…")
	case len(given) > 1 && !p.many:
		return badRequest(p.name, "is given more than once", "")
	case len(given) > sandbox.MaxMetadata:
		return badRequest(p.name, "is given too often", "")
	}
	for _, v := range given {
		if len(v) > maxParamBytes {
			return badRequest(p.name, "is too long", "")
		}
		if err := p.checkOne(v); err != nil {
			return err
		}
	}
	return nil
}

func (p param) checkOne(v string) error {
	bad := func(want string) error {
		return badRequest(p.name, fmt.Sprintf("\"%s\" is not %s", sandbox.SafeText(v, 40), want), "")
	}
	switch p.kind {
	case kindInt:
		if n, err := strconv.ParseInt(v, 10, 64); err != nil || n < p.min || n > p.max {
			return bad(fmt.Sprintf("a whole number from %d to %d", p.min, p.max))
		}
	case kindBool:
		if v != "true" && v != "false" {
			return bad("true or false")
		}
	case kindDate:
		if _, err := time.Parse(time.DateOnly, v); err != nil {
			return bad("a date like 2026-01-31")
		}
	case kindTime:
		if _, err := time.Parse(time.RFC3339, v); err != nil {
			return bad("a time like 2026-01-31T12:00:00Z")
		}
	case kindMode:
		if n, err := strconv.ParseUint(v, 8, 32); err != nil || n > 0o777 {
			return bad("permission bits in octal, such as 644")
		}
	case kindText:
		if len(p.words) > 0 && !slices.Contains(p.words, v) {
			return bad("one of " + strings.Join(p.words, ", "))
		}
	}
	return nil
}

// The getters read what check has accepted.

func (v values) text(name string) string {
	if len(v[name]) == 0 {
		return ""
	}
	return v[name][0]
}

func (v values) int(name string) int64 {
	n, err := strconv.ParseInt(v.text(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (v values) bool(name string) bool { return v.text(name) == "true" }

func (v values) mode(name string) uint32 {
	n, err := strconv.ParseUint(v.text(name), 8, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

func (v values) time(name string) time.Time {
	t, err := time.Parse(time.RFC3339, v.text(name))
	if err != nil {
		return time.Time{}
	}
	return t
}

func (v values) date(name string) (time.Time, bool) {
	t, err := time.Parse(time.DateOnly, v.text(name))
	return t, err == nil
}
