//go:build linux

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
	"pinfold/test/ledger"
	"pinfold/test/server"
)

// SoakEnv is how many runs TestSoak makes; 300 by default.
const SoakEnv = "PINFOLD_SOAK_RUNS"

// TestSoak runs many programs while things go wrong at random: callers that go
// away, agents that are killed from outside, requests that are nonsense, a
// server that is killed. At the end nothing may be left.
func TestSoak(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the ledger of what is left on the host needs root")
	}
	total := int64(300)
	if n, err := strconv.ParseInt(os.Getenv(SoakEnv), 10, 64); err == nil {
		total = n
	}
	ledger.Check(t)
	s := &soak{
		t: t, total: total, seed: uint64(time.Now().UnixNano()), //nolint:gosec // any number does
		options: server.Options{Program: server.Build(t), State: stateDir(t), Config: config},
	}
	t.Logf("seed %d", s.seed)
	start := time.Now()
	for life := range lives {
		s.live(life)
	}
	t.Logf("%d runs in %v: %s", s.done.Load(), time.Since(start).Round(time.Second), s.summary())
	if ok := s.count("succeeded"); ok < total/2 {
		t.Errorf("only %d of %d runs succeeded", ok, total)
	}
}

// lives is how many servers share the work. All but the last are killed.
const lives = 3

type soak struct {
	t       *testing.T
	total   int64
	seed    uint64
	options server.Options
	done    atomic.Int64
	counts  sync.Map // outcome → *atomic.Int64
}

func (s *soak) note(outcome string) {
	n, _ := s.counts.LoadOrStore(outcome, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

func (s *soak) count(outcome string) int64 {
	if n, ok := s.counts.Load(outcome); ok {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

// summary lists the outcomes.
func (s *soak) summary() string {
	var b strings.Builder
	s.counts.Range(func(outcome, _ any) bool {
		fmt.Fprintf(&b, "%v %d, ", outcome, s.count(outcome.(string)))
		return true
	})
	return strings.TrimSuffix(b.String(), ", ")
}

// live starts a server, has it do its share of the work, and ends it.
func (s *soak) live(life int) {
	srv, err := server.Start(s.t.Context(), s.options)
	if err != nil {
		s.t.Fatal(err)
	}
	share := s.total * int64(life+1) / lives
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	for worker := range 8 {
		random := rand.New(rand.NewPCG(s.seed, uint64(life*100+worker))) //nolint:gosec // chances, not secrets
		wg.Go(func() {
			for ctx.Err() == nil && s.done.Add(1) <= share {
				s.one(ctx, srv, random)
			}
		})
	}
	last := life == lives-1
	if !last { // killed in the middle of it
		for s.done.Load() < share-20 && s.t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		_ = srv.Kill()
	}
	wg.Wait()
	cancel()
	s.done.Store(share)
	if last {
		if err := srv.Stop(); err != nil {
			s.t.Error(err)
		}
	}
}

// one does something, mostly a run that succeeds.
func (s *soak) one(ctx context.Context, srv *server.Server, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	spec := sandbox.Spec{Language: "sh", Code: "echo ok; echo data > out.txt", Limits: sandbox.Limits{WallTimeMS: 10_000}}
	switch chance := random.IntN(100); {
	case chance < 5: // the caller goes away
		quick, leave := context.WithTimeout(ctx, time.Duration(random.IntN(15))*time.Millisecond)
		defer leave()
		ctx = quick
	case chance < 8: // somebody kills a sandbox's first process
		time.AfterFunc(time.Duration(random.IntN(10))*time.Millisecond, func() { killAgent(srv.PID, random.Uint32()) })
	case chance < 11:
		spec.Code = "kill -9 $$"
	case chance < 13:
		spec.Code, spec.Limits.WallTimeMS = "sleep 5", 50
	case chance < 15:
		spec.Language = "klingon"
	case chance < 22:
		s.session(ctx, srv.Client)
		return
	}
	r, err := srv.Client.Run(ctx, spec, client.RunOptions{})
	if err != nil {
		s.note("error " + sandbox.AsError(err).Code)
		return
	}
	s.note(string(r.Status))
}

// session plays a living sandbox.
func (s *soak) session(ctx context.Context, cl *client.Client) {
	x, err := cl.Create(ctx, sandbox.Create{TTLMS: 20_000})
	if err != nil {
		s.note("no sandbox " + sandbox.AsError(err).Code)
		return
	}
	err = x.WriteFile(ctx, "a/b.txt", 0o644, 5, strings.NewReader("hello"))
	if err == nil {
		_, err = x.Exec(ctx, sandbox.Command{Shell: "cat a/b.txt; sleep 0.01"}, client.ExecOptions{})
	}
	if err != nil {
		s.note("session " + sandbox.AsError(err).Code)
	} else {
		s.note("session")
	}
	_, _ = x.Destroy(ctx)
}

// killAgent kills one of the server's children, as an operator or the kernel
// might.
func killAgent(server int, pick uint32) {
	var children []string
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", server))
	for _, file := range threads {
		b, _ := os.ReadFile(file) // a thread that has ended has none
		children = append(children, strings.Fields(string(b))...)
	}
	if len(children) == 0 {
		return
	}
	pid, err := strconv.Atoi(children[int(pick)%len(children)])
	if err == nil && pid > 1 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
