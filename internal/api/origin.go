package api

import (
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"pinfold/sandbox"
)

// A page in a browser can send requests to any address, this server's
// included, and with a name server of its own it can even be of the same
// origin (DNS rebinding). What it cannot do is choose Host and Origin: requests
// are taken only under names that are ours, and only from origins that the
// operator named. This comes before keys and before WebSockets.

// hostName is the Host of a request without its port, in lower case.
func hostName(r *http.Request) string {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}

// checkHost refuses names that are not this server's.
func (s *server) checkHost(r *http.Request) error {
	if isLocalPeer(r.Context()) { // no browser speaks to a unix socket
		return nil
	}
	name := hostName(r)
	if name == "localhost" || slices.Contains(s.hosts, name) || s.inDomain(name) {
		return nil
	}
	if ip, err := netip.ParseAddr(name); err == nil && (ip.IsLoopback() || isOwnAddress(r, ip)) {
		return nil
	}
	return &sandbox.Error{
		Code: sandbox.CodeForbidden, Message: "this server does not answer to the name \"" + sandbox.SafeText(name, 80) + "\"",
		Hint: "add it to allowed_hosts in the configuration",
	}
}

// isOwnAddress says whether the request came to that very address.
func isOwnAddress(r *http.Request, ip netip.Addr) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	own, err := netip.ParseAddrPort(local.String())
	return err == nil && own.Addr().Unmap() == ip.Unmap()
}

// inDomain says whether a name is the domain for ports, or one of a port's.
func (s *server) inDomain(name string) bool {
	if s.o.Domain == "" {
		return false
	}
	if name == s.o.Domain {
		return true
	}
	_, ok := s.portHost(name)
	return ok
}

// portTarget is a server inside a sandbox.
type portTarget struct {
	sandbox string
	port    int
}

// portHost reads a name of the form PORT-ID.DOMAIN.
func (s *server) portHost(name string) (portTarget, bool) {
	label, ok := strings.CutSuffix(name, "."+s.o.Domain)
	if !ok || s.o.Domain == "" {
		return portTarget{}, false
	}
	m := s.portLabel.FindStringSubmatch(label)
	if m == nil {
		return portTarget{}, false
	}
	port, err := parsePort(m[1])
	return portTarget{"sbx_" + m[2], port}, err == nil
}

func portLabel() *regexp.Regexp { return regexp.MustCompile(`^([0-9]{1,5})-([a-z2-7]{26})$`) }

// badPort refuses what is no port.
func badPort() error {
	return badRequest("port", "is not a port from 1 to 65535", "give the one on which a server inside listens, such as 8000")
}

func parsePort(text string) (int, error) {
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 || text != strconv.Itoa(port) {
		return 0, badPort()
	}
	return port, nil
}

// checkOrigin refuses requests that pages of unknown origins make. Where a
// browser shows a server inside a sandbox under a name of its own, that name
// is its origin too.
func (s *server) checkOrigin(w http.ResponseWriter, r *http.Request) error {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	if len(origins) == 1 && slices.Contains(s.o.AllowedOrigins, origins[0]) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origins[0])
		h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After, ETag, Content-Range, Location")
		h.Add("Vary", "Origin")
		return nil
	}
	_, isPort := s.portHost(hostName(r))
	switch _, _, _, byLink := linkPath(r.URL.EscapedPath()); {
	case len(origins) > 1:
	case isPort: // where every path is the guest's, also one that looks like a link's
		if _, host, ok := strings.Cut(origins[0], "://"); ok && strings.EqualFold(host, r.Host) {
			return nil
		}
	case byLink && origins[0] == "null":
		// A page that came by a link is sandboxed and has no origin. What it asks for
		// below a link is allowed by the address alone, and by nothing that a browser
		// adds of itself.
		w.Header().Set("Access-Control-Allow-Origin", "null")
		w.Header().Add("Vary", "Origin")
		return nil
	}
	return &sandbox.Error{
		Code: sandbox.CodeForbidden, Message: "requests from the origin \"" + sandbox.SafeText(origins[0], 80) + "\" are not accepted",
		Hint: "add it to allowed_origins in the configuration",
	}
}

// preflight answers a browser that asks whether it may ask.
func (s *server) preflight(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" || w.Header().Get("Access-Control-Allow-Origin") == "" {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, X-API-Key, Content-Type, Accept, Idempotency-Key, Range, If-Range, Last-Event-ID")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
