package cgroup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const mib = 1 << 20

func TestNewSetsLimits(t *testing.T) {
	h := hierarchy(t)
	g := group(t, h, Limits{Memory: 64 * mib, Pids: 17, CPUQuotaUS: 50_000})
	want := map[int]map[string]string{
		1: {
			"memory.limit_in_bytes": "67108864", "memory.swappiness": "0", "pids.max": "17",
			"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000",
		},
		2: {
			"memory.max": "67108864", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "17",
			"cpu.max": "50000 100000",
		},
	}[h.Version()]
	got := map[string]string{}
	for name := range want {
		family, _, _ := strings.Cut(name, ".")
		got[name] = g.file(t, Controller(family), name)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("limits (-want +got):\n%s", d)
	}
	if h.Version() == 1 && h.swapFile {
		if got := g.file(t, Memory, swapFileV1); got != "67108864" {
			t.Fatalf("%s = %s", swapFileV1, got)
		}
	}
}

func TestNewWithoutLimitsSetsNone(t *testing.T) {
	g := group(t, hierarchy(t), Limits{})
	if got := g.file(t, Pids, "pids.max"); got != "max" {
		t.Fatalf("pids.max = %s", got)
	}
}

func TestNewRollsBack(t *testing.T) {
	h := hierarchy(t)
	name := testPrefix() + "rollback"
	// The kernel takes no quota below a millisecond.
	_, err := h.New(name, Limits{Memory: 64 * mib, CPUQuotaUS: 1})
	file := map[int]string{1: "cpu.cfs_quota_us", 2: "cpu.max"}[h.Version()]
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), file) {
		t.Fatalf("New: %v, want invalid argument for %s", err, file)
	}
	for _, dir := range h.Dirs() {
		if exists(path.Join(dir, name)) {
			t.Fatalf("%s is left in %s", name, dir)
		}
	}
}

func TestNewDoesNotTakeOverAGroup(t *testing.T) {
	h := hierarchy(t)
	first := group(t, h, Limits{Pids: 5})
	if _, err := h.New(first.Name(), Limits{}); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("New of an existing name: %v", err)
	}
	if got := first.file(t, Pids, "pids.max"); got != "5" {
		t.Fatalf("the first group's pids.max = %q", got)
	}
}

func TestNewRefuses(t *testing.T) {
	h := hierarchy(t)
	for _, c := range []struct {
		name string
		l    Limits
		want string
	}{
		{"", Limits{}, "no name"},
		{"..", Limits{}, "no name"},
		{"a/b", Limits{}, "no name"},
		{strings.Repeat("a", 65), Limits{}, "no name"},
		{"a", Limits{Memory: -1}, "negative memory"},
		{"a", Limits{Pids: -1}, "negative pids"},
		{"a", Limits{CPUPeriodUS: 1000}, "without a quota"},
	} {
		if _, err := h.New(c.name, c.l); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%q, %+v): %v, want %q", c.name, c.l, err, c.want)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	h := hierarchy(t)
	g := group(t, h, Limits{Memory: 48 * mib})
	bystander := start(t, g, "sleep")
	if got := bystander.line(t); got != "ready" {
		t.Fatalf("bystander said %q", got)
	}
	hog := start(t, g, "alloc:512")
	if got := hog.line(t); got != "" {
		t.Fatalf("512 MiB fitted into 48 MiB: %q", got)
	}
	_ = hog.Wait()
	if ws := hog.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL {
		t.Fatalf("the hog ended with %v", hog.ProcessState)
	}
	if h.Version() == 2 { // memory.oom.group
		if err := bystander.Wait(); err == nil || bystander.ProcessState.ExitCode() != -1 {
			t.Fatalf("the OOM killer left the rest of the group: %v", err)
		}
	}
	s, err := g.Stats()
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	// The kernel lets its high-water mark pass the limit by a few pages.
	if s.OOMKills < 1 || s.MemoryPeak < 40*mib || s.MemoryPeak > 49*mib {
		t.Fatalf("stats = %+v", s)
	}
}

func TestPidsLimit(t *testing.T) {
	g := group(t, hierarchy(t), Limits{Pids: 40})
	c := start(t, g, "fork:100")
	var forked int64
	if _, err := fmt.Sscanf(c.line(t), "forked %d", &forked); err != nil || forked >= 40 || forked < 20 {
		t.Fatalf("forked %d of at most 40: %v", forked, err)
	}
	s, err := g.Stats()
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	// The program's own threads may be among the 40, or come and go.
	if s.ForksRefused < 1 || s.TasksPeak != 40 || s.Tasks < forked || s.Tasks > 40 {
		t.Fatalf("stats = %+v after %d forks", s, forked)
	}
}

