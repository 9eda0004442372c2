package cgroup

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/test/freezer"
)

// Who is killed at its limits needs memory and time to end: the limits go
// once everybody has been killed, and not before.
func TestKillLiftsLimits(t *testing.T) {
	h := hierarchy(t)
	g := group(t, h, Limits{Memory: 64 * mib, Pids: 50, CPUQuotaUS: 50_000})
	c := start(t, g, "alloc:32")
	c.line(t)
	thaw := freezer.Freeze(t, c.Process.Pid)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := g.Kill(ctx); err == nil {
		t.Fatal("a process that cannot run was ended")
	}
	g.isLifted(t)
	if got := g.file(t, Pids, "pids.max"); h.Version() == 1 && got != "0" {
		t.Errorf("pids.max = %s", got)
	}
	if err := g.SetMemoryLimit(16 * mib); err == nil {
		t.Error("a limit that was lifted can be moved")
	}
	thaw()
	if err := g.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// Where one process is to end, version 2 does not end the group; version 1 never does.
func TestKillOne(t *testing.T) {
	h := hierarchy(t)
	g := group(t, h, Limits{Memory: 64 * mib, KillOne: true})
	if h.Version() == 2 {
		if got := g.file(t, Memory, "memory.oom.group"); got != "0" {
			t.Errorf("memory.oom.group = %s", got)
		}
	}
	bystander := start(t, g, "sleep")
	bystander.line(t)
	_ = start(t, g, "alloc:512").Wait()
	if s, err := g.Stats(); err != nil || s.OOMKills < 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if ids, err := g.Procs(); err != nil || !slices.Contains(ids, bystander.Process.Pid) {
		t.Errorf("the bystander %d is not among %v, %v", bystander.Process.Pid, ids, err)
	}
}

func TestLift(t *testing.T) {
	g := group(t, hierarchy(t), Limits{Memory: 64 * mib, Pids: 50, CPUQuotaUS: 50_000})
	for range 2 {
		if err := g.lift(); err != nil {
			t.Fatal(err)
		}
		g.isLifted(t)
	}
	if got := g.file(t, Pids, "pids.max"); got != "50" {
		t.Errorf("pids.max = %s: what ends needs no new task", got)
	}
}

func (g *Group) isLifted(t *testing.T) {
	t.Helper()
	for name, want := range map[int]map[string]string{
		1: {"memory.limit_in_bytes": "9223372036854771712", "cpu.cfs_quota_us": "-1"},
		2: {"memory.max": "max", "cpu.max": "max 100000"},
	}[g.version] {
		family, _, _ := strings.Cut(name, ".")
		if got := g.file(t, Controller(family), name); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
}
