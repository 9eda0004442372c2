package egress

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"pinfold/sandbox"
)

// ledger is what went on with a machine's endpoints. It is bounded, whatever a guest does.
type ledger struct {
	endpoints []*endpoint
	own       bool // see Host

	up, down, asks atomic.Int64 // what is left

	mu     sync.Mutex
	denied []sandbox.Denial
	more   int64
}

// endpoint is one declared host and what went on with it.
type endpoint struct {
	Host    string
	Address string // or "": the host looks it up

	connections, requests, secrets, up, down, errors atomic.Int64
	names                                            sync.Map // of the secrets that were used
	last                                             atomic.Pointer[string]
}

func newLedger(n sandbox.Network) *ledger {
	l := &ledger{}
	l.up.Store(n.Limits.BytesUp)
	l.down.Store(n.Limits.BytesDown)
	l.asks.Store(n.Limits.Requests)
	for _, e := range n.Endpoints {
		if l.find(e.Host) == nil {
			l.endpoints = append(l.endpoints, &endpoint{Host: e.Host, Address: e.Address})
		}
	}
	return l
}

// ask takes one of the requests that are left.
func (l *ledger) ask() bool {
	if l.asks.Add(-1) >= 0 {
		return true
	}
	l.asks.Add(1)
	return false
}

// find returns a declared endpoint, or nil.
func (l *ledger) find(host string) *endpoint {
	for _, e := range l.endpoints {
		if e.Host == host {
			return e
		}
	}
	return nil
}

// deny writes down what was refused.
func (l *ledger) deny(host string, port int, reason sandbox.DenialReason, evidence string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	evidence = sandbox.SafeText(evidence, maxEvidence)
	for i, d := range l.denied {
		if d.Host == host && d.Port == port && d.Reason == reason && (reason != sandbox.DeniedRequest || d.Evidence == evidence) {
			l.denied[i].Count++
			return
		}
	}
	if len(l.denied) == sandbox.MaxDenials {
		l.more++
		return
	}
	l.denied = append(l.denied, sandbox.Denial{Host: host, Port: port, Reason: reason, Evidence: evidence, Count: 1})
}

// maxEvidence bounds what is written down of a denial, in bytes.
const maxEvidence = 200

// fail writes down a connection that came to nothing.
func (e *endpoint) fail(why error) {
	text := why.Error()
	e.errors.Add(1)
	e.last.Store(&text)
}