func TestCPUQuotaAndTime(t *testing.T) {
	g := group(t, hierarchy(t), Limits{CPUQuotaUS: 20_000})
	began := time.Now()
	if got := start(t, g, "spin:100").line(t); got != "ready" {
		t.Fatalf("child said %q", got)
	}
	if wall := time.Since(began); wall < 300*time.Millisecond {
		t.Fatalf("100 ms of CPU at a fifth of a CPU took %v", wall)
	}
	c, err := g.Counters()
	if err != nil || c.CPUNanos < 95e6 || c.CPUNanos > 2e9 {
		t.Fatalf("counters = %+v, %v", c, err)
	}
}

func TestStatsTellMemoryApart(t *testing.T) {
	g := group(t, hierarchy(t), Limits{Memory: 256 * mib})
	for _, job := range []string{"shmem:24", "alloc:32"} {
		if got := start(t, g, job).line(t); got != "ready" {
			t.Fatalf("%s said %q", job, got)
		}
	}
	s, err := g.Stats()
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	if s.Shmem < 24*mib || s.Shmem > 28*mib || s.Anon < 32*mib || s.Anon > 64*mib || s.File < 0 || s.Kernel <= 0 ||
		s.MemoryBytes < s.Shmem+s.Anon-2*mib || s.MemoryPeak < s.MemoryBytes-2*mib {
		t.Fatalf("stats = %+v", s)
	}
}

