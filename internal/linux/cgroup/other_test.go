package cgroup

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The group of a process is found, counted and limited by who has not made it.
func TestOf(t *testing.T) {
	made := group(t, hierarchy(t), Limits{Memory: 64 * mib, Pids: 17})
	c := start(t, made, "alloc:16")
	if got := c.line(t); got != "ready" {
		t.Fatalf("the child says %q", got)
	}
	g, err := Of(c.Process.Pid, "other")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.CloseCounters)
	for _, dir := range made.Dirs() {
		if !slices.Contains(g.Dirs(), dir) {
			t.Errorf("%s is not among %q", dir, g.Dirs())
		}
	}
	if got := g.MemoryLimit(); got != 64*mib {
		t.Errorf("its memory limit is %d", got)
	}
	want, err := made.Counters()
	if err != nil {
		t.Fatal(err)
	}
	got, err := g.Counters()
	if err != nil || got.Tasks != want.Tasks || got.MemoryBytes < 16*mib {
		t.Errorf("it counts %+v, not %+v: %v", got, want, err)
	}
	if err := g.SetMemoryLimit(96 * mib); err != nil {
		t.Error(err)
	}
	if again, err := Of(c.Process.Pid, "again"); err != nil || again.MemoryLimit() != 96*mib {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := Of(1<<22+1, "nobody"); err == nil {
		t.Error("a process that is not there has a group")
	}
}

func TestGroupOf(t *testing.T) {
	const text = "5:cpu,cpuacct:/docker/a\n4:memory:/docker/b:c\n1:name=systemd:/x\n0::/docker/u\n"
	got := map[string]string{}
	for _, c := range []string{"cpu", "cpuacct", "memory", "", "pids", "name=systemd"} {
		got[c] = groupOf(text, c)
	}
	want := map[string]string{"cpu": "/docker/a", "cpuacct": "/docker/a", "memory": "/docker/b:c", "": "/docker/u", "pids": "/../", "name=systemd": "/x"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("groups (-want +got):\n%s", d)
	}
}

// Whether what somebody else has stopped stands still, the kernel says.
func TestStandsStill(t *testing.T) {
	h := hierarchy(t)
	made, c := freezable(t, h)
	if err := made.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	g, err := Of(c.Process.Pid, "other")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.CloseCounters)
	if is, known, err := g.StandsStill(); !is || !known || err != nil {
		t.Errorf("frozen: %v, known %v, %v", is, known, err)
	}
	if err := made.Thaw(); err != nil {
		t.Fatal(err)
	}
	if is, _, err := g.StandsStill(); is || err != nil && !Gone(err) {
		t.Errorf("thawed: %v, %v", is, err)
	}
	nowhere := &Group{version: 1}
	if is, known, err := nowhere.StandsStill(); is || known || err != nil {
		t.Errorf("where there is no freezer: %v, known %v, %v", is, known, err)
	}
}