// use is what went on until now, with advice for who has that declared.
func (l *ledger) use(declared []sandbox.Endpoint) *sandbox.NetworkUse {
	u := &sandbox.NetworkUse{Endpoints: []sandbox.EndpointUse{}}
	if !l.own {
		declared = slices.Clone(declared)
		for i := range declared {
			declared[i].Address = ""
		}
	}
	for _, e := range l.endpoints {
		one := sandbox.EndpointUse{
			Host: e.Host, Connections: e.connections.Load(), Requests: e.requests.Load(), Secrets: e.secrets.Load(), BytesUp: e.up.Load(), BytesDown: e.down.Load(), Errors: e.errors.Load(),
		}
		e.names.Range(func(key, _ any) bool {
			name, _ := key.(string)
			one.SecretNames = append(one.SecretNames, name)
			return true
		})
		slices.Sort(one.SecretNames)
		if last := e.last.Load(); last != nil {
			one.LastError = *last
		}
		u.Endpoints = append(u.Endpoints, one)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	u.Denied, u.DeniedMore = slices.Clone(l.denied), l.more
	for i, d := range u.Denied {
		u.Denied[i] = d.WithAdvice(adviceFor(d, declared))
	}
	return u
}

// adviceFor says how something that was denied would be allowed.
func adviceFor(d sandbox.Denial, declared []sandbox.Endpoint) sandbox.Advice {
	add := func(e sandbox.Endpoint) sandbox.Fix {
		return sandbox.Set("network", sandbox.Network{Endpoints: append(slices.Clone(declared), e)})
	}
	wanted := sandbox.Endpoint{Host: d.Host}
	if d.Port != 0 {
		wanted.Ports = []int{d.Port}
	}
	switch d.Reason {
	case sandbox.DeniedUndeclared:
		if d.Port == 0 {
			return sandbox.Advise("if it may be reached, declare it: %s (at port 443; another has to be named)", add(wanted))
		}
		return sandbox.Advise("if it may be reached, declare it: %s", add(wanted))
	case sandbox.DeniedNarrowed:
		return sandbox.Advise("this sandbox could reach it before its network was narrowed; if it may again: %s", add(wanted))
	case sandbox.DeniedAddress:
		return sandbox.Advise("only the operator can say that a name is at such an address: NAME:PORT=ADDRESS with pinfold run --allow, or in %s", sandbox.Config("network.allow"))
	case sandbox.DeniedSNI, sandbox.DeniedHost:
		return sandbox.Advise("each name has an endpoint of its own: declare that one, too, and connect to it by its name")
	case sandbox.DeniedNoSNI:
		return sandbox.Advise("connect by the name, not by its address inside, and have TLS send it (server_hostname, -servername)")
	case sandbox.DeniedHidden:
		return sandbox.Advise("turn off encrypted ClientHello (ECH), also as GREASE, in the program")
	case sandbox.DeniedNotTLS:
		return sandbox.Advise("port 443 is for TLS, as is every request that gets a secret; what speaks something else needs another port")
	case sandbox.DeniedNotHTTP:
		return sandbox.Advise("port 80 is for HTTP/1; what speaks something else needs another port")
	case sandbox.DeniedMalformed:
		return sandbox.Advise("send what has one reading only: plain HTTP/1.1, or a usual ClientHello; the evidence says what has not")
	case sandbox.DeniedNoName:
		return sandbox.Advise("declare the name by itself: behind a wildcard the program has to say, in TLS or HTTP, which name it means")
	case sandbox.DeniedRequest:
		method, path, _ := strings.Cut(d.Evidence, " ")
		wanted := sandbox.Network{Endpoints: append(slices.Clone(declared), sandbox.Endpoint{Host: standsFor(d.Host, declared), Ports: []int{d.Port}, Methods: []string{method}, Paths: []string{path}})}
		for _, e := range declared {
			if e.Host == d.Host {
				wanted.Endpoints[len(declared)].Address = e.Address
			}
		}
		if n, err := wanted.Canonical(); err == nil && len(d.Evidence) < maxEvidence {
			return sandbox.Advise("if it may be asked for, declare its method and path: %s", sandbox.Set("network", sandbox.Network{Endpoints: n.Endpoints}))
		}
		return sandbox.Advise("if it may be asked for, declare its method and path")
	}
	return adviceAtLimit(d.Reason)
}

// adviceAtLimit is for what was denied since there was enough of it.
func adviceAtLimit(reason sandbox.DenialReason) sandbox.Advice {
	switch reason {
	case sandbox.DeniedConnections:
		return sandbox.Advise("close connections, or raise network.limits.connections")
	case sandbox.DeniedNames:
		return sandbox.Advise("declare the names that matter by themselves: wildcards stand for a bounded number in all of a sandbox's life")
	case sandbox.DeniedRequests:
		return sandbox.Advise("make fewer requests, or raise network.limits.requests")
	case sandbox.DeniedBytesUp, sandbox.DeniedBytesDown:
		return sandbox.Advise("raise network.limits." + map[sandbox.DenialReason]string{sandbox.DeniedBytesUp: "bytes_up", sandbox.DeniedBytesDown: "bytes_down"}[reason])
	case sandbox.DeniedBusy:
		return sandbox.Advise("try again, or with fewer at once: all the connections or requests are taken that this host passes on at once, or that one sandbox may have of them")
	}
	return nil
}