// What was before BeginPeak is no part of PeakSince.
func TestPeakSince(t *testing.T) {
	g := group(t, hierarchy(t), Limits{Memory: 256 * mib})
	use := func(job string) {
		t.Helper()
		c := start(t, g, job)
		if got := c.line(t); got != "ready" {
			t.Fatalf("%s said %q", job, got)
		}
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	use("alloc:48")
	if peak, err := g.PeakSince(); err != nil || peak < 48*mib {
		t.Fatalf("from the beginning: %d, %v", peak, err)
	}
	if err := g.BeginPeak(); err != nil {
		t.Fatal(err)
	}
	if peak, err := g.PeakSince(); err != nil || peak > 40*mib {
		t.Fatalf("after it began anew: %d, %v", peak, err)
	}
	use("alloc:16")
	if peak, err := g.PeakSince(); err != nil || g.version == 1 && (peak < 16*mib || peak > 40*mib) || g.version == 2 && peak != -1 && (peak < 16*mib || peak > 40*mib) {
		t.Fatalf("after less than before: %d, %v", peak, err)
	}
	use("alloc:80")
	if peak, err := g.PeakSince(); err != nil || peak < 80*mib || peak > 110*mib {
		t.Fatalf("after more than before: %d, %v", peak, err)
	}
}

func TestSetMemoryLimit(t *testing.T) {
	h := hierarchy(t)
	g := group(t, h, Limits{Memory: 64 * mib})
	file := map[int]string{1: memoryFileV1, 2: memoryFileV2}[h.Version()]
	for _, limit := range []int64{128 * mib, 128 * mib, 32 * mib, 96 * mib} {
		if err := g.SetMemoryLimit(limit); err != nil {
			t.Fatalf("SetMemoryLimit(%d): %v", limit, err)
		}
		if got := g.file(t, Memory, file); got != fmt.Sprint(limit) {
			t.Fatalf("%s = %s after SetMemoryLimit(%d)", file, got, limit)
		}
	}
	if err := g.SetMemoryLimit(0); err == nil {
		t.Fatal("SetMemoryLimit(0) was taken")
	}
	if err := group(t, h, Limits{}).SetMemoryLimit(mib); err == nil {
		t.Fatal("a limit where there was none was taken")
	}
}

// A group that was made without a CPU limit gets one later.
func TestSetCPUQuota(t *testing.T) {
	h := hierarchy(t)
	g := group(t, h, Limits{Pids: 4})
	for _, quota := range []int64{50_000, 150_000} {
		if err := g.SetCPUQuota(quota, 100_000); err != nil {
			t.Fatal(err)
		}
		file, want := "cpu.cfs_quota_us", fmt.Sprint(quota)
		if h.Version() == 2 {
			file, want = "cpu.max", fmt.Sprint(quota)+" 100000"
		}
		if got := g.file(t, CPU, file); got != want {
			t.Errorf("%s = %s, not %s", file, got, want)
		}
	}
	for _, bad := range [][2]int64{{0, 100_000}, {-1, 100_000}, {50_000, 0}} {
		if err := g.SetCPUQuota(bad[0], bad[1]); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

func TestSetPidsLimit(t *testing.T) {
	g := group(t, hierarchy(t), Limits{Pids: 4})
	for _, limit := range []int64{8, 8, 2} {
		if err := g.SetPidsLimit(limit); err != nil {
			t.Fatalf("SetPidsLimit(%d): %v", limit, err)
		}
		if got := g.file(t, Pids, pidsFile); got != fmt.Sprint(limit) {
			t.Fatalf("%s = %s after SetPidsLimit(%d)", pidsFile, got, limit)
		}
	}
	if err := g.SetPidsLimit(0); err == nil {
		t.Fatal("SetPidsLimit(0) was taken")
	}
}

func TestKill(t *testing.T) {
	h := hierarchy(t)
	for _, c := range []struct {
		name string
		kill func(*Group) error
	}{
		{"best way", func(g *Group) error { return g.Kill(context.Background()) }},
		{"one by one", func(g *Group) error { return g.kill(context.Background(), false) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := group(t, h, Limits{Pids: 60})
			if got := start(t, g, "bomb").line(t); got != "ready" {
				t.Fatalf("bomb said %q", got)
			}
			time.Sleep(20 * time.Millisecond)
			if err := c.kill(g); err != nil {
				t.Fatalf("Kill: %v", err)
			}
			if ids, err := g.Procs(); err != nil || len(ids) > 0 {
				t.Fatalf("Procs after Kill: %v, %v", ids, err)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	g := group(t, hierarchy(t), Limits{})
	c := start(t, g, "sleep")
	c.line(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	err := g.Remove(ctx)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(c.Process.Pid)) || !strings.Contains(err.Error(), g.Dirs()[0]) {
		t.Fatalf("Remove of a living group: %v", err)
	}
	for range 2 {
		if err := errors.Join(g.Kill(context.Background()), g.Remove(context.Background())); err != nil {
			t.Fatalf("Kill and Remove: %v", err)
		}
	}
	if _, err := g.Counters(); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("Counters after Remove: %v", err)
	}
	if err := g.SetMemoryLimit(mib); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("SetMemoryLimit after Remove: %v", err)
	}
	if err := g.SetPidsLimit(1); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("SetPidsLimit after Remove: %v", err)
	}
	if err := g.SetCPUQuota(50_000, 100_000); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("SetCPUQuota after Remove: %v", err)
	}
}

func TestSweep(t *testing.T) {
	h := hierarchy(t)
	living, dead := group(t, h, Limits{}), group(t, h, Limits{})
	c := start(t, dead, "sleep")
	c.line(t)
	swept, err := h.Sweep(context.Background(), func(name string) bool { return name != dead.Name() })
	if d := cmp.Diff([]Swept{{Name: dead.Name()}}, swept); err != nil || d != "" {
		t.Fatalf("Sweep: %v (-want +got):\n%s", err, d)
	}
	if err := c.Wait(); err == nil {
		t.Fatal("the process of the dead group lives")
	}
	if exists(dead.Dirs()[0]) || !exists(living.Dirs()[0]) {
		t.Fatal("the wrong group was removed")
	}
}

// Processes that start and end at the same time remove the common directory
// under each other's feet.
func TestManyAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 8 {
		h := hierarchy(t)
		wg.Go(func() {
			for j := range 40 {
				g, err := h.New(fmt.Sprintf("%smany-%d-%d", testPrefix(), i, j), Limits{Memory: 16 * mib, Pids: 8})
				if err != nil {
					t.Errorf("New: %v", err)
					return
				}
				if err := errors.Join(g.Remove(context.Background()), h.Close()); err != nil {
					t.Errorf("Remove and Close: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// As root we ask as somebody else. When the whole suite runs as an ordinary
// user, in a delegated cgroup, hierarchy checks that the answer is yes.
func TestOrdinaryUserIsToldWhatToDo(t *testing.T) {
	if os.Geteuid() != 0 {
		hierarchy(t)
		return
	}
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer func() { _ = exe.Close() }()
	cmd := exec.Command("/proc/self/fd/3") // also where the user cannot reach the file
	cmd.ExtraFiles = []*os.File{exe}
	cmd.Env = []string{childEnv + "=detect"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	var got map[string]Support
	if err := json.NewDecoder(strings.NewReader(string(out))).Decode(&got); err != nil {
		t.Fatalf("child printed %q: %v", out, err)
	}
	for _, c := range []string{"memory", "pids"} {
		if s := got[c]; s.Answer != No || !strings.Contains(s.Because, "permission denied") || s.Fix == "" {
			t.Errorf("%s: %+v", c, s)
		}
	}
}

func TestCountersAllocateNothing(t *testing.T) {
	g := group(t, hierarchy(t), Limits{})
	if n := testing.AllocsPerRun(100, func() {
		if _, err := g.Counters(); err != nil {
			t.Fatalf("Counters: %v", err)
		}
	}); n != 0 {
		t.Fatalf("Counters allocates %v times", n)
	}
}

func BenchmarkDetect(b *testing.B) {
	for b.Loop() {
		if _, err := Detect(Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewRemove(b *testing.B) {
	h := hierarchy(b)
	keep := group(b, h, Limits{}) // as in a server: the directory above stays
	for b.Loop() {
		g, err := h.New(testPrefix()+"bench", Limits{Memory: 64 * mib, Pids: 64, CPUQuotaUS: 100_000})
		if err == nil {
			err = g.Remove(context.Background())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	_ = keep
}

func BenchmarkCounters(b *testing.B) {
	g := group(b, hierarchy(b), Limits{})
	for b.Loop() {
		if _, err := g.Counters(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStats(b *testing.B) {
	g := group(b, hierarchy(b), Limits{})
	for b.Loop() {
		if _, err := g.Stats(); err != nil {
			b.Fatal(err)
		}
	}
}
