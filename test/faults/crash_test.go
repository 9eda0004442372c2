//go:build linux

// Package faults kills the server at every named moment, and in the middle of
// much work, and then looks for what is lost, answered twice or left behind.
package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pinfold/client"
	"pinfold/internal/access"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/failpoint"
	"pinfold/internal/store"
	"pinfold/sandbox"
	"pinfold/test/ledger"
	"pinfold/test/server"
)

const config = `
pools:
  - name: default
    min: 2
  - name: python
    language: python
    min: 1
retention: 24h
`

// processDirs is where root's machines of the process driver have their directories.
const processDirs = "/var/tmp/pinfold-0"

// TestCrashes kills the server with SIGKILL at each moment. The next server must
// remove everything, report what was lost exactly once, and answer nothing
// differently a second time.
func TestCrashes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the ledger of what is left on the host needs root")
	}
	program := server.Build(t, "failpoints")
	for _, name := range failpoint.Names() {
		t.Run(name, func(t *testing.T) {
			ledger.Check(t, processDirs)
			c := &crash{t: t, options: server.Options{Program: program, State: stateDir(t), Config: config}, moment: name}
			switch {
			case strings.HasPrefix(name, "processdriver."):
				c.driver = "process"
			case strings.HasPrefix(name, "gvisor."):
				c.driver = "gvisor"
				c.options.Config += "drivers: {gvisor: {runsc: " + drivertest.Runsc(t) + "}}\n"
			}
			if c.driver != "" {
				c.options.Config = strings.ReplaceAll(c.options.Config, "\n    min:", "\n    driver: "+c.driver+"\n    min:")
			}
			c.play()
		})
	}
}

// stateDir is short: the path of a socket has at most 107 bytes.
func stateDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "pf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// crash is one server's death and what comes after.
type crash struct {
	t       *testing.T
	options server.Options
	moment  string
	driver  string // that requests name

	mu        sync.Mutex
	sandboxes []string                   // that were acknowledged
	keys      []string                   // idempotency keys that were sent
	answers   map[string]*sandbox.Result // by key
	detached  map[string]string          // runs that were acknowledged, by the key that they were asked for with
	kept      map[string]bool            // snapshots that were acknowledged; false: their removal was asked for
}

func (c *crash) play() {
	c.answers, c.detached, c.kept = map[string]*sandbox.Result{}, map[string]string{}, map[string]bool{}
	armed := c.options
	armed.Env = []string{failpoint.Env + "=" + c.moment}
	if strings.HasPrefix(c.moment, "recover.") || c.moment == "snapshot.collected" {
		c.dieAtWork()
	}
	first, err := server.Launch(c.t.Context(), armed)
	if err != nil {
		c.t.Fatal(err)
	}
	c.workUntilDeath(first)
	_ = first.Kill()
	if c.t.Failed() {
		return
	}
	next, err := server.Start(c.t.Context(), c.options)
	if err != nil {
		c.t.Fatal(err)
	}
	c.check(next)
	if err := next.Stop(); err != nil {
		c.t.Error(err)
	}
}

// dieAtWork leaves something to recover: a server that is killed in the middle.
func (c *crash) dieAtWork() {
	s, err := server.Start(c.t.Context(), c.options)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	x, err := s.Client.Create(ctx, sandbox.Create{Driver: c.driver})
	if err != nil {
		c.t.Fatal(err)
	}
	c.sandboxes = append(c.sandboxes, x.ID())
	if c.snapshots() {
		c.copy(ctx, s.Client, x)
	}
	go c.run(ctx, s.Client, "asleep", "sleep 20")
	c.detach(ctx, s.Client, "detached-asleep", "sleep 20")
	time.Sleep(300 * time.Millisecond)
	_ = s.Kill()
}

// workUntilDeath asks for everything that a server does, over and over, until
// the server is dead.
func (c *crash) workUntilDeath(s *server.Server) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for worker := range 3 {
		wg.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				select {
				case <-s.Done():
					return
				default:
				}
				c.live(ctx, s.Client)
				c.run(ctx, s.Client, fmt.Sprintf("key-%d-%d", worker, round), "echo $((6*7)) | tee out.txt")
				c.detach(ctx, s.Client, fmt.Sprintf("detached-%d-%d", worker, round), "echo $((6*7))")
			}
		})
	}
	select {
	case <-s.Done():
	case <-ctx.Done():
		c.t.Errorf("the server lives on: the moment never came\n%s", s.Log())
		_ = s.Kill()
	}
	cancel()
	wg.Wait()
}

// live plays a sandbox's life. Errors are the crash's.
func (c *crash) live(ctx context.Context, cl *client.Client) {
	x, err := cl.Create(ctx, sandbox.Create{Driver: c.driver, TTLMS: 60_000})
	if err != nil {
		return
	}
	c.mu.Lock()
	c.sandboxes = append(c.sandboxes, x.ID())
	c.mu.Unlock()
	_, _ = x.Exec(ctx, sandbox.Command{Args: []string{"/bin/true"}}, client.ExecOptions{})
	if c.snapshots() {
		c.copy(ctx, cl, x)
	}
	_, _ = x.Destroy(ctx)
}

