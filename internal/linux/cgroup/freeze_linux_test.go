package cgroup

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// freezable is a group with a process, that can be frozen here.
func freezable(t *testing.T, h *Hierarchy) (*Group, *child) {
	t.Helper()
	g := group(t, h, Limits{Pids: 50})
	if !g.CanFreeze() {
		if must() {
			t.Fatal("there is no freezer")
		}
		t.Skip("there is no freezer")
	}
	c := start(t, g, "sleep")
	c.line(t)
	return g, c
}

// frozen says what the kernel says.
func (g *Group) frozen(t *testing.T) bool {
	t.Helper()
	file, want := stateV1, frozenV1
	if g.version == 2 {
		file, want = "cgroup.events", frozenV2
	}
	text, err := os.ReadFile(path.Join(g.frozenDir(), file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), want)
}

func TestFreeze(t *testing.T) {
	h := hierarchy(t)
	g, c := freezable(t, h)
	ctx := context.Background()
	for range 2 {
		for range 2 {
			if err := g.Freeze(ctx); err != nil || !g.frozen(t) {
				t.Fatalf("Freeze: %v", err)
			}
		}
		for range 2 {
			if err := g.Thaw(); err != nil || g.frozen(t) {
				t.Fatalf("Thaw: %v", err)
			}
		}
	}
	again, _ := freezable(t, h)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	// Version 2 may be done before we look, version 1 has not looked twice.
	if err := again.Freeze(ended); h.Version() == 1 && err == nil || err != nil && again.frozen(t) {
		t.Errorf("a pause that did not succeed in time is not undone: %v", err)
	}
	if err := g.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	if err := g.Kill(ctx); err != nil {
		t.Fatalf("Kill of what is frozen: %v", err)
	}
	if err := c.Wait(); err == nil {
		t.Error("a frozen process outlived Kill")
	}
	dir := g.frozenDir()
	if err := g.Remove(ctx); err != nil || exists(dir) {
		t.Errorf("Remove: %v", err)
	}
	if err := g.Freeze(ctx); !errors.Is(err, os.ErrClosed) || exists(dir) {
		t.Errorf("Freeze after Remove: %v", err)
	}
}

// Who is killed while its groups are frozen leaves nothing that cannot be ended.
func TestSweepFrozen(t *testing.T) {
	h := hierarchy(t)
	g, c := freezable(t, h)
	if err := g.Freeze(context.Background()); err != nil {
		t.Fatal(err)
	}
	next := hierarchy(t)
	swept, err := next.Sweep(context.Background(), func(name string) bool { return name != g.Name() })
	if err != nil || len(swept) != 1 || swept[0].Err != nil {
		t.Fatalf("Sweep: %+v, %v", swept, err)
	}
	if err := c.Wait(); err == nil {
		t.Error("a frozen process of a dead owner lives")
	}
	if exists(g.frozenDir()) || exists(g.Dirs()[0]) {
		t.Error("a group is left")
	}
	if h.Version() == 2 {
		return
	}
	removesDirectory(t, h, next)
	// One that was killed when it had removed its groups, and not yet their directory.
	if err := os.Mkdir(h.freezer.groups(), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	next = hierarchy(t)
	if _, err := next.Sweep(context.Background(), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	removesDirectory(t, h, next)
}

// removesDirectory wants next to remove the directory of frozen groups, if nobody has one.
func removesDirectory(t *testing.T, h, next *Hierarchy) {
	t.Helper()
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if others, err := filepath.Glob(path.Join(h.freezer.groups(), "*", stateV1)); err == nil && len(others) == 0 && exists(h.freezer.groups()) {
		t.Error("the directory of the dead owner's groups is left")
	}
}
