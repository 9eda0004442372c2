package egress

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"pinfold/sandbox"
)

// allows says whether one of the rules lets a request pass. target is what stood in the
// request: the path as it was written, and the query.
//
// Servers read a path in many ways: they decode it once or more, before or after they take
// it apart, drop what follows a semicolon or an encoded ? or #, or empty segments. So a path
// passes only if a rule allows each of these readings; one with . or .. in any reading never
// does.
func allows(rules []sandbox.Endpoint, method, target string) (sandbox.DenialReason, error) {
	path, _, _ := strings.Cut(target, "?")
	readings, err := readingsOf(path)
	if err != nil {
		return sandbox.DeniedMalformed, err
	}
	for _, r := range readings {
		if !slices.ContainsFunc(rules, func(e sandbox.Endpoint) bool {
			return (len(e.Methods) == 0 || slices.Contains(e.Methods, method)) && (len(e.Paths) == 0 || slices.ContainsFunc(e.Paths, func(p string) bool { return matches(p, r) }))
		}) {
			return sandbox.DeniedRequest, errors.New(method + " " + path)
		}
	}
	return "", nil
}

// readingsOf are the segments of a path, in each way in which somebody may read it.
func readingsOf(path string) (readings [][]string, err error) {
	if !strings.HasPrefix(path, "/") {
		return nil, errors.New("the target is no path")
	}
	if strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' || r == '#' }) {
		return nil, errors.New("the path has other characters than a URL's")
	}
	var whole []string // segments decoded by themselves: an encoded slash is no slash
	for s := range strings.SplitSeq(path[1:], "/") {
		s, err := decoded(s)
		if err != nil {
			return nil, err
		}
		whole = append(whole, s)
	}
	apart := strings.Split(strings.Join(whole, "/"), "/")
	for _, segments := range [][]string{whole, apart} {
		plain := slices.Clone(segments)
		for i, s := range plain {
			plain[i], _, _ = strings.Cut(s, ";")
		}
		for _, s := range [][]string{segments, plain, beforeQuery(segments), beforeQuery(plain)} {
			if slices.ContainsFunc(s, isDots) {
				return nil, errors.New("there is a segment . or .. in the path")
			}
			readings = append(readings, s, withoutEmpty(s))
		}
	}
	return readings, nil
}

// decoded is one segment without its encoding.
func decoded(segment string) (string, error) {
	s, err := url.PathUnescape(segment)
	if err != nil {
		return "", errors.New("the path is not well encoded")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }) {
		return "", errors.New("the path encodes a control character or a backslash")
	}
	if !utf8.ValidString(s) || strings.ContainsAny(s, likeASCII) {
		return "", errors.New("the path encodes what is no UTF-8, or a character that some servers take for a dot or a slash")
	}
	if again, err := url.PathUnescape(s); err == nil && again != s {
		return "", errors.New("the path is encoded twice")
	}
	return s, nil
}

// likeASCII are the characters that Unicode's compatibility forms make dots, slashes and
// backslashes of, and those that Windows does.
const likeASCII = "\uff0e\u2024\u2025\u2026\u3002\uff61\ufe52\uff0f\u2044\u2215\u29f8\uff3c\ufe68\u2216\u29f5\u00a5\u20a9"

// beforeQuery is what is left for who takes an encoded ? or # for the path's end.
func beforeQuery(segments []string) []string {
	for i, s := range segments {
		if at := strings.IndexAny(s, "?#"); at >= 0 {
			return append(slices.Clone(segments[:i]), s[:at])
		}
	}
	return segments
}

// isDots says whether somebody takes a segment for this directory or the one above.
func isDots(segment string) bool {
	segment = strings.TrimRight(segment, " ")
	return segment == "." || segment == ".."
}

// withoutEmpty drops the empty segments but for the last, which is a slash at the end.
func withoutEmpty(segments []string) []string {
	last := len(segments) - 1
	var kept []string
	for i, s := range segments {
		if s != "" || i == last {
			kept = append(kept, s)
		}
	}
	return kept
}

// matches holds the segments of a path against what an endpoint says.
func matches(pattern string, segments []string) bool {
	front, below := strings.CutSuffix(pattern, sandbox.Below)
	want := segmentsOf(front)
	if len(segments) < len(want) || below != (len(segments) > len(want)) {
		return false
	}
	if below && strings.Join(segments[len(want):], "") == "" { // a slash at the end: for many servers the path itself
		return false
	}
	for i, w := range want {
		if !matchesSegment(w, segments[i]) {
			return false
		}
	}
	return true
}

// matchesSegment holds one segment against one in which * stands for any text.
func matchesSegment(pattern, segment string) bool {
	first, rest, some := strings.Cut(pattern, "*")
	if !some {
		return pattern == segment
	}
	segment, ok := strings.CutPrefix(segment, first)
	if !ok {
		return false
	}
	for {
		next, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(segment, next)
		}
		at := strings.Index(segment, next)
		if at < 0 {
			return false
		}
		segment, rest = segment[at+len(next):], after
	}
}

// otherPaths are headers by which some servers take another method or path than those of
// the request.
var otherPaths = []string{
	"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url", "X-Original-Uri", "X-Original-Method",
}
