package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// setMark begins the name of a set where an endpoint is a text.
const setMark = "@"

// maxSetName bounds the name of a set, in bytes.
const maxSetName = 60

// CheckSetName refuses names of sets that are not 1 to 60 of a to z, 0 to 9, "-", "_", "."
// and blanks between these.
func CheckSetName(name string) error {
	if name == "" || len(name) > maxSetName || strings.Trim(name, " ") != name || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_. ") != "" {
		return specError("", fmt.Sprintf("\"%s\" is no name for a set", SafeText(name, 60))).
			WithHint("write 1 to 60 of a to z, 0 to 9, -, _, . and blanks in between, such as \"package indexes\"")
	}
	return nil
}

// canonicalSet is the one reading of an endpoint that names a set.
func (e Endpoint) canonicalSet(field string) (Endpoint, error) {
	if err := CheckSetName(e.Set); err != nil {
		return Endpoint{}, AsError(err).WithField(field + ".set")
	}
	if e.Host != "" || len(e.Ports) > 0 || e.Address != "" || e.Ruled() {
		return Endpoint{}, specError(field, "names a set, and says something of its own beside that").
			WithHint("a set has its hosts, ports, methods and paths; what is to be narrower, or to get a secret, is declared by itself")
	}
	return Endpoint{Set: e.Set}, nil
}

// Sets says whether a declaration names sets.
func (n Network) Sets() bool {
	return slices.ContainsFunc(n.Endpoints, func(e Endpoint) bool { return e.Set != "" })
}
