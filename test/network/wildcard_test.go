//go:build linux

package network

import (
	"fmt"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// Unmodified programs find every name below a wildcard, at an address inside, and none
// beside it; what they say in TLS is held against it. Where the names lead is looked up on
// the host, at public addresses alone: no server of a test's can be one.
func TestWildcard(t *testing.T) {
	const program = `import socket, ssl
for name in ("x.y.wild.test", "own.wild.test", "wild.test", "evilwild.test"):
    try:
        print(name, socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)[0][4][0])
    except socket.gaierror:
        print(name, "is none")
print(open("/etc/hosts").read().count("wild.test"))
for asked in ("x.y.wild.test", "evil.test"):
    try:
        ssl.create_default_context().wrap_socket(socket.create_connection(("x.y.wild.test", 443)), server_hostname=asked)
        print("reached")
    except OSError:
        pass
`
	w := newWorld(t)
	own := w.secure
	own.Host = "own.wild.test"
	r := w.run(t, "python", program, sandbox.Endpoint{Host: "*.wild.test"}, own)
	want := "x.y.wild.test 127.66.0.2\nown.wild.test 127.66.0.3\nwild.test is none\nevilwild.test is none\n1\n"
	if r.Stdout != want || r.Network == nil {
		t.Fatalf("%q %s %+v", r.Stdout, r.Stderr, r.Network)
	}
	var denied []string
	for _, d := range r.Network.Denied {
		denied = append(denied, fmt.Sprint(d.Host, " ", d.Reason))
	}
	for _, one := range []string{"wild.test not_declared", "evilwild.test not_declared", "*.wild.test sni_mismatch"} {
		if !strings.Contains("\n"+strings.Join(denied, "\n")+"\n", "\n"+one+"\n") {
			t.Errorf("%s is not among %q", one, denied)
		}
	}
	if e := r.Network.Endpoints[0]; e.Host != "*.wild.test" || e.Connections != 2 {
		t.Errorf("%+v", e)
	}
}
