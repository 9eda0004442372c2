package engine

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/records"
	"pinfold/internal/policy"
	"pinfold/sandbox"
)

// holding keeps a connection to an endpoint open, and says how it went on on it, and on a new
// one, each time that something comes.
func holding(e sandbox.Endpoint, tell chan [2]bool) fake.Script {
	echoes := func(c net.Conn) bool {
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.Write([]byte{0}); err != nil {
			return false
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err == nil
	}
	return fake.Script{Program: func(p *fake.Process) fake.Exit {
		held, err := p.Machine.Connect(e.Host, e.Ports[0])
		if err != nil {
			return fake.Exit{Code: 3}
		}
		for {
			other, err := p.Machine.Connect(e.Host, e.Ports[0])
			select {
			case tell <- [2]bool{echoes(held), err == nil && echoes(other)}:
			case <-time.After(10 * time.Second):
				return fake.Exit{}
			}
			if other != nil {
				_ = other.Close()
			}
		}
	}}
}

// audits keeps what is recorded.
type audits struct {
	records.Auditor // nothing else is asked of it

	mu     sync.Mutex
	events []records.Event
}

func (a *audits) Strict() bool { return false }
func (a *audits) Check() error { return nil }

func (a *audits) Record(_ context.Context, e records.Event) (*sandbox.Receipt, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, e)
	return nil, nil
}

func (a *audits) all() []records.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.events)
}

// What a living sandbox can reach is taken away at once, and given back; that is described,
// and is in the audit log with the key that asked.
func TestLivingSandboxIsNarrowed(t *testing.T) {
	e, _ := echo(t)
	tell, log := make(chan [2]bool), &audits{}
	engine, _ := newEngine(t, always(holding(e, tell)), theirOwn, func(o *Options) { o.Auditor = log })
	box, err := engine.Create(t.Context(), "local", sandbox.Create{Network: declaring(e)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.Start(t.Context(), sandbox.Command{Args: []string{"talk"}}); err != nil {
		t.Fatal(err)
	}
	if got := <-tell; got != [2]bool{true, true} {
		t.Fatalf("before: %v", got)
	}
	ctx := records.WithKey(t.Context(), "key_other")
	info, err := box.ChangeNetwork(ctx, sandbox.NetworkChange{Deny: []string{e.Host}})
	if err != nil || info.Declared == nil || !info.Declared.None() {
		t.Fatalf("%+v %v", info.Declared, err)
	}
	<-tell // which may have begun before
	if got := <-tell; got != [2]bool{false, false} {
		t.Errorf("narrowed: %v", got)
	}
	if d := box.Info().Network.Denied; len(d) == 0 || d[0].Reason != sandbox.DeniedNarrowed {
		t.Errorf("%+v", d)
	}
	if _, err := box.ChangeNetwork(ctx, sandbox.NetworkChange{Allow: []sandbox.Endpoint{{Host: "new.test"}}}); sandbox.AsError(err).Code != sandbox.CodeNetworkUnsupported || sandbox.AsError(err).Field != "allow" {
		t.Error(err)
	}
	info, err = box.ChangeNetwork(ctx, sandbox.NetworkChange{Allow: []sandbox.Endpoint{{Host: e.Host, Ports: e.Ports}}})
	if err != nil || info.Declared.None() {
		t.Fatalf("%+v %v", info.Declared, err)
	}
	<-tell
	if got := <-tell; got != [2]bool{false, true} {
		t.Errorf("widened again: %v", got)
	}
	var seen []string
	for _, one := range log.all() {
		if one.Entry.Kind == sandbox.AuditSandboxNetwork {
			seen = append(seen, one.Entry.Evidence+" "+one.Entry.Key+" "+one.Entry.ID)
			if len(one.Parts["network"]) == 0 {
				t.Error("what was declared is not recorded")
			}
		}
	}
	if len(seen) != 2 || seen[0] != "narrowed key_other "+box.ID() || seen[1] != "widened key_other "+box.ID() {
		t.Errorf("%q", seen)
	}
	if _, err := box.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := box.ChangeNetwork(ctx, sandbox.NetworkChange{Deny: []string{e.Host}}); sandbox.AsError(err).Code != sandbox.CodeGone {
		t.Error(err)
	}
}

// Where the operator's rules decide, a sandbox gets nothing that they have not looked at.
func TestRulesHoldWhatALivingSandboxReaches(t *testing.T) {
	e, _ := echo(t)
	rules, err := policy.New(sandbox.Policy{Rules: []sandbox.PolicyRule{
		{ID: "none", When: sandbox.PolicyWhen{Hosts: []string{"new.test"}}, Then: sandbox.PolicyThen{Network: sandbox.PolicyNone}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, held := range []bool{false, true} {
		engine, _ := newEngine(t, always(fake.Script{}), theirOwn, func(o *Options) {
			if held {
				o.Rules = func() *policy.Policy { return rules }
			}
		})
		n := declaring(e)
		n.Limits.Connections = 5
		box, err := engine.Create(t.Context(), "local", sandbox.Create{Network: n})
		if err != nil {
			t.Fatal(err)
		}
		for what, c := range map[string]sandbox.NetworkChange{
			"a host": {Allow: []sandbox.Endpoint{{Host: "new.test"}}}, "a port": {Allow: []sandbox.Endpoint{{Host: e.Host, Ports: []int{1}, Address: e.Address}}}, "limits": {Limits: sandbox.NetworkLimits{Connections: 6}},
		} {
			_, err := box.ChangeNetwork(t.Context(), c)
			if denied := err != nil && sandbox.AsError(err).Code == sandbox.CodeEndpointDenied; denied != held {
				t.Errorf("held %v, %s: %v", held, what, err)
			}
		}
		for _, c := range []sandbox.NetworkChange{{Deny: []string{e.Host}}, {Allow: []sandbox.Endpoint{{Host: e.Host, Ports: e.Ports}}}} {
			if _, err := box.ChangeNetwork(t.Context(), c); err != nil {
				t.Errorf("held %v: %v", held, err)
			}
		}
	}
}
