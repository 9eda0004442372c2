//go:build linux

package faults

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
	"pinfold/test/ledger"
	"pinfold/test/server"
)

// Five thousand ask at once for room that a hundred have. A hundred get it, the
// others learn that they should come back, and the server stays itself and no larger.
func TestFlood(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the ledger of what is left on the host needs root")
	}
	const capacity, asking = 100, 5000
	ledger.Check(t)
	s, err := server.Start(t.Context(), server.Options{
		Program: server.Build(t), State: stateDir(t), Config: "capacity: {sandboxes: 100, queue: 200, queue_timeout: 2s}\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()
	m := &many{t: t, server: s}
	begin := m.memory()
	var mu sync.Mutex
	var got []*client.Sandbox
	refused := map[string]int{}
	var wg sync.WaitGroup
	for range asking {
		wg.Go(func() {
			x, err := s.Client.Create(ctx, sandbox.Create{TTLMS: 600_000})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				refused[sandbox.AsError(err).Code]++
				return
			}
			got = append(got, x)
		})
	}
	wg.Wait()
	t.Logf("%d got one, refused: %v", len(got), refused)
	if len(got) != capacity || refused[sandbox.CodeBusy] != asking-capacity {
		t.Errorf("%d of %d got a sandbox, refused: %v", len(got), asking, refused)
	}
	if p, err := got[0].Exec(ctx, sandbox.Command{Args: []string{"/bin/true"}}, client.ExecOptions{}); err != nil || p.Status != sandbox.StatusSucceeded {
		t.Errorf("one of them does not work: %+v, %v", p, err)
	}
	m.givesBack(begin, capacity)
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// A server that runs out of file descriptors says so, keeps what it has, and
// goes on when there are some again.
func TestFewDescriptors(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the ledger of what is left on the host needs root")
	}
	ledger.Check(t)
	program := server.Build(t)
	limited := program + "-limited"
	script := "#!/bin/sh\nulimit -n 300\nexec " + program + " \"$@\"\n"
	if err := os.WriteFile(limited, []byte(script), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	s, err := server.Start(t.Context(), server.Options{Program: limited, State: stateDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all []*client.Sandbox
	var refusal *sandbox.Error
	for len(all) < 100 {
		x, err := s.Client.Create(ctx, sandbox.Create{TTLMS: 600_000})
		if err != nil {
			refusal = sandbox.AsError(err)
			break
		}
		all = append(all, x)
	}
	if refusal == nil || refusal.Code != sandbox.CodeResourceUnavailable || !strings.Contains(refusal.Hint, "LimitNOFILE=") {
		t.Fatalf("after %d sandboxes: %+v", len(all), refusal)
	}
	if len(all) < 40 { // each holds three of 300, and what was opened for counters is closed before anybody is refused
		t.Errorf("%d sandboxes with 300 descriptors", len(all))
	}
	t.Logf("%d sandboxes, then %s", len(all), refusal)
	for _, x := range all {
		if info, err := x.Info(ctx); err != nil || info.State != sandbox.StateRunning {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	for _, x := range all[:2] {
		if _, err := x.Destroy(ctx); err != nil {
			t.Fatal(err)
		}
	}
	x, err := s.Client.Create(ctx, sandbox.Create{})
	for until := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(until); {
		if sandbox.AsError(err).Code != sandbox.CodeResourceUnavailable {
			break
		}
		time.Sleep(100 * time.Millisecond) // what ended may still be cleaned away
		x, err = s.Client.Create(ctx, sandbox.Create{})
	}
	if err != nil {
		t.Fatalf("with descriptors again: %v", err)
	}
	if p, err := x.Exec(ctx, sandbox.Command{Args: []string{"/bin/true"}}, client.ExecOptions{}); err != nil || p.Status != sandbox.StatusSucceeded {
		t.Errorf("%+v, %v", p, err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// A full disk is said as such; what lives can still be ended, and when there is
// room again nothing needs repair.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a small file system needs root")
	}
	ledger.Check(t)
	dir := stateDir(t)
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "pinfold-test", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	s, err := server.Start(t.Context(), server.Options{Program: server.Build(t), State: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	living, err := s.Client.Create(ctx, sandbox.Create{TTLMS: 600_000})
	if err != nil {
		t.Fatal(err)
	}
	filler := dir + "/filler"
	if f, err := os.Create(filler); err == nil { //nolint:gosec // our own directory
		block := make([]byte, 4096)
		for err == nil {
			_, err = f.Write(block)
		}
		_ = f.Close()
	}
	// Whoever sends work here learns it before any of it is refused.
	for err = nil; err == nil && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) { // it looks once a second
		err = s.Client.Ready(ctx)
	}
	if err == nil || sandbox.AsError(err).Code != sandbox.CodeInsufficient || !strings.Contains(err.Error(), "disk") {
		t.Errorf("ready on a full disk: %v", err)
	}
	var refusal *sandbox.Error
	for range 2000 {
		if _, err = s.Client.Run(ctx, sandbox.Spec{Language: "sh", Code: "head -c 20000 /dev/zero | tr '\\0' x"}, client.RunOptions{}); err != nil {
			refusal = sandbox.AsError(err)
			break
		}
	}
	if refusal == nil || refusal.Code != sandbox.CodeInsufficient || !strings.Contains(refusal.Message+refusal.Hint, "disk") {
		t.Fatalf("on a full disk: %+v", refusal)
	}
	if info, err := living.Destroy(ctx); err != nil || info.State != sandbox.StateEnded {
		t.Errorf("cannot be destroyed on a full disk: %+v, %v", info, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(ctx); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if r, err := s.Client.Run(ctx, sandbox.Spec{Language: "sh", Code: "echo again"}, client.RunOptions{}); err != nil || r.Stdout != "again\n" {
		t.Errorf("with room again: %+v, %v", r, err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
