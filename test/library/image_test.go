//go:build linux

package library

import (
	"path/filepath"
	"testing"
	"time"

	"pinfold"
	"pinfold/client"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/sandbox"
	"pinfold/test/ledger"
	"pinfold/test/smallimage"
)

// A pool keeps interpreters of an image warm. When the image's name comes to stand for
// another, no run gets what is in the old one, and interpreters of the new one get warm.
func TestPoolOfAnImage(t *testing.T) {
	ledger.Check(t)
	images := filepath.Join(t.TempDir(), "images")
	smallimage.Import(t, images, "tiny", "first")
	local := must(pinfold.Open(t.Context(), pinfold.Options{
		Images: images, Agent: filepath.Join(agenttest.Install(t, agenttest.Agent), "pinfold-agent"),
		Pools: []sandbox.PoolSpec{{Name: "warm", Template: "tiny", Language: "python", Warm: []string{"json"}, Min: 1}},
	}))(t)
	t.Cleanup(func() { ok(t, local.Close()) })
	if names := must(local.Templates(t.Context()))(t); len(names) != 2 || names[1] != "tiny" {
		t.Errorf("the templates are %q", names)
	}
	spec := sandbox.Spec{Template: "tiny", Language: "python", Warm: []string{"json"}, Code: "import json; print(open('/etc/said').read(), end='')"}
	said := func() (string, bool) {
		t.Helper()
		r := must(local.Run(t.Context(), spec, client.RunOptions{}))(t)
		if r.Status != sandbox.StatusSucceeded {
			t.Fatalf("%s by %+v: %s", r.Status, r.Cause, r.Stderr)
		}
		return r.Stdout, r.Warm
	}
	warm := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			got, warm := said()
			if got != want {
				t.Fatalf("inside it is %q, want %q", got, want)
			}
			if warm {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("no run is warm")
			}
		}
	}
	warm("first\n")
	smallimage.Import(t, images, "tiny", "second")
	warm("second\n")
}
