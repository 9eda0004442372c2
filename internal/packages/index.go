package packages

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"pinfold/sandbox"
)

// Index is where packages of a kind come from.
type Index struct {
	// URL is Python's simple index (PEP 503), or the registry of npm.
	URL string
	// Endpoints are what an installer reaches beside the URL's own host, or where that is,
	// as in network.allow.
	Endpoints []string
	// Secret names one of the tenant's, which goes into requests to the URL's host.
	Secret string
}

// Variables that name the indexes of a program without a configuration: the URL, and after
// it endpoints.
const (
	PythonEnv = "PINFOLD_PYTHON_INDEX"
	NPMEnv    = "PINFOLD_NPM_INDEX"
)

// FromEnv are the indexes that the environment names.
func FromEnv() map[string]Index {
	all := map[string]Index{}
	for kind, name := range map[string]string{sandbox.PackagesPython: PythonEnv, sandbox.PackagesNPM: NPMEnv} {
		if words := strings.Fields(os.Getenv(name)); len(words) > 0 {
			all[kind] = Index{URL: words[0], Endpoints: words[1:]}
		}
	}
	return all
}

const maxIndexURL = 500

// Network is what an installer may reach: the index and nothing else. Errors have the code
// config_invalid and the field url, endpoints or secret.
func (i Index) Network() (sandbox.Network, error) {
	u, host, port, err := i.parse()
	if err != nil {
		return sandbox.Network{}, err
	}
	var n sandbox.Network
	for at, text := range i.Endpoints {
		e, err := parseEndpoint(text)
		if err != nil {
			return n, indexError(fmt.Sprintf("endpoints[%d]", at), sandbox.AsError(err).Message, sandbox.AsError(err).Hint)
		}
		n.Endpoints = append(n.Endpoints, e)
	}
	is := func(e sandbox.Endpoint) bool { return e.Host == host && slices.Contains(e.Ports, port) }
	own := slices.IndexFunc(n.Endpoints, is)
	if own < 0 {
		own, n.Endpoints = len(n.Endpoints), append(n.Endpoints, sandbox.Endpoint{Host: host, Ports: []int{port}})
	}
	if u.Scheme == "http" && n.Endpoints[own].Address == "" {
		return n, indexError("url", "http is for an index inside, of which the address is given", "write https, or say in endpoints where it is: "+fmt.Sprintf("%s:%d=10.0.0.7", host, port))
	}
	if i.Secret != "" {
		if err := sandbox.CheckSecretName(i.Secret); err != nil || u.Scheme != "https" {
			return n, indexError("secret", "must be the name of a secret, which goes by https only", "pinfold secret set NAME --host "+host)
		}
		n.Endpoints[own].Secret = i.Secret
	}
	if n, err = n.Canonical(); err != nil {
		return n, indexError("endpoints", sandbox.AsError(err).Message, sandbox.AsError(err).Hint)
	}
	return n, nil
}

// parseEndpoint reads an endpoint that is one name.
func parseEndpoint(text string) (sandbox.Endpoint, error) {
	e, err := sandbox.ParseAllowed(text)
	if err == nil && (e.Set != "" || strings.HasPrefix(e.Host, "*.")) {
		err = &sandbox.Error{Message: "must be one name", Hint: "write each name by itself, such as files.example.org"}
	}
	return e, err
}

// parse takes the URL apart.
func (i Index) parse() (u *url.URL, host string, port int, err error) {
	u, err = url.Parse(i.URL)
	if err != nil || len(i.URL) > maxIndexURL || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || sandbox.SafeText(i.URL, maxIndexURL) != i.URL || strings.ContainsAny(i.URL, " '\"\\") {
		return nil, "", 0, indexError("url", fmt.Sprintf("\"%s\" is not the address of an index", sandbox.SafeText(i.URL, 100)), "write https://HOST/PATH, without a user, a password and a query; a password is a secret")
	}
	port = map[string]int{"https": 443, "http": 80}[u.Scheme]
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			return nil, "", 0, indexError("url", "has a port that is none", "write https://HOST:8443/PATH")
		}
	}
	host, err = sandbox.CanonicalHost(u.Hostname())
	if err != nil {
		return nil, "", 0, indexError("url", sandbox.AsError(err).Message, "name the host, and say in endpoints where it is: "+fmt.Sprintf("index.internal:%d=10.0.0.7", port))
	}
	return u, host, port, nil
}

func indexError(field, message, hint string) error {
	return &sandbox.Error{Code: sandbox.CodeConfigInvalid, Field: field, Message: message, Hint: hint}
}

// insecure is the host that pip is to trust without TLS, or "".
func (i Index) insecure() string {
	if u, err := url.Parse(i.URL); err == nil && u.Scheme == "http" {
		return u.Host
	}
	return ""
}
