package sandbox

import (
	"fmt"
	"strings"
)

// maxHost bounds a DNS name, as DNS does.
const maxHost = 253

// CanonicalHost is the one reading of a host's name: letters, digits and hyphens in
// labels, lower-case, without the dot at its end. Whatever has two readings is refused:
// names that some program takes for an address, that hold a NUL, a blank, a % or a user,
// and names that mean the sandbox itself.
func CanonicalHost(text string) (string, error) {
	refuse := func(why, hint string) (string, error) {
		return "", specError("", fmt.Sprintf("\"%s\" %s", SafeText(text, 80), why)).WithHint(hint)
	}
	const (
		plain   = "write a DNS name alone, such as api.example.com"
		address = "give it a name: NAME:PORT=ADDRESS on the command line, or host, ports and address in JSON"
	)
	host := strings.ToLower(strings.TrimSuffix(text, "."))
	switch {
	case host == "":
		return refuse("is no name", plain)
	case len(host) > maxHost:
		return refuse(fmt.Sprintf("is longer than %d bytes", maxHost), plain)
	case host == "*":
		return refuse("stands for too much", "write at least two labels after *.")
	case strings.HasPrefix(host, "*."):
		return refuse("is a wildcard, which stands for many names", "write each name by itself")
	case strings.Contains(host, "/"):
		return refuse("has a path", "with a path it is a URL: https://HOST/PATH")
	case strings.Contains(host, ","):
		return refuse("is more than one name", "declare each by itself")
	case strings.HasPrefix(host, "[") || strings.Count(host, ":") > 1:
		return refuse("is an address", address)
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if fault := labelFault(label); fault != "" {
			hint := plain
			if strings.Contains(fault, "ASCII") {
				hint = "write it as it stands in DNS: xn--…"
			}
			return refuse(fault, hint)
		}
	}
	// What ends in a number is an address to many programs, in forms that differ from
	// one to the other (0x7f.1, 017700000001, 2130706433).
	if isNumber(labels[len(labels)-1]) {
		return refuse("is an address to many programs", address)
	}
	if last := labels[len(labels)-1]; last == "localhost" || host == "sandbox" || host == "ip6-localhost" {
		return refuse("means the sandbox itself", "give what is to be reached another name, and its address")
	}
	return host, nil
}

// CanonicalPattern is CanonicalHost for an operator's list, in which *.example.com stands
// for every name below example.com, and not for that itself.
func CanonicalPattern(text string) (string, error) {
	if rest, ok := strings.CutPrefix(text, "*."); ok {
		host, err := CanonicalHost(rest)
		if err == nil && !strings.Contains(host, ".") {
			err = specError("", fmt.Sprintf("\"%s\" stands for too much", SafeText(text, 80))).WithHint("write at least two labels after *.")
		}
		return "*." + host, err
	}
	return CanonicalHost(text)
}

// Wildcard begins a pattern, which stands for every name below what follows.
const Wildcard = "*."

// IsPattern says whether a canonical host is a pattern.
func IsPattern(host string) bool { return strings.HasPrefix(host, Wildcard) }

// MatchHost says whether a canonical name is what a canonical pattern stands for.
func MatchHost(pattern, host string) bool {
	if rest, ok := strings.CutPrefix(pattern, "*"); ok { // ".example.com"
		return len(host) > len(rest) && strings.HasSuffix(host, rest)
	}
	return pattern == host
}

// labelFault says why a part of a name between dots cannot be one; "" where it can.
func labelFault(label string) string {
	switch {
	case label == "":
		return "has two dots in a row, or begins with one"
	case len(label) > 63:
		return "has a label of more than 63 bytes"
	case label[0] == '-' || label[len(label)-1] == '-':
		return "has a label that begins or ends with a hyphen"
	}
	for i := range len(label) {
		switch c := label[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-':
		case c >= 0x80:
			return "has characters that are not ASCII"
		default:
			return "has characters other than letters, digits and hyphens"
		}
	}
	return ""
}

// isNumber says whether a label is decimal, octal or hexadecimal digits.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
