//go:build linux

package attacks

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// Runs whose zygote ends, or is stopped, while they go on are lost, at once and with a
// reason: before the ten seconds after which any zygote that does not answer is given up.
// The pool gets a new zygote by itself, and nothing is left.
func TestZygotesOfPoolsThatEnd(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's interpreters are not forked")
	}
	ledger.Check(t)
	a := newArena(t, "")
	if err := a.engine.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.engine.SetPool(t.Context(), sandbox.PoolSpec{Name: "py", Language: "python", Min: 2, Limits: warmLimits}); err != nil {
		t.Fatal(err)
	}
	for _, signal := range []unix.Signal{unix.SIGKILL, unix.SIGSTOP} {
		t.Run(unix.SignalName(signal), func(t *testing.T) {
			waitFull(t, a.engine)
			spec := sandbox.Spec{Language: "python", Code: "import time\nprint('begun', flush=True)\ntime.sleep(600)", Limits: warmLimits}
			spec.Limits.WallTimeMS = 600_000 // no limit ends it either
			begun, done := make(chan struct{}, 1), make(chan *sandbox.Result, 1)
			go func() {
				r, err := a.engine.Run(t.Context(), runs.Request{Spec: spec, Streams: execution.Streams{Stdout: told(begun)}})
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			<-begun
			begin := time.Now()
			for _, zygote := range zygotesHere() {
				if err := unix.Kill(zygote, signal); err != nil {
					t.Fatal(err)
				}
			}
			r := <-done
			if r == nil {
				return
			}
			if took := time.Since(begin); took > 8*time.Second {
				t.Errorf("it took %v", took)
			}
			if !r.Warm || r.Status != sandbox.StatusError || r.Cause.Kind != sandbox.CauseLost || !strings.Contains(r.Cause.Evidence, "forked") || r.Cause.Hint == "" || r.Stdout != "begun\n" {
				t.Errorf("%+v", r)
			}
			spec.Code = "print(6 * 7)"
			if r, err := a.engine.Run(t.Context(), runs.Request{Spec: spec}); err != nil || r.Stdout != "42\n" {
				t.Errorf("the next run, warm or cold: %+v, %v", r, err)
			}
			waitFull(t, a.engine)
			if r, err := a.engine.Run(t.Context(), runs.Request{Spec: spec}); err != nil || r.Stdout != "42\n" || !r.Warm {
				t.Errorf("after that: %+v, %v", r, err)
			}
		})
	}
}

// told is a writer that says when something was written.
type told chan<- struct{}

func (w told) Write(p []byte) (int, error) {
	select {
	case w <- struct{}{}:
	default:
	}
	return len(p), nil
}

// zygotesHere are the zygotes of interpreters that this process has.
func zygotesHere() (all []int) {
	for _, pid := range childrenOf(os.Getpid()) {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.HasPrefix(string(name), "python") {
			all = append(all, pid)
		}
	}
	return all
}

// Pools with modules that cannot be loaded say why; runs that ask for these go on
// all the same.
func TestPoolsOfBadModules(t *testing.T) {
	ledger.Check(t)
	a := newArena(t, "")
	if err := a.engine.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct{ module, say string }{
		{"no_such_module_at_all", "no_such_module_at_all"},
		{"os.no_such", "os.no_such"},
		{"unittest.__main__", "ended|SystemExit"}, // it runs tests and exits
		{"this", ""},             // it prints
		{"asyncio.__main__", ""}, // it starts a thread
	} {
		t.Run(test.module, func(t *testing.T) {
			name := fmt.Sprintf("bad-%d", i)
			if _, err := a.engine.SetPool(t.Context(), sandbox.PoolSpec{Name: name, Language: "python", Warm: []string{test.module}, Min: 1, Limits: warmLimits}); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				pools := a.engine.Pools()
				p := pools[slices.IndexFunc(pools, func(p sandbox.PoolInfo) bool { return p.Name == name })]
				if test.say == "" && p.Available > 0 {
					t.Logf("interpreters are %s, %s", p.Interpreters, p.Why)
					break
				}
				if p.Error != nil && test.say != "" {
					if !anyOf(p.Error.Message, test.say) || p.Error.Hint == "" {
						t.Errorf("%+v", p.Error)
					}
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("nobody says why: %+v %v", p, p.Error)
				}
			}
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			r, err := a.engine.Run(ctx, runs.Request{Spec: sandbox.Spec{Language: "python", Code: "print(6 * 7)", Warm: []string{test.module}, Limits: warmLimits}})
			if err != nil || r.Status != sandbox.StatusSucceeded || r.Stdout != "42\n" {
				t.Errorf("%+v, %v", r, err)
			}
			if took := time.Since(begin); took > 25*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	for _, module := range []string{"../x", "/etc/passwd", "a/b", "a b", "a;b", "", "a\x00b", "a\nb", "-c", strings.Repeat("a", 1000), "ä", "__import__('os')"} {
		if _, err := a.engine.SetPool(t.Context(), sandbox.PoolSpec{Name: "odd", Language: "python", Warm: []string{module}, Min: 1}); sandbox.AsError(err).Code != sandbox.CodeSpecInvalid || sandbox.AsError(err).Field == "" {
			t.Errorf("%q: %v", module, err)
		}
	}
}

func anyOf(text, words string) bool {
	for word := range strings.SplitSeq(words, "|") {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
