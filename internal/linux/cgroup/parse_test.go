package cgroup

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKeyed(t *testing.T) {
	for _, c := range []struct {
		text, key string
		want      int64
		ok        bool
	}{
		{"123\n", "", 123, true},
		{"0", "", 0, true},
		{"max\n", "", 0, false},
		{"-1\n", "", 0, false},
		{"", "", 0, false},
		{"99999999999999999999\n", "", math.MaxInt64, true},
		{"9223372036854775807\n", "", math.MaxInt64, true},
		{"oom 3\noom_kill 4\noom_group_kill 5\n", "oom_kill", 4, true},
		{"oom 3\noom_kill 4", "oom_kill", 4, true},
		{"oom_kill_disable 0\nunder_oom 0\n", "oom_kill", 0, false},
		{"oom_kill\n", "oom_kill", 0, false},
		{"oom_kill x\n", "oom_kill", 0, false},
	} {
		if got, ok := keyed([]byte(c.text), c.key); got != c.want || ok != c.ok {
			t.Errorf("keyed(%q, %q) = %d, %v; want %d, %v", c.text, c.key, got, ok, c.want, c.ok)
		}
	}
}

func TestIOBytes(t *testing.T) {
	for _, c := range []struct {
		text, read, write string
		r, w              int64
	}{
		{"8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n254:0 rbytes=1 wbytes=2\n", " rbytes=", " wbytes=", 11, 22},
		{"8:0 Read 10\n8:0 Write 20\n8:0 Sync 30\n8:0 Total 30\n8:1 Read 5\nTotal 35\n", " Read ", " Write ", 15, 20},
		{"Total 0\n", " Read ", " Write ", 0, 0},
		{"8:0 rbytes=9223372036854775807\n8:1 rbytes=5\n", " rbytes=", " wbytes=", math.MaxInt64, 0},
	} {
		if r, w := ioBytes([]byte(c.text), c.read, c.write); r != c.r || w != c.w {
			t.Errorf("ioBytes(%q) = %d, %d; want %d, %d", c.text, r, w, c.r, c.w)
		}
	}
}

func TestPids(t *testing.T) {
	if d := cmp.Diff([]int{1, 0, 77}, pids([]byte("1\n0\n\nx\n77\n99999999999\n"))); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte("usage_usec 12\nuser_usec 3\n"), "usage_usec")
	f.Add([]byte("8:0 rbytes=1 wbytes=2\n"), " rbytes=")
	f.Add([]byte("1\n2\n"), "")
	f.Fuzz(func(t *testing.T, b []byte, key string) {
		n, _ := keyed(b, key)
		r, w := ioBytes(b, key, " Write ")
		if n < 0 || r < 0 || w < 0 {
			t.Fatalf("negative: %d %d %d", n, r, w)
		}
		if got := (&source{key: key, scale: 1000}).parse(b); got < -1 {
			t.Fatalf("parse = %d", got)
		}
		for _, id := range pids(b) {
			if id < 0 || id > math.MaxInt32 {
				t.Fatalf("pid %d", id)
			}
		}
	})
}

const hybridMountinfo = `22 1 0:20 / /proc rw,nosuid - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /mnt/other\040place rw,relatime - cgroup cgroup rw,memory
36 31 0:32 /docker/abc /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
42 31 0:39 / /x rw - cgroupish none rw
43 31 0:39 / - cgroup cgroup rw
`

func TestParseMountinfo(t *testing.T) {
	got := parseMountinfo(hybridMountinfo)
	want := []mountPoint{
		{1, "/", "/sys/fs/cgroup/cpu,cpuacct", []string{"rw", "cpu", "cpuacct"}},
		{1, "/", "/mnt/other place", []string{"rw", "memory"}},
		{1, "/docker/abc", "/sys/fs/cgroup/memory", []string{"rw", "memory"}},
		{2, "/", "/sys/fs/cgroup/unified", []string{"rw", "nsdelegate"}},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(mountPoint{})); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
	for controller, dir := range map[string]string{
		"memory": "/sys/fs/cgroup/memory", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct", "": "/sys/fs/cgroup/unified", "pids": "",
	} {
		if m, _ := pick(got, controller); m.dir != dir {
			t.Errorf("pick(%q) = %q, want %q", controller, m.dir, dir)
		}
	}
}

func TestVisible(t *testing.T) {
	for _, c := range []struct{ root, cgroup, want string }{
		{"/", "/", "/c"},
		{"/", "/user.slice/a..b", "/c/user.slice/a..b"},
		{"/", "/../x", ""},
		{"/docker/a", "/docker/a", "/c"},
		{"/docker/a", "/docker/a/b", "/c/b"},
		{"/docker/a", "/docker/ab", ""},
		{"/docker/a", "/", ""},
	} {
		if got, _ := (mountPoint{root: c.root, dir: "/c"}).visible(c.cgroup); got != c.want {
			t.Errorf("visible(%q in %q) = %q, want %q", c.cgroup, c.root, got, c.want)
		}
	}
}

func FuzzProcfs(f *testing.F) {
	f.Add(hybridMountinfo)
	f.Add("0::/user.slice\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMountinfo(text) {
			if m.version != 1 && m.version != 2 {
				t.Fatalf("version %d", m.version)
			}
			_, _ = m.visible(text)
		}
		_, _ = ownCgroup(text)
	})
}
