package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Secret is what can be known of a secret that is kept for a tenant. Its value is in
// nothing that anybody can ask for.
type Secret struct {
	Name  string   `json:"name"`
	Hosts []string `json:"hosts"` // it is sent to no other
	// Where it stands in a request: one of the three.
	Header string `json:"header,omitempty"` // "Authorization: Bearer {}", with {} for the value
	Basic  string `json:"basic,omitempty"`  // the user of basic authentication, whose password it is
	Query  string `json:"query,omitempty"`  // the name of a parameter

	UpdatedAt time.Time `json:"updated_at"`
}

// SetSecret makes a secret, or takes the place of one.
type SetSecret struct {
	Hosts  []string `json:"hosts"`
	Header string   `json:"header,omitempty"` // default DefaultSecretHeader, where Basic and Query are empty, too
	Basic  string   `json:"basic,omitempty"`
	Query  string   `json:"query,omitempty"`
	Value  string   `json:"value"` // 8 to 8,192 printable ASCII characters
}

// Bounds on secrets, and what they have by default.
const (
	DefaultSecretHeader = "Authorization: Bearer {}"
	MinSecretValue      = 8 // bytes: what is shorter stands in texts by chance, and cannot be taken out of answers
	MaxSecretValue      = 8 << 10
	MaxSecretHosts      = 32
	maxSecretName       = 40
	maxSecretPlace      = 200 // bytes of a header with its format, of a user, of a parameter's name
)

// Place stands for the value in a header's format.
const Place = "{}"

// CheckSecretName refuses what is no name of a secret.
func CheckSecretName(name string) error {
	if name == "" || len(name) > maxSecretName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return specError("name", fmt.Sprintf("\"%s\" is no name of a secret", SafeText(name, 60))).WithHint("1 to 40 of a to z, 0 to 9, - and _")
	}
	return nil
}

// Canonical is the one reading of s. No error has the value in it.
func (s SetSecret) Canonical() (SetSecret, error) {
	if len(s.Hosts) == 0 || len(s.Hosts) > MaxSecretHosts {
		return s, specError("hosts", fmt.Sprintf("a secret is for 1 to %d hosts", MaxSecretHosts)).WithHint("name those to which it may be sent")
	}
	hosts := slices.Clone(s.Hosts)
	for i, h := range hosts {
		var err error
		if hosts[i], err = CanonicalHost(h); err != nil {
			return s, AsError(err).WithField(fmt.Sprintf("hosts[%d]", i))
		}
	}
	s.Hosts = merged(nil, hosts)
	given := 0
	for _, place := range []string{s.Header, s.Basic, s.Query} {
		if place != "" {
			given++
		}
		if len(place) > maxSecretPlace || !isASCII(place) {
			return s, specError("", "header, basic and query have at most 200 printable ASCII characters")
		}
	}
	switch {
	case given == 0:
		s.Header = DefaultSecretHeader
	case given > 1:
		return s, specError("", "it has more than one of header, basic and query").WithHint("a secret stands in one place; make another one for another place")
	case strings.Contains(s.Basic, ":"):
		return s, specError("basic", "a user has no colon")
	}
	if s.Header != "" {
		if err := checkSecretHeader(s.Header); err != nil {
			return s, err
		}
	}
	if len(s.Value) < MinSecretValue || len(s.Value) > MaxSecretValue || !isASCII(s.Value) || strings.TrimSpace(s.Value) != s.Value {
		return s, specError("value", fmt.Sprintf("must be %d to %d printable ASCII characters, without blanks around them", MinSecretValue, MaxSecretValue)).
			WithHint("it comes from stdin, a file or a variable: is it empty, or is there a line's end behind it?")
	}
	return s, nil
}

// notForSecrets are headers that say where a request goes or ends.
var notForSecrets = []string{
	"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "keep-alive", "expect", "content-type", "content-encoding", "range",
}

func checkSecretHeader(header string) error {
	name, format, ok := strings.Cut(header, ":")
	lower := strings.ToLower(name)
	switch {
	case !ok || name == "" || strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return specError("header", "is no header").WithHint("write it as \"" + DefaultSecretHeader + "\"")
	case slices.Contains(notForSecrets, lower) || strings.HasPrefix(lower, "proxy-") || strings.HasPrefix(lower, "sec-"):
		return specError("header", SafeText(name, 40)+" is no header for a secret").WithHint("write it as \"" + DefaultSecretHeader + "\"")
	case strings.Count(format, Place) != 1:
		return specError("header", "has not one {} for the value").WithHint("write it as \"" + DefaultSecretHeader + "\"")
	}
	return nil
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
