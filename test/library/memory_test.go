//go:build linux

package library

import (
	"os"
	"strings"
	"testing"

	"pinfold/client"
	"pinfold/sandbox"
)

// Where only the process is to end for want of memory, the sandbox lives on with its
// files and its other processes, again and again; the control is a sandbox that ends.
func TestOnOutOfMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without a memory cgroup nobody ends a single process")
	}
	hog := sandbox.Command{Args: []string{"python3", "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"}}
	both(t, func(t *testing.T, w way) {
		ctx := t.Context()
		limits := sandbox.Limits{MemoryBytes: 96 << 20}
		b := w.create(t, sandbox.Create{Limits: limits, OnOutOfMemory: sandbox.OutOfMemoryProcess})
		ok(t, b.WriteFile(ctx, "kept", 0o644, 4, strings.NewReader("kept")))
		bystander := w.start(t, b, sandbox.Command{Args: []string{"sleep", "600"}})
		for range 3 {
			p := must(b.Exec(ctx, hog, client.ExecOptions{}))(t)
			if p.Status != sandbox.StatusKilled || p.Cause.Kind != sandbox.CauseMemory || p.Cause.Limit != limits.MemoryBytes || p.Signal != "SIGKILL" || p.Cause.Evidence == "" {
				t.Fatalf("the process: %+v", p)
			}
		}
		p := must(b.Exec(ctx, sandbox.Command{Shell: "cat kept; exit 3"}, client.ExecOptions{}))(t)
		if p.Stdout != "kept" || p.Cause.Kind != sandbox.CauseExited {
			t.Errorf("a process afterwards: %+v, cause %+v", p, p.Cause)
		}
		if info, err := bystander.Info(ctx); err != nil || !info.Running {
			t.Errorf("a process beside: %+v, %v", info, err)
		}
		if info, err := b.Info(ctx); err != nil || info.State != sandbox.StateRunning {
			t.Errorf("the sandbox: %+v, %v", info, err)
		}
		control := w.create(t, sandbox.Create{Limits: limits})
		if p, err := control.Exec(ctx, hog, client.ExecOptions{}); err != nil || p.Cause == nil || p.Cause.Kind != sandbox.CauseMemory {
			t.Errorf("the control's process: %+v, %v", p, err)
		}
		for { // the sandbox's end comes a moment after its process's
			if _, err := control.Exec(ctx, sandbox.Command{Shell: "sleep .1"}, client.ExecOptions{}); err != nil {
				break
			}
		}
	})
}
