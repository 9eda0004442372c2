package engine_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/living"
	"pinfold/internal/profile"
	"pinfold/sandbox"
)

// anything lets requests declare all that they like.
var anything = admission.Network{Own: true}

// others are sandboxes that are made of one: forks, one of a fork, one of a snapshot.
func others(t *testing.T, s *served, x *living.Sandbox) []*living.Sandbox {
	t.Helper()
	forks, err := s.Fork(soon(t), x, sandbox.ForkSandbox{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	of, err := s.Fork(soon(t), forks[0], sandbox.ForkSandbox{})
	if err != nil {
		t.Fatal(err)
	}
	return append(append(forks, of...), s.create(t, sandbox.Create{Snapshot: snapshot(t, x).ID}))
}

// declares wants a sandbox to say that it can reach these hosts.
func declares(t *testing.T, x *living.Sandbox, want ...string) {
	t.Helper()
	var have []string
	if d := x.Info().Declared; d != nil {
		for _, e := range d.Endpoints {
			have = append(have, e.Host)
		}
	}
	if got, want := strings.Join(have, " "), strings.Join(want, " "); got != want {
		t.Errorf("%s declares %q, want %q", x.ID(), got, want)
	}
}

// What was taken away from a sandbox is not in its forks, nor in what is made of its
// snapshots: they have no way there, cannot get it back, and say so. A wildcard, which in the
// sandbox itself does not stand for the name, would there.
func TestForksDoNotGetBackWhatWasTakenAway(t *testing.T) {
	const taken, below, stays = "taken.one.test", "*.one.test", "stays.test"
	all := []sandbox.Endpoint{{Host: taken}, {Host: below}, {Host: stays}}
	tools := profile.Set{}
	if err := tools.Add(profile.Entry{Profile: sandbox.Profile{Name: "tool", Language: "shell", TTLMS: 60_000, Network: sandbox.Network{Endpoints: all}}}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]sandbox.Create{"declared": {Network: sandbox.Network{Endpoints: all}}, "a profile's": {Profile: "tool"}} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, engine.Options{Policy: admission.Policy{Network: anything, Profiles: tools}}, nil)
			x := s.create(t, c)
			before := snapshot(t, x)
			for _, one := range others(t, s, x) { // where nothing was taken away
				declares(t, one, taken, below, stays)
			}
			change(t, x, sandbox.NetworkChange{Deny: []string{taken}})
			declares(t, x, below, stays)
			for _, one := range others(t, s, x) {
				declares(t, one, stays)
				_, err := one.ChangeNetwork(soon(t), sandbox.NetworkChange{Allow: all[:1]})
				if code(err) != sandbox.CodeNetworkUnsupported && code(err) != sandbox.CodeEndpointDenied {
					t.Errorf("it can be had again: %v", err)
				}
			}
			change(t, x, sandbox.NetworkChange{Network: &sandbox.Network{Mode: sandbox.NetworkNone}})
			for _, one := range others(t, s, x) {
				declares(t, one)
			}
			declares(t, s.create(t, sandbox.Create{Snapshot: before.ID}), taken, below, stays)
		})
	}
}

func change(t *testing.T, x *living.Sandbox, c sandbox.NetworkChange) {
	t.Helper()
	if _, err := x.ChangeNetwork(soon(t), c); err != nil {
		t.Fatal(err)
	}
}

// greeter is a server that says something to whoever connects.
func greeter(t *testing.T, host string) sandbox.Endpoint {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	}()
	at := netip.MustParseAddrPort(l.Addr().String())
	return sandbox.Endpoint{Host: host, Ports: []int{int(at.Port())}, Address: at.Addr().String()}
}

// The same, as programs inside see it.
func TestProgramsInForksDoNotReachWhatWasTakenAway(t *testing.T) {
	all := []sandbox.Endpoint{greeter(t, "taken.test"), greeter(t, "stays.test")}
	s := serve(t, engine.Options{Policy: admission.Policy{Network: anything}}, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) (exit fake.Exit) { // a bit of each that answers
			for i, e := range all {
				c, err := p.Machine.Connect(e.Host, e.Ports[0])
				if err != nil {
					continue
				}
				if b, _ := io.ReadAll(c); string(b) == "hello" {
					exit.Code |= 1 << i
				}
				_ = c.Close()
			}
			return exit
		}}
	})
	x := s.create(t, sandbox.Create{Network: sandbox.Network{Endpoints: all}})
	for _, want := range []int{3, 2} {
		for _, one := range append(others(t, s, x), x) {
			if r, err := one.Exec(soon(t), sandbox.Command{Args: []string{"ask"}}); err != nil || r.ExitCode == nil || *r.ExitCode != want {
				t.Errorf("%+v %v, want %d", r, err, want)
			}
		}
		change(t, x, sandbox.NetworkChange{Deny: []string{"taken.test"}})
	}
}
