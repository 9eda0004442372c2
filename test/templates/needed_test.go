//go:build linux

package templates

import (
	"path/filepath"
	"sync"
	"testing"

	"pinfold"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/template"
	"pinfold/sandbox"
	"pinfold/test/ledger"
	"pinfold/test/smallimage"
)

// What a template's sandboxes and snapshots are made of stays while they are there, after
// its name was removed and also when that stands for another image: what is forked, and what
// is made of a snapshot, also after a restart, is of the same. Then it goes.
func TestRemovedTemplateIsNeeded(t *testing.T) {
	ledger.Check(t)
	b := &builder{t: t, images: filepath.Join(t.TempDir(), "images"), dir: t.TempDir()}
	o := pinfold.Options{Agent: filepath.Join(agenttest.Install(t, agenttest.Agent), "pinfold-agent"), StateDir: filepath.Join(t.TempDir(), "state")}
	o.Images = b.images
	before, err := pinfold.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	closeBefore := sync.OnceValue(before.Close)
	defer closeBefore()
	b.local = before
	smallimage.Tools(t, b.images, "tools")
	store, err := template.Open(b.images, template.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	collected := func() template.Collected {
		t.Helper()
		c, err := store.Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	says := func(what string, x *pinfold.Sandbox, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		p, err := x.Exec(t.Context(), sandbox.Command{Shell: "cat said; type python3 >/dev/null && echo python"}, pinfold.ExecOptions{})
		if err != nil || p.Stdout != "first\npython\n" {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
		if info, err := x.Info(t.Context()); err != nil || info.Template != "tools" {
			t.Errorf("%s: %+v, %v", what, info, err)
		}
		if _, err := x.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	first, err := b.local.Create(t.Context(), sandbox.Create{Template: "tools"})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := first.Exec(t.Context(), sandbox.Command{Shell: "echo first >said"}, pinfold.ExecOptions{}); err != nil || p.Status != sandbox.StatusSucceeded {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := store.Remove(t.Context(), "tools"); err != nil {
		t.Fatal(err)
	}
	snap, err := first.Snapshot(t.Context(), sandbox.TakeSnapshot{})
	if err != nil {
		t.Fatal(err)
	}
	forks, err := first.Fork(t.Context(), sandbox.ForkSandbox{})
	if err != nil {
		t.Fatal(err)
	}
	says("a fork", forks[0], nil)
	says("the first", first, nil)
	if c := collected(); c.InUse != 1 || c.Images != 0 {
		t.Errorf("while there is a snapshot: %+v", c)
	}
	x, err := b.local.Create(t.Context(), sandbox.Create{Snapshot: snap.ID})
	says("one of the snapshot", x, err)
	smallimage.Import(t, b.images, "tools", "another")
	if err := closeBefore(); err != nil {
		t.Fatal(err)
	}
	b.local = b.open(o)
	x, err = b.local.Create(t.Context(), sandbox.Create{Snapshot: snap.ID})
	says("one of the snapshot, when the name stands for another", x, err)
	if err := b.local.RemoveSnapshot(t.Context(), snap.ID); err != nil {
		t.Fatal(err)
	}
	if c := collected(); c.Images != 1 || c.InUse != 0 {
		t.Errorf("when nothing needs it: %+v", c)
	}
}
