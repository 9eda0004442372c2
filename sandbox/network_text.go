package sandbox

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ParseEndpoint reads what a command line or a configuration says of one endpoint:
// HOST[:PORT[,PORT…]][=ADDRESS], or with methods or a path
// [METHOD[,METHOD…] ]SCHEME://HOST[:PORT[,PORT…]][=ADDRESS][/PATH], whose scheme, http or
// https, only stands for its port; or @SET. What it returns is checked by Canonical.
func ParseEndpoint(text string) (Endpoint, error) {
	if len(text) > maxEndpointText {
		return Endpoint{}, specError("", "is too long for an endpoint")
	}
	if name, set := strings.CutPrefix(text, setMark); set {
		return Endpoint{Set: name}, CheckSetName(name)
	}
	before, rest, url := strings.Cut(text, "://")
	if !url {
		if methods, rest, some := strings.Cut(text, " "); some {
			if host, err := CanonicalPattern(rest); err == nil && strings.Trim(methods, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-,") == "" {
				return Endpoint{}, specError("", fmt.Sprintf("\"%s\" has methods and no URL", SafeText(text, 80))).
					WithHint(fmt.Sprintf("write '%s https://%s'", SafeText(methods, 200), host))
			}
			return Endpoint{}, notAnEndpoint(text)
		}
		return parseAuthority(text)
	}
	methods, scheme, some := strings.Cut(before, " ")
	if !some {
		methods, scheme = "", before
	}
	port, ok := schemes[scheme]
	if !ok {
		return Endpoint{}, notAnEndpoint(text)
	}
	authority, path, below := strings.Cut(rest, "/")
	e, err := parseAuthority(authority)
	if err != nil {
		return Endpoint{}, err
	}
	if e.Ports == nil {
		e.Ports = []int{port}
	}
	if some {
		e.Methods = strings.Split(methods, ",")
	}
	if below {
		if e.Paths = []string{"/" + path}; misplaced(path) {
			return Endpoint{}, specError("", fmt.Sprintf("\"%s\" has an address behind its path", SafeText(text, 80))).
				WithHint("it stands behind the host: " + scheme + "://HOST:PORT=ADDRESS/PATH")
		}
	}
	return e, nil
}

// misplaced says whether what cannot be a path ends with an address.
func misplaced(path string) bool {
	fault, _ := pathFault("/" + path)
	_, err := netip.ParseAddr(path[strings.LastIndex(path, "=")+1:])
	return fault != "" && err == nil
}

func notAnEndpoint(text string) error {
	return specError("", fmt.Sprintf("\"%s\" is no endpoint", SafeText(text, 80))).
		WithHint("write HOST, HOST:PORT, or a URL of https or http with methods before it, such as 'GET,HEAD https://api.example.com/v1/**'")
}

// schemes are those that an endpoint's URL can have, and their ports.
var schemes = map[string]int{"http": 80, "https": DefaultPort}

// parseAuthority reads HOST[:PORT[,PORT…]][=ADDRESS].
func parseAuthority(text string) (Endpoint, error) {
	text, address, given := strings.Cut(text, "=")
	if given && address == "" {
		return Endpoint{}, specError("", "there is no address behind =").WithHint("write HOST:PORT=10.0.0.7")
	}
	if at, err := netip.ParseAddrPort(address); err == nil {
		return Endpoint{}, specError("", fmt.Sprintf("the port of \"%s\" stands behind the address", SafeText(text, 80))).
			WithHint(fmt.Sprintf("the port is the name's: HOST:%d=%s", at.Port(), at.Addr().WithZone("")))
	}
	if _, err := netip.ParseAddr(text); err == nil || strings.HasPrefix(text, "[") {
		return Endpoint{Host: text}, nil // which Canonical refuses
	}
	host, ports, some := strings.Cut(text, ":")
	e := Endpoint{Host: host, Address: address}
	if !some {
		return e, nil
	}
	for p := range strings.SplitSeq(ports, ",") {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 || p[0] == '+' {
			return Endpoint{}, specError("", fmt.Sprintf("in \"%s\", \"%s\" is no port", SafeText(text, 80), SafeText(p, 40))).WithHint("write HOST:PORT with a port of 1 to 65535")
		}
		e.Ports = append(e.Ports, int(n))
	}
	return e, nil
}

// ParseAllowed is ParseEndpoint for an operator's list: the host may be a pattern
// (CanonicalPattern), and everything is checked.
func ParseAllowed(text string) (Endpoint, error) {
	e, err := ParseEndpoint(text)
	if err != nil {
		return Endpoint{}, err
	}
	if e.Set != "" {
		return e, nil
	}
	if e.Host, err = CanonicalPattern(e.Host); err != nil {
		return Endpoint{}, err
	}
	if strings.HasPrefix(e.Host, "*.") && e.Address != "" {
		return Endpoint{}, specError("", "many names cannot be at one address").WithHint("write each name by itself")
	}
	pattern := e.Host
	e.Host = strings.TrimPrefix(e.Host, "*.")
	if e, err = e.canonical(""); err != nil {
		return Endpoint{}, AsError(err).WithField("")
	}
	e.Host = pattern
	return e, nil
}

const maxEndpointText = 1200

// Words says an endpoint as ParseEndpoint reads it: one text, or one for each path. Its
// secret is not in there.
func (e Endpoint) Words() []string {
	authority, scheme := e.authority(e.Ports), "https"
	switch {
	case e.Set != "":
		return []string{setMark + e.Set}
	case len(e.Methods) == 0 && len(e.Paths) == 0:
		return []string{authority}
	case len(e.Ports) == 0, slices.Equal(e.Ports, []int{DefaultPort}):
		authority = e.authority(nil)
	case slices.Equal(e.Ports, []int{schemes["http"]}):
		authority, scheme = e.authority(nil), "http"
	}
	text := scheme + "://" + authority
	if len(e.Methods) > 0 {
		text = strings.Join(e.Methods, ",") + " " + text
	}
	if len(e.Paths) == 0 {
		return []string{text}
	}
	var all []string
	for _, p := range e.Paths {
		all = append(all, text+p)
	}
	return all
}

// String says an endpoint in one line.
func (e Endpoint) String() string { return strings.Join(e.Words(), " and ") }

// authority is the host with ports and address.
func (e Endpoint) authority(ports []int) string {
	text := e.Host
	for i, p := range ports {
		sep := ","
		if i == 0 {
			sep = ":"
		}
		text += sep + strconv.Itoa(p)
	}
	if e.Address != "" {
		text += "=" + e.Address
	}
	return text
}
