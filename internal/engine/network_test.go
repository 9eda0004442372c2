package engine

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/admission"
	"pinfold/sandbox"
)

// theirOwn lets requests declare anything.
func theirOwn(o *Options) { o.Policy.Network = admission.Network{Own: true} }

// echo is a server that says everything again; it counts the connections that are open.
func echo(t *testing.T) (e sandbox.Endpoint, open *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	open = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Add(1)
			go func() {
				defer open.Add(-1)
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	return sandbox.Endpoint{Host: "echo.test", Ports: []int{port}, Address: "127.0.0.1"}, open
}

// talks says something to an endpoint, looks up a name and fails.
func talks(e sandbox.Endpoint) fake.Script {
	return fake.Script{Program: func(p *fake.Process) fake.Exit {
		c, err := p.Machine.Connect(e.Host, e.Ports[0])
		if err != nil {
			return fake.Exit{Code: 3}
		}
		if _, err := c.Write([]byte("\x00hello")); err != nil {
			return fake.Exit{Code: 4}
		}
		if _, err := io.ReadFull(c, make([]byte, 6)); err != nil {
			return fake.Exit{Code: 5}
		}
		p.Machine.Ask(append([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, "\x05other\x04test\x00\x00\x01\x00\x01"...))
		p.Machine.Ask(nil) // the one before has been read
		return fake.Exit{Code: 1}
	}}
}

func declaring(e sandbox.Endpoint) sandbox.Network {
	return sandbox.Network{Endpoints: []sandbox.Endpoint{e}}
}

// A run reaches what it declares, the result says what went on, and nothing is left open.
func TestRunReachesWhatItDeclares(t *testing.T) {
	e, open := echo(t)
	engine, _ := newEngine(t, always(talks(e)), theirOwn)
	req := shell(sandbox.Limits{})
	req.Spec.Network = declaring(e)
	r := run(t, engine, req)
	if r.ExitCode == nil || *r.ExitCode != 1 || r.Network == nil {
		t.Fatalf("%+v", r)
	}
	if u := r.Network.Endpoints[0]; u.Connections != 1 || u.BytesUp != 6 || u.BytesDown != 6 || u.Host != e.Host {
		t.Errorf("%+v", u)
	}
	if d := r.Network.Denied; len(d) != 1 || d[0].Host != "other.test" || d[0].Reason != sandbox.DeniedUndeclared || !strings.HasPrefix(r.Cause.Hint, "other.test was denied") {
		t.Errorf("%+v %+v", d, r.Cause)
	}
	if !slices.Contains(r.Isolation.Enforced, sandbox.FeatureNetwork) || slices.Contains(r.Isolation.Enforced, sandbox.FeatureNetworkNone) {
		t.Error(r.Isolation.Enforced)
	}
	for begun := time.Now(); open.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("the connection outlives the run")
		}
	}
	req.Spec.Network = sandbox.Network{}
	if r := run(t, engine, req); *r.ExitCode != 3 || r.Network != nil {
		t.Errorf("without: %+v", r)
	}
}

// Where the operator says nothing, nothing can be declared.
func TestNothingIsReachedWithoutTheOperator(t *testing.T) {
	e, _ := echo(t)
	engine, d := newEngine(t, always(talks(e)))
	req := shell(sandbox.Limits{})
	req.Spec.Network = declaring(e)
	if _, err := engine.Run(t.Context(), req); sandbox.AsError(err).Code != sandbox.CodeEndpointDenied {
		t.Error(err)
	}
	if _, err := engine.Create(t.Context(), "local", sandbox.Create{Network: declaring(e)}); sandbox.AsError(err).Code != sandbox.CodeEndpointDenied {
		t.Error(err)
	}
	if n := d.Living(); n > 0 {
		t.Errorf("%d machines were made", n)
	}
}

var _ driver.Doors = (*fake.Machine)(nil)

// Whoever asks what is tried gets the names, looked up or asked of a proxy, and nothing can be
// reached.
func TestWhatIsTriedIsAsked(t *testing.T) {
	e, open := echo(t)
	engine, _ := newEngine(t, always(fake.Script{Program: func(p *fake.Process) fake.Exit {
		p.Machine.Ask(append([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, "\x05other\x04test\x00\x00\x01\x00\x01"...))
		p.Machine.Ask(nil) // the one before has been read
		if _, err := p.Machine.Connect(e.Host, e.Ports[0]); err == nil {
			return fake.Exit{Code: 3}
		}
		c, err := p.Machine.Connect("127.66.0.1", 3128)
		if err != nil {
			return fake.Exit{Code: 4}
		}
		_, _ = io.WriteString(c, "CONNECT "+e.Host+":8443 HTTP/1.1\r\n\r\n")
		if b, _ := io.ReadAll(c); !strings.HasPrefix(string(b), "HTTP/1.1 403 ") {
			return fake.Exit{Code: 5}
		}
		return fake.Exit{}
	}})) // and nobody may declare anything
	req := shell(sandbox.Limits{})
	req.Spec.Network = sandbox.Network{Mode: sandbox.NetworkAsk}
	r := run(t, engine, req)
	if r.ExitCode == nil || *r.ExitCode != 0 || r.Network == nil || len(r.Network.Endpoints) != 0 || open.Load() != 0 {
		t.Fatalf("%+v %+v", r, r.Network)
	}
	var tried []string
	for _, d := range r.Network.Denied {
		if tried = append(tried, fmt.Sprintf("%s:%d", d.Host, d.Port)); d.Reason != sandbox.DeniedUndeclared || d.Hint == "" {
			t.Errorf("%+v", d)
		}
	}
	if !slices.Equal(tried, []string{"other.test:0", e.Host + ":8443"}) {
		t.Errorf("%q", tried)
	}
	if slices.Contains(r.Isolation.Enforced, sandbox.FeatureNetworkNone) || !slices.Contains(r.Isolation.Enforced, sandbox.FeatureNetwork) {
		t.Error(r.Isolation.Enforced)
	}
	req.Spec.Require = []string{sandbox.FeatureNetworkNone}
	if _, err := engine.Run(t.Context(), req); sandbox.AsError(err).Code != sandbox.CodeRequirementUnmet {
		t.Error(err)
	}
}