func (c *crash) run(ctx context.Context, cl *client.Client, key, program string) {
	c.mu.Lock()
	c.keys = append(c.keys, key)
	c.mu.Unlock()
	r, err := cl.Run(ctx, c.request(program), client.RunOptions{IdempotencyKey: key})
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[key] = r
}

// detach asks for a run that goes on by itself.
func (c *crash) detach(ctx context.Context, cl *client.Client, key, program string) {
	r, err := cl.StartRun(ctx, c.request(program), client.StartOptions{IdempotencyKey: key})
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.detached[key] = r.ID
}

// checkDetached looks for every run whose id somebody was told: it has ended,
// by itself or with the server, and is listed; asked for again it is the same.
func (c *crash) checkDetached(ctx context.Context, cl *client.Client) {
	listed := map[string]bool{}
	for r, err := range cl.Runs(ctx, client.Filter{}) {
		if err != nil {
			c.t.Error(err)
			return
		}
		listed[r.ID] = true
	}
	for key, id := range c.detached {
		r, err := cl.GetRun(ctx, id)
		switch {
		case err != nil || !listed[id]:
			c.t.Errorf("an acknowledged run is forgotten (listed: %v): %v", listed[id], err)
		case r.State != sandbox.RunFinished || r.Result == nil:
			c.t.Errorf("run %s is %s", id, r.State)
		case r.Cause != sandbox.CauseLost && (r.Status != sandbox.StatusSucceeded || r.Result.Stdout != "42\n"):
			c.t.Errorf("run %s: %+v", id, r.Result)
		}
		program := "echo $((6*7))"
		if key == "detached-asleep" {
			program = "sleep 20"
		}
		if again, err := cl.StartRun(ctx, c.request(program), client.StartOptions{IdempotencyKey: key}); err != nil || again.ID != id {
			c.t.Errorf("%s was run %s and is now %s, %v", key, id, again.ID, err)
		}
	}
}

func (c *crash) request(program string) sandbox.Spec {
	return sandbox.Spec{Driver: c.driver, Language: "sh", Code: program, Artifacts: []string{"*.txt"}}
}

// check asks the next server about everything.
func (c *crash) check(s *server.Server) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	for _, id := range c.sandboxes {
		info, err := s.Client.Sandbox(id).Info(ctx)
		if err != nil {
			c.t.Errorf("an acknowledged sandbox is forgotten: %v", err)
			continue
		}
		if info.State != sandbox.StateEnded || info.Cause == nil || info.Cause.Kind != sandbox.CauseLost && info.Cause.Kind != sandbox.CauseDestroyed {
			c.t.Errorf("sandbox %s is %s for %+v", id, info.State, info.Cause)
		}
	}
	for _, key := range c.keys {
		c.checkKey(ctx, s.Client, key)
	}
	c.checkDetached(ctx, s.Client)
	c.checkFirstKey(ctx)
	if c.snapshots() {
		c.checkSnapshots(ctx, s.Client)
	}
}

// checkFirstKey opens the server with the key in its file.
func (c *crash) checkFirstKey(ctx context.Context) {
	text, err := os.ReadFile(filepath.Join(c.options.State, "first-key"))
	if err != nil {
		c.t.Errorf("the first key is lost: %v", err)
		return
	}
	db, err := store.Attach(ctx, c.options.State)
	if err != nil {
		c.t.Fatal(err)
	}
	defer db.Close()
	keys := access.NewService(access.Options{Store: db})
	if p, err := keys.Authenticate(ctx, strings.TrimSpace(string(text))); err != nil || !p.Allows(access.ScopeAdmin) {
		c.t.Errorf("the first key opens nothing: %+v, %v", p, err)
	}
	if all, err := keys.List(ctx, ""); err != nil || len(all) != 1 {
		c.t.Errorf("%d keys, %v", len(all), err)
	}
	if left, err := filepath.Glob(filepath.Join(c.options.State, ".first-key*")); err != nil || len(left) > 0 {
		c.t.Errorf("left: %v, %v", left, err)
	}
}

// checkKey sends a request again, twice. What was answered before must be
// answered again; what was under way is lost; what never arrived runs now.
func (c *crash) checkKey(ctx context.Context, cl *client.Client, key string) {
	program := "echo $((6*7)) | tee out.txt"
	if key == "asleep" {
		program = "sleep 20"
	}
	again, err := cl.Run(ctx, c.request(program), client.RunOptions{IdempotencyKey: key})
	if err != nil {
		c.t.Errorf("%s: %v", key, err)
		return
	}
	if first := c.answers[key]; first != nil && (first.ID != again.ID || first.Stdout != again.Stdout || first.Status != again.Status) {
		c.t.Errorf("%s was answered with %s %s, and now with %s %s", key, first.ID, first.Status, again.ID, again.Status)
	}
	if again.Status != sandbox.StatusSucceeded && again.Cause.Kind != sandbox.CauseLost {
		c.t.Errorf("%s: %s, %+v, %v", key, again.Status, again.Cause, again.Error)
	}
	twice, err := cl.Run(ctx, c.request(program), client.RunOptions{IdempotencyKey: key})
	if err != nil || twice.ID != again.ID {
		c.t.Errorf("%s: answered with %s and then %+v, %v", key, again.ID, twice, err)
	}
}
