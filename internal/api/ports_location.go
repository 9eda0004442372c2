package api

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// location keeps a redirection of a server inside within that server. Clients
// follow one with the header that has the caller's key: most take Authorization
// out for another host, none X-API-Key, and a server inside is anybody's. So it
// is empty for whatever is elsewhere, on this host or another, and for what a
// browser would read otherwise than we do.
func (p *portProxy) location(inner *http.Request, to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Opaque != "" || (u.Host == "" && (u.Scheme != "" || strings.HasPrefix(to, "//"))) {
		return ""
	}
	u = inner.URL.ResolveReference(u)
	switch name := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."); {
	case u.Scheme != "http" && u.Scheme != "https":
		return ""
	case (name == "localhost" || name == "127.0.0.1" || name == "::1") && u.Port() == strconv.Itoa(p.port):
		return p.outer(u)
	case strings.EqualFold(u.Host, p.host): // a server that minds X-Forwarded-Host
		u.RawPath = cleanPath(u.EscapedPath())
		if u.Path, err = url.PathUnescape(u.RawPath); err == nil && strings.HasPrefix(u.RawPath, p.prefix+"/") {
			return u.String()
		}
		return ""
	}
	return ""
}

// outer is how a URL of the server inside is reached from outside.
func (p *portProxy) outer(u *url.URL) string {
	to := cleanPath(u.EscapedPath())
	if p.byPath() && (to == p.prefix || strings.HasPrefix(to, p.prefix+"/")) { // a server that minds X-Forwarded-Prefix
		to = strings.TrimPrefix(to, p.prefix)
	}
	to = p.prefix + to
	if u.RawQuery != "" {
		to += "?" + u.RawQuery
	}
	if u.Fragment != "" {
		to += "#" + u.EscapedFragment()
	}
	return to
}

// cleanPath resolves "." and ".." in an escaped path as browsers do it, which
// read an escaped dot as a dot. The result begins with exactly one slash.
func cleanPath(escaped string) string {
	var kept []string
	parts := strings.Split(strings.TrimLeft(escaped, "/"), "/")
	for i, part := range parts {
		switch strings.ReplaceAll(strings.ToLower(part), "%2e", ".") {
		case "..":
			kept = kept[:max(0, len(kept)-1)]
			fallthrough
		case ".":
			if i == len(parts)-1 {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, part)
		}
	}
	return "/" + strings.TrimLeft(strings.Join(kept, "/"), "/")
}
