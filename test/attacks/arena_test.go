//go:build linux

package attacks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/gvisor"
	"pinfold/internal/driver/native"
	"pinfold/internal/engine"
	"pinfold/internal/engine/runs"
	"pinfold/internal/guest"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// prelude stands in front of every Python payload.
const preludeFile = "testdata/prelude.py"

// arena is where attacks take place: the real engine and driver, and what the
// host watches them with.
type arena struct {
	*testing.T
	engine  *engine.Engine
	driver  driver.Driver
	runsc   string // the gvisor driver's; "": sandboxes are native
	prelude string
	agent   string // the file of the agent's program
	secret  string // a token that must never be seen inside
	dir     string // for the host's canaries
	state   string // of the driver
}

func newArena(t *testing.T, prelude string) *arena {
	t.Helper()
	return newArenaOf(t, prelude, "")
}

// newArenaOf is newArena with the gvisor driver, where it is given a runsc.
func newArenaOf(t *testing.T, prelude, runsc string) *arena {
	t.Helper()
	a := &arena{T: t, prelude: prelude, runsc: runsc, secret: fmt.Sprintf("canary-%d-%x", os.Getpid(), time.Now().UnixNano()), dir: t.TempDir()}
	a.state = filepath.Join(t.TempDir(), "state")
	a.engine, a.driver = a.newEngine(agenttest.Bytes(t))
	a.agent = filepath.Join(a.dir, "agent")
	return a
}

// newEngine makes an engine whose sandboxes have the given agent inside. Like
// the real program, it has the agent in a file too, which root runs.
func (a *arena) newEngine(agent []byte, change ...func(*engine.Options)) (*engine.Engine, driver.Driver) {
	file := filepath.Join(a.dir, "agent")
	if err := os.WriteFile(file, agent, 0o755); err != nil { //nolint:gosec // a program
		a.Fatal(err)
	}
	open := func() ([]byte, error) { return agent, nil }
	var d driver.Driver = native.New(native.Options{
		StateDir: a.state, Agent: open,
		AgentFile: func() *os.File { f, _ := os.Open(file); return f },
	})
	if a.runsc != "" {
		d = gvisor.New(gvisor.Options{Runsc: a.runsc, Agent: open, Blocks: filepath.Join(a.state, "blocks")})
	}
	o := engine.Options{Drivers: []driver.Driver{d}, Template: imagetest.Templates, Host: os.DirFS("/")}
	for _, f := range change {
		f(&o)
	}
	e := engine.New(o)
	a.Cleanup(func() {
		if err := e.Close(); err != nil {
			a.Errorf("closing the engine: %v", err)
		}
	})
	return e, d
}

// trial is one attack on one sandbox and what came of it.
type trial struct {
	*arena
	payload Payload
	result  *sandbox.Result
	err     error
	took    time.Duration
	mu      sync.Mutex
	files   map[string][]byte // artifacts that came out
	notes   map[string]string // what Around saw

	allowance    *ledger.Allowance
	struck, gone time.Time // see watchEnd
}

// request turns a payload into what the engine takes.
func (a *arena) request(p Payload) runs.Request {
	code, language := p.Code, p.Language
	if language == "" {
		language, code = "python", a.prelude+code
	}
	return runs.Request{
		Inputs: p.Inputs,
		Spec: sandbox.Spec{
			Language: language, Code: code, Args: p.Args, Env: p.Env, Files: p.Files,
			Limits: p.Limits, Artifacts: p.Artifacts,
		},
	}
}

// run attacks. A run that takes longer than it may is ended and is an error.
func (a *arena) run(p Payload) *trial {
	t := &trial{arena: a, payload: p, files: map[string][]byte{}, notes: map[string]string{}}
	t.attack(a.engine)
	return t
}

// patience is for one thing that a case does: on a busy machine the largest take more than a
// minute, and what hangs is found, too.
const patience = 4 * time.Minute

func (t *trial) attack(e *engine.Engine) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req := t.request(t.payload)
	if len(t.payload.Artifacts) > 0 {
		req.Artifact = func(f sandbox.Artifact, content io.Reader) error {
			b, err := io.ReadAll(io.LimitReader(content, 1<<20))
			t.mu.Lock()
			defer t.mu.Unlock()
			t.files[f.Path] = b
			return err
		}
	}
	start := time.Now()
	t.result, t.err = e.Run(ctx, req)
	t.took = time.Since(start)
}

// doors reads the lines "KEY VALUE" that a payload printed.
func doorValues(stdout string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(stdout) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		values[key] = value
	}
	return values
}

// everything is all that the host got from a run, as text.
func (t *trial) everything() string {
	b, _ := json.Marshal(t.result)
	all := string(b)
	for name, content := range t.files {
		all += name + "\n" + string(content)
	}
	return all
}

// open makes a sandbox and returns its agent, for attacks on a living one.
func (a *arena) open(l sandbox.Limits) (*guest.Guest, driver.Machine, error) {
	ctx, cancel := context.WithTimeout(a.Context(), patience)
	defer cancel()
	report, err := a.driver.Probe(ctx, imagetest.Host(a))
	if err != nil {
		return nil, nil, err
	}
	spec := sandbox.Spec{Code: "x", Limits: l}.WithDefaults()
	plan, err := driver.MakePlan(spec.Machine(), imagetest.Host(a), report, fmt.Sprintf("attack-%d", time.Now().UnixNano()))
	if err != nil {
		return nil, nil, err
	}
	m, err := a.driver.Create(ctx, plan)
	if err != nil {
		return nil, nil, err
	}
	destroy := func() {
		if err := m.Destroy(context.Background()); err != nil {
			a.Errorf("destroying a sandbox: %v", err)
		}
	}
	var conn driver.Conn
	if conn, err = m.Dial(ctx); err == nil {
		var g *guest.Guest
		g, err = guest.New(ctx, conn, wire.Hello{UID: sandbox.UID, GID: sandbox.GID, SwitchUser: plan.SwitchUser, Home: sandbox.Home})
		if err == nil {
			a.Cleanup(func() { destroy(); _ = g.Close() })
			return g, m, nil
		}
	}
	destroy()
	return nil, nil, err
}

// shell runs a script in a living sandbox and returns what it printed.
func (a *arena) shell(g *guest.Guest, dir string, script ...string) (string, error) {
	ctx, cancel := context.WithTimeout(a.Context(), patience)
	defer cancel()
	var out bytes.Buffer
	p, err := g.Start(ctx, guest.Command{
		Args: append([]string{"/bin/sh", "-c"}, script...), Env: []string{"PATH=/usr/bin:/bin"}, Dir: dir,
	}, guest.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		return "", err
	}
	_, err = p.Wait(ctx)
	return out.String(), err
}

// enforces says whether the sandboxes here enforce a feature.
func (a *arena) enforces(feature string) bool {
	report, err := a.driver.Probe(a.Context(), imagetest.Host(a))
	if err != nil {
		a.Fatal(err)
	}
	plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), imagetest.Host(a), report, "x")
	return err == nil && plan.Enforces(feature)
}
