package cli

import (
	"slices"
	"testing"

	"pinfold/sandbox"
)

// Who follows a sandbox's network is told what is new, each time.
func TestNetworkNews(t *testing.T) {
	var said networkSaid
	use := sandbox.NetworkUse{Endpoints: []sandbox.EndpointUse{{Host: "a.test"}, {Host: "b.test"}}}
	hear := func(want ...string) {
		t.Helper()
		if got := said.news(use); !slices.Equal(got, want) {
			t.Errorf("%q, not %q", got, want)
		}
	}
	hear()
	change := func(f func(u *sandbox.NetworkUse)) {
		use.Endpoints, use.Denied = slices.Clone(use.Endpoints), slices.Clone(use.Denied)
		f(&use)
	}
	change(func(u *sandbox.NetworkUse) {
		u.Endpoints[1] = sandbox.EndpointUse{Host: "b.test", Connections: 1, Requests: 2, BytesUp: 3, BytesDown: 4}
		u.Denied = append(u.Denied, sandbox.Denial{Host: "c.test", Port: 443, Reason: sandbox.DeniedUndeclared, Count: 1})
	})
	hear("b.test: 1 connection, 3 bytes up, 4 down, 2 requests", "denied: c.test:443 (not_declared)")
	hear()
	change(func(u *sandbox.NetworkUse) {
		u.Endpoints[0].Connections, u.Endpoints[0].Errors, u.Endpoints[0].LastError = 2, 2, "nobody listens"
		u.Denied[0].Count = 3
		u.Denied = append(u.Denied, sandbox.Denial{Host: "b.test", Reason: sandbox.DeniedRequest, Evidence: "GET /x", Count: 1})
		u.DeniedMore = 7
	})
	hear("a.test: 2 connections, 0 bytes up, 0 down, 2 errors: nobody listens", "denied: c.test:443 (not_declared), 3 times", "denied: b.test (request: GET /x)", "denied: and 7 more")
	hear()
}
