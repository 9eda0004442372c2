package egress

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pinfold/sandbox"
)

// request is what of an HTTP/1 request decides where it goes and where it ends.
type request struct {
	host    string // canonical, or no endpoint's
	port    int    // 0: not given
	length  int64  // of the body
	chunked bool
	upgrade bool // it asks for another protocol
	h2c     bool // it offers HTTP/2 in the clear

	websocket bool // that is what upgrade asks for
}

const (
	maxHead    = 32 << 10
	maxHeaders = 200
)

// errRequest is a request that is not HTTP/1, or that two programs could read as two.
var errRequest = errors.New("it is no HTTP/1 request that can be read in one way")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errRequest, fmt.Sprintf(format, args...))
}

// parseHead reads the head of a request, from its first byte to the empty line. It takes
// what everybody reads in the same way and nothing else: lines that end with CRLF, one
// Host, one length, no folded lines, no form of a target but the path.
func parseHead(head []byte) (r request, err error) {
	text, whole := bytes.CutSuffix(head, []byte("\r\n\r\n"))
	if !whole {
		return r, malformed("there is no empty line")
	}
	lines := strings.Split(string(text), "\r\n")
	if len(lines) > maxHeaders {
		return r, malformed("there are more than %d lines", maxHeaders)
	}
	for _, l := range lines {
		if i := strings.IndexFunc(l, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }); i >= 0 {
			return r, malformed("there is a control character")
		}
	}
	old, err := requestLine(lines[0])
	if err != nil {
		return r, err
	}
	seen := map[string]string{}
	for _, l := range lines[1:] {
		name, value, ok := strings.Cut(l, ":")
		name = strings.ToLower(name)
		if !ok || !isToken(name) {
			return r, malformed("a header has no name, or is folded")
		}
		switch name {
		case "host", "content-length", "transfer-encoding", "upgrade":
			if _, twice := seen[name]; twice {
				return r, malformed("%s is given twice", name)
			}
			seen[name] = strings.Trim(value, " \t")
		}
	}
	if r.host, r.port, err = hostAndPort(seen); err != nil {
		return r, err
	}
	other, asked := seen["upgrade"]
	r.h2c = strings.EqualFold(other, "h2c")
	r.upgrade = asked && !r.h2c
	r.websocket = strings.EqualFold(other, websocket)
	return r, r.body(seen, old)
}

// withoutOffer is a head without its offer of HTTP/2 in the clear, which some clients make
// in every first request and go on without where nobody takes it.
func withoutOffer(head []byte) []byte {
	var kept []byte
	for line := range bytes.Lines(head) {
		name, _, _ := strings.Cut(strings.ToLower(string(line)), ":")
		if name != "upgrade" && name != "http2-settings" {
			kept = append(kept, line...)
		}
	}
	return kept
}

// requestLine checks the first line. old: it is HTTP/1.0.
func requestLine(line string) (old bool, err error) {
	parts := strings.Split(line, " ")
	if len(parts) != 3 || !isToken(parts[0]) {
		return false, malformed("the first line is no request")
	}
	method, target := parts[0], parts[1]
	switch {
	case method == "CONNECT" || method == "PRI":
		return false, malformed("%s is not for an endpoint", method)
	case target != "*" && !strings.HasPrefix(target, "/"):
		return false, malformed("the target is no path")
	case strings.ContainsFunc(target, notOfURL):
		return false, malformed("the target has other characters than a URL")
	case parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0":
		return false, malformed("the version is neither HTTP/1.1 nor HTTP/1.0")
	}
	return parts[2] == "HTTP/1.0", nil
}

// notOfURL says whether no URL has such a character.
func notOfURL(c rune) bool { return c <= ' ' || c > '~' }

// body says where the request ends.
func (r *request) body(seen map[string]string, old bool) error {
	length, sized := seen["content-length"]
	coding, coded := seen["transfer-encoding"]
	switch {
	case sized && coded:
		return malformed("it has two lengths")
	case coded && (old || !strings.EqualFold(coding, "chunked")):
		return malformed("its transfer coding is not chunked")
	case sized:
		n, err := strconv.ParseUint(length, 10, 62)
		if err != nil || length[0] == '+' {
			return malformed("its length is no number")
		}
		r.length = int64(n) //nolint:gosec // 62 bits
	}
	r.chunked = coded
	return nil
}

func hostAndPort(seen map[string]string) (host string, port int, err error) {
	text, ok := seen["host"]
	if !ok {
		return "", 0, malformed("it has no Host")
	}
	return splitHost(text)
}

// splitHost reads the host and the port, or 0, that a request names.
func splitHost(text string) (host string, port int, err error) {
	name, digits, given := strings.Cut(text, ":")
	if given {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 || digits[0] == '+' {
			return "", 0, malformed("its Host has no port behind the colon")
		}
		port = int(n)
	}
	if host, err = sandbox.CanonicalHost(name); err != nil {
		host = name // what is not canonical is no endpoint's
	}
	return host, port, nil
}

// tokens are the characters of methods and headers' names (RFC 9110).
const tokens = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func isToken(s string) bool { return s != "" && strings.Trim(s, tokens) == "" }

// protocol is what a guest speaks.
type protocol int

const (
	undecided protocol = iota
	speaksTLS
	speaksHTTP
	speaksOther
)

// recognize says what the first bytes begin. What may yet become a line of HTTP, with a
// method of any length, is undecided until the line has come.
func recognize(data []byte) protocol {
	if len(data) > 0 && data[0] == recordHandshake {
		return speaksTLS
	}
	begin := slices.IndexFunc(data, func(b byte) bool { return b != '\n' && !isBlank(b) })
	if begin < 0 { // servers pass over empty lines
		return undecided
	}
	line, _, whole := bytes.Cut(data[begin:], []byte("\n"))
	method, rest := line, []byte(nil)
	if i := slices.IndexFunc(line, isBlank); i >= 0 {
		method, rest = line[:i], line[i+1:]
	}
	switch {
	case len(method) > 0 && !isToken(string(method)):
		return speaksOther
	case !whole && len(data) < maxHead:
		return undecided
	case !whole, bytes.Contains(bytes.ToUpper(rest), []byte("HTTP/")): // not whole: it goes on and on
		return speaksHTTP
	}
	return speaksOther
}

// isBlank says whether some server takes a byte for a blank: those of ASCII, and what
// Python's split takes for one in Latin-1.
func isBlank(b byte) bool {
	return b == ' ' || '\t' <= b && b <= '\r' && b != '\n' || 0x1c <= b && b <= 0x1f || b == 0x85 || b == 0xa0
}
