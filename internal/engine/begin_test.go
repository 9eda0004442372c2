package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/living"
	"pinfold/internal/engine/records"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// begun is a server whose template starts something. Of what its programs are asked for is
// counted: lines for the shell, by the line.
type begun struct {
	*served
	started, asked atomic.Int64
}

// begins makes one. start is what the command does, and ready what the nth asking does.
func begins(t *testing.T, with image.Start, start func(*fake.Process) fake.Exit, ready func(p *fake.Process, n int64) fake.Exit) *begun {
	t.Helper()
	return beginsWith(t, engine.Options{}, with, start, ready)
}

func beginsWith(t *testing.T, o engine.Options, with image.Start, start func(*fake.Process) fake.Exit, ready func(p *fake.Process, n int64) fake.Exit) *begun {
	t.Helper()
	b := &begun{}
	o.Template = func(name string) (image.Template, error) {
		return image.Template{Name: name, ID: "one", User: image.Usual(), Start: with}, nil
	}
	b.served = serve(t, o, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			switch strings.Join(p.Args, " ") {
			case "/bin/sh -c " + with.Command:
				b.started.Add(1)
				return start(p)
			case "/bin/sh -c " + with.Ready:
				return ready(p, b.asked.Add(1))
			}
			return fake.Builtin(p)
		}}
	})
	return b
}

func staysUp(p *fake.Process) fake.Exit {
	<-p.Killed
	return fake.Exit{Signal: 9}
}

