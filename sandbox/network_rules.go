package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds on what an endpoint says of requests.
const (
	MaxMethods = 16
	MaxPaths   = 32
	maxMethod  = 32  // bytes
	maxPath    = 512 // bytes
)

// Ruled says whether some requests pass and others do not, or get a secret, so that the
// host has to read them: it ends TLS there.
func (e Endpoint) Ruled() bool { return len(e.Methods) > 0 || len(e.Paths) > 0 || e.Secret != "" }

// Ruled says whether all that is declared is: programs reach nothing unread.
func (n Network) Ruled() bool {
	return len(n.Endpoints) > 0 && !slices.ContainsFunc(n.Endpoints, func(e Endpoint) bool { return !e.Ruled() })
}

// Below is the end of a path that stands for everything below what is before it.
const Below = "/**"

// join adds what another canonical endpoint says to e, if the two together say the same as
// each by itself.
func (e *Endpoint) join(other Endpoint) bool {
	if e.Set != "" || other.Set != "" {
		return e.Set == other.Set
	}
	if e.Host != other.Host || e.Ruled() != other.Ruled() || e.Secret != other.Secret || !slices.Equal(e.Methods, other.Methods) {
		return false
	}
	switch {
	case slices.Equal(e.Paths, other.Paths):
		e.Ports = merged(e.Ports, other.Ports)
	case slices.Equal(e.Ports, other.Ports) && len(e.Paths) > 0 && len(other.Paths) > 0 && len(merged(e.Paths, other.Paths)) <= MaxPaths:
		e.Paths = merged(e.Paths, other.Paths)
	default:
		return false
	}
	return true
}

// merged are the elements of both, each once.
func merged[T int | string](a, b []T) []T {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// canonicalMethods is the one reading of a list of methods.
func canonicalMethods(field string, list []string) ([]string, error) {
	if len(list) > MaxMethods {
		return nil, tooLarge(field, int64(len(list)), MaxMethods)
	}
	for i, m := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case m == "" || len(m) > maxMethod || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "":
			return nil, specError(at, fmt.Sprintf("\"%s\" is no method", SafeText(m, 40))).WithHint("write it as HTTP does, in capital letters: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		case m == "CONNECT":
			return nil, specError(at, "CONNECT asks for another host, which an endpoint never is").WithHint("declare that host")
		}
	}
	return merged(nil, list), nil
}

// canonicalPaths is the one reading of a list of paths.
func canonicalPaths(field string, list []string) ([]string, error) {
	if len(list) > MaxPaths {
		return nil, tooLarge(field, int64(len(list)), MaxPaths)
	}
	for i, p := range list {
		if fault, hint := pathFault(p); fault != "" {
			return nil, specError(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("\"%s\" %s", SafeText(p, 80), fault)).WithHint(hint)
		}
	}
	return merged(nil, list), nil
}

// pathFault says why a path of an endpoint cannot be one, and what would be right.
func pathFault(p string) (fault, hint string) {
	const plain = "write the path of a URL, such as /repos/** or /v1/*/items"
	switch {
	case !strings.HasPrefix(p, "/"):
		return "does not begin with /", plain
	case len(p) > maxPath:
		return fmt.Sprintf("is longer than %d bytes", maxPath), plain
	case !utf8.ValidString(p) || strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "has characters that cannot be printed", plain
	case strings.ContainsAny(p, "?#"):
		return "has a query or a fragment", "leave them out: every query passes"
	case strings.Contains(p, "%"):
		return "is encoded", "write the characters themselves, in UTF-8"
	case strings.ContainsAny(p, "\\;"):
		return "has a \\ or a ;, which servers read in different ways", "write * in its place"
	case strings.Contains(p, "//"):
		return "has two slashes in a row", plain
	case strings.Contains(strings.TrimSuffix(p, Below), "**"):
		return "has ** in another place than after the last slash", "end it with /**, which stands for everything below"
	}
	for s := range strings.SplitSeq(p, "/") {
		if s == "." || s == ".." {
			return "has a segment . or ..", "write where that leads"
		}
	}
	return "", ""
}
