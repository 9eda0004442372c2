// Package egress is the way out of a sandbox that has no network: it accepts what programs
// inside connect to, decides whether that may leave, and passes it on.
//
// What it decides by is the host's own knowledge: the door through which a connection came
// (a listener of one machine, for one declared name at one port), the address that is
// really dialled, and the first bytes that the guest sent. Nothing that the guest says
// about itself counts.
//
//   - The name is looked up by the host. Each address is checked as it is dialled, against
//     the registries of special-purpose addresses (special.go), unless the operator has
//     said where the name is.
//
//   - At port 443 only TLS passes whose ClientHello asks for that name (hello.go). What is
//     inside of it is the guest's and the server's, and is not seen here.
//
//   - At port 80 only HTTP/1 passes, and every request's Host must be that name
//     (request.go, http.go).
//
//   - At other ports TLS and HTTP are recognized by their first bytes and held to the same;
//     other protocols pass as they are.
//
//   - Where the endpoint says which methods and paths pass, TLS ends here (ended.go), with
//     a certificate of an authority that only this sandbox trusts (authority.go). Each
//     request is held against the rules (rules.go) and said anew to the server, whose own
//     certificate is verified (forward.go).
//
//   - Two doors are for all that is declared: an HTTP and a SOCKS proxy (proxy.go). A
//     connection that came there goes on as if it had come through the door of the name and
//     the port that it asks for, if there is one.
//
// Whatever is not decided, cannot be read or goes on too long is closed: there is no way
// on which something passes because something failed. Everything ends with Close.
//
// It knows no driver and no engine, and makes no listener.
package egress