// A sandbox whose template starts something is given out when that is ready; the askings
// leave nothing, and the command is a process like any other. What is forked begins anew.
func TestTemplateStarts(t *testing.T) {
	with := image.Start{Command: "serve", Ready: "ask", WithinMS: 60_000}
	b := begins(t, with, staysUp, func(p *fake.Process, n int64) fake.Exit {
		_, _ = p.Stderr.Write([]byte("not yet"))
		return fake.Exit{Code: map[bool]int{true: 1}[n < 3]}
	})
	x := b.create(t, sandbox.Create{})
	if n, m := b.started.Load(), b.asked.Load(); n != 1 || m != 3 {
		t.Errorf("started %d times, and asked %d times", n, m)
	}
	if all := x.Processes(); len(all) != 1 || !all[0].Running || all[0].Args[2] != "serve" {
		t.Errorf("its processes: %+v", all)
	}
	put(t, x, "a", "text")
	made, err := b.Fork(soon(t), x, sandbox.ForkSandbox{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range made {
		holds(t, f, "a", "text")
		if all := f.Processes(); len(all) != 1 || !all[0].Running {
			t.Errorf("a fork's processes: %+v", all)
		}
	}
	if n := b.started.Load(); n != 3 {
		t.Errorf("started %d times", n)
	}
}

// Without a command that says so, it is ready when it has started, whatever becomes of it.
func TestTemplateStartsWithoutReady(t *testing.T) {
	b := begins(t, image.Start{Command: "serve"}, func(*fake.Process) fake.Exit { return fake.Exit{Code: 4} }, nil)
	x := b.create(t, sandbox.Create{})
	p, err := x.Process(x.Processes()[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Wait(soon(t)); err != nil || *got.ExitCode != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	if got := x.Info(); got.State != sandbox.StateRunning {
		t.Errorf("%+v", got)
	}
}

// Nobody gets a sandbox that did not begin as its template says, and nothing of it is left.
func TestTemplateDoesNotStart(t *testing.T) {
	fails := func(p *fake.Process, _ int64) fake.Exit {
		_, _ = p.Stderr.Write([]byte("nobody listens\x1b[2J"))
		return fake.Exit{Code: 7}
	}
	hangs := func(p *fake.Process, _ int64) fake.Exit { return staysUp(p) }
	for name, c := range map[string]struct {
		within int64
		start  func(*fake.Process) fake.Exit
		ready  func(*fake.Process, int64) fake.Exit
		want   []string
	}{
		"it ends": {60_000, func(p *fake.Process) fake.Exit {
			_, _ = p.Stderr.Write([]byte("no such module\n"))
			return fake.Exit{Code: 3}
		}, fails, []string{"start: ", "exit status 3", "the last that it printed:\nno such module"}},
		"it is killed": {60_000, func(*fake.Process) fake.Exit { return fake.Exit{Signal: 11} }, fails, []string{"start: ", "SIGSEGV"}},
		"never ready":  {300, staysUp, fails, []string{"ready: ", "within 300ms", "exit status 7", "nobody listens"}},
		"ready hangs":  {300, staysUp, hangs, []string{"ready: ", "within 300ms"}},
		"it says nothing, but start did": {300, func(p *fake.Process) fake.Exit {
			_, _ = p.Stdout.Write([]byte("warming up\n"))
			return staysUp(p)
		}, func(*fake.Process, int64) fake.Exit { return fake.Exit{Code: 1} }, []string{"warming up"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // its clock goes on when all wait, however slow the host is
				b := begins(t, image.Start{Command: "serve", Ready: "ask", WithinMS: c.within}, c.start, c.ready)
				x, err := b.Create(soon(t), "alice", sandbox.Create{})
				e := sandbox.AsError(err)
				if err == nil || e.Code != sandbox.CodeStartFailed || e.Field != "template" || e.Hint == "" {
					t.Fatalf("%v, %v", x, err)
				}
				for _, want := range c.want {
					if !strings.Contains(e.Message, want) {
						t.Errorf("%q does not say %q", e.Message, want)
					}
				}
				if strings.Contains(e.Message, "\x1b") {
					t.Errorf("%q has a control character", e.Message)
				}
				if n := b.driver.Living(); n != 0 {
					t.Errorf("%d machines live", n)
				}
			})
		})
	}
}

// Whoever goes away while something gets ready leaves no sandbox.
func TestTemplateStartsForNobody(t *testing.T) {
	ctx, leave := context.WithCancel(soon(t))
	b := begins(t, image.Start{Command: "serve", Ready: "ask", WithinMS: 60_000}, staysUp, func(p *fake.Process, n int64) fake.Exit {
		if n == 2 {
			leave()
		}
		return fake.Exit{Code: 1}
	})
	if x, err := b.Create(ctx, "alice", sandbox.Create{}); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, %v", x, err)
	}
	if n := b.driver.Living(); n != 0 {
		t.Errorf("%d machines live", n)
	}
}

// A sandbox that ends while something gets ready is not given out, and says why.
func TestTemplateEndsWhileItStarts(t *testing.T) {
	b := begins(t, image.Start{Command: "serve", Ready: "ask", WithinMS: 600_000}, staysUp, func(p *fake.Process, _ int64) fake.Exit {
		p.Machine.Die(driver.Death{Kind: driver.DeathMemory})
		return staysUp(p)
	})
	x, err := b.Create(soon(t), "alice", sandbox.Create{})
	if err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("%v, %v", x, err)
	}
}

// One that somebody else ends or pauses meanwhile says that: it is no fault of the template's.
func TestOthersEndWhatStarts(t *testing.T) {
	for want, do := range map[string]func(x *living.Sandbox) error{
		sandbox.CodeGone: func(x *living.Sandbox) error { _, err := x.Destroy(context.Background()); return err },
		sandbox.CodeConflict: func(x *living.Sandbox) error {
			for {
				_, err := x.Pause(context.Background())
				if code(err) != sandbox.CodeConflict { // an asking is under way: between two of them it can be paused
					return err
				}
				time.Sleep(time.Millisecond)
			}
		},
	} {
		var b *begun
		done := make(chan error, 1)
		b = begins(t, image.Start{Command: "serve", Ready: "ask", WithinMS: 600_000}, staysUp, func(_ *fake.Process, n int64) fake.Exit {
			if n == 1 {
				go func() {
					page, err := b.Sandboxes(context.Background(), "alice", records.Query{})
					if err != nil || len(page.Items) != 1 {
						done <- fmt.Errorf("%+v, %w", page, err)
						return
					}
					x, err := b.Sandbox("alice", page.Items[0].ID)
					if err == nil {
						err = do(x)
					}
					done <- err
				}()
			}
			return fake.Exit{Code: 1}
		})
		x, err := b.Create(soon(t), "alice", sandbox.Create{})
		if code(err) != want {
			t.Errorf("want %s: %v, %v", want, x, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
