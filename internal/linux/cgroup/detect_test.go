package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fake is a host made of plain files. Paths of cgroup files start at the mount.
type fake struct {
	own       string            // our cgroup
	files     map[string]string // below the version 2 mount
	root      bool
	noSystemd bool
	denied    []string // paths that we may not write, below the mount
	delegated []string // cgroups that systemd marked
	swaps     string
	mounts    string // instead of one version 2 mount; MNT stands for the directory
}

const fakePID = 4242

// detect runs detection on the fake and returns it with the mount's path cut off.
func (f fake) detect(t *testing.T) (*Hierarchy, string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mnt := filepath.Join(dir, "mnt")
	if f.mounts == "" {
		f.mounts = "30 23 0:26 / MNT rw - cgroup2 cgroup2 rw\n"
	}
	write("proc/self/mountinfo", strings.ReplaceAll(f.mounts, "MNT", mnt))
	write("proc/self/cgroup", "1:name=systemd:/x\n0::"+f.own+"\n")
	write("proc/swaps", "Filename Type Size Used Priority\n"+f.swaps)
	for name, text := range f.files {
		write("mnt/"+name, text)
	}
	below := func(list []string) func(string) bool {
		return func(p string) bool {
			rel := strings.TrimPrefix(p, mnt)
			return slices.ContainsFunc(list, func(d string) bool { return rel == d || d == "" || strings.HasPrefix(rel, d+"/") })
		}
	}
	h := host{
		proc: filepath.Join(dir, "proc"), root: f.root, systemd: !f.noSystemd, pid: fakePID,
		delegated: func(p string) bool { return slices.Contains(f.delegated, strings.TrimPrefix(p, mnt)) },
		writable: func(p string) error {
			if below(f.denied)(p) {
				return syscall.EACCES
			}
			if !exists(p) {
				return syscall.ENOENT
			}
			return nil
		},
	}
	found, err := h.detect()
	if err != nil {
		t.Fatalf("detect: %v", err)
	}
	return found, mnt
}

// cgroup2 describes the files of one version 2 cgroup.
func cgroup2(files map[string]string, dir, kind, controllers, enabled, procs string) map[string]string {
	if files == nil {
		files = map[string]string{}
	}
	files[dir+"/cgroup.controllers"] = controllers
	files[dir+"/cgroup.subtree_control"] = enabled
	files[dir+"/cgroup.procs"] = procs
	if kind != "" {
		files[dir+"/cgroup.type"] = kind + "\n"
	}
	return files
}

func rootAnd(files map[string]string) map[string]string {
	return cgroup2(files, "", "", "cpuset cpu io memory pids\n", "cpu memory pids\n", "1\n2\n")
}

const allOfThem = "cpu io memory pids\n"

func TestDetectV2Finds(t *testing.T) {
	scope := "user.slice/run-1.scope"
	for name, c := range map[string]struct {
		fake   fake
		base   string
		moveIn bool
		enable []Controller
	}{
		"root without delegation": {
			fake{own: "/user.slice/session-2.scope", root: true, files: rootAnd(nil)},
			"", false, enabledV2,
		},
		"root in a delegated service": {
			fake{
				own: "/system.slice/p.service", root: true, delegated: []string{"/system.slice/p.service"},
				files: rootAnd(cgroup2(nil, "system.slice/p.service", "domain", allOfThem, "", "4242\n")),
			},
			"/system.slice/p.service", true, enabledV2,
		},
		"root in a delegated service's subgroup": {
			fake{
				own: "/system.slice/p.service/main", root: true, delegated: []string{"/system.slice/p.service"},
				files: rootAnd(cgroup2(nil, "system.slice/p.service", "domain", allOfThem, "", "")),
			},
			"/system.slice/p.service", false, enabledV2,
		},
		"root in a delegated scope with a shell": {
			fake{
				own: "/s.scope", root: true, delegated: []string{"/s.scope"},
				files: rootAnd(cgroup2(nil, "s.scope", "domain", allOfThem, "", "17\n4242\n")),
			},
			"", false, enabledV2,
		},
		"user in a delegated scope": {
			fake{
				own: "/" + scope, denied: []string{"/cgroup.procs"},
				files: rootAnd(cgroup2(nil, scope, "domain", "cpu memory pids\n", "", "4242\n")),
			},
			"/" + scope, true,
			[]Controller{Memory, Pids, CPU},
		},
		"user, second start in the same scope": {
			fake{
				own: "/" + scope + "/pinfold-host", denied: []string{"/cgroup.procs"},
				files: rootAnd(cgroup2(nil, scope, "domain", allOfThem, allOfThem, "")),
			},
			"/" + scope, false, enabledV2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, mnt := c.fake.detect(t)
			for _, ctl := range []Controller{Memory, Swap, Pids, CPUAcct} {
				if s := h.Support(ctl); s.Answer != Yes {
					t.Fatalf("%s: %+v", ctl, s)
				}
			}
			if h.Version() != 2 || h.trees[0].root != mnt+c.base || h.moveIn != c.moveIn {
				t.Fatalf("version %d in %s, move in: %v", h.Version(), h.trees[0].root, h.moveIn)
			}
			if d := cmp.Diff(c.enable, h.enable); d != "" {
				t.Fatalf("enable (-want +got):\n%s", d)
			}
		})
	}
}

func TestDetectV2Explains(t *testing.T) {
	scope := "user.slice/run-1.scope"
	for name, c := range map[string]struct {
		fake         fake
		because, fix string
		usable       bool
	}{
		"ordinary user": {
			fake{own: "/user.slice/session-2.scope", denied: []string{""}, files: rootAnd(nil)},
			"cannot make groups in MNT/user.slice/session-2.scope: permission denied", userScope, false,
		},
		"ordinary user without systemd": {
			fake{own: "/", denied: []string{""}, files: rootAnd(nil), noSystemd: true},
			"permission denied", asRoot, false,
		},
		"ordinary user whose shell is in the scope": {
			fake{own: "/" + scope, files: rootAnd(cgroup2(nil, scope, "domain", allOfThem, "", "17\n4242\n"))},
			"MNT/" + scope + " also holds process 17", userScope, true,
		},
		"memory is not delegated": {
			fake{own: "/" + scope, files: rootAnd(cgroup2(nil, scope, "domain", "pids\n", "", "4242\n"))},
			"cgroup.controllers has no memory", delegate, true,
		},
		"no memory in the kernel": {
			fake{own: "/", root: true, files: cgroup2(nil, "", "", "pids\n", "", "1\n")},
			"cgroup.controllers has no memory", "add cgroup_enable=memory to the kernel command line and reboot", true,
		},
		"threaded": {
			fake{own: "/" + scope, files: rootAnd(cgroup2(nil, scope, "domain threaded", allOfThem, "", ""))},
			`is of type "domain threaded"`, userScope, true,
		},
		"nothing mounted": {
			fake{mounts: "22 1 0:20 / /proc rw,nosuid - proc proc rw\n"},
			"no cgroup file system is mounted", mount, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, mnt := c.fake.detect(t)
			s := h.Support(Memory)
			if s.Answer != No || !strings.Contains(s.Because, strings.ReplaceAll(c.because, "MNT", mnt)) || s.Fix != c.fix {
				t.Fatalf("memory: %+v, want %q and %q", s, c.because, c.fix)
			}
			if h.Usable() != c.usable {
				t.Fatalf("usable: %v", h.Usable())
			}
			if _, err := h.New("x", Limits{Memory: 1 << 20}); err == nil || !strings.Contains(err.Error(), s.Because) {
				t.Fatalf("New: %v", err)
			}
		})
	}
}

func TestDetectV1(t *testing.T) {
	mounts := `32 31 0:29 / MNT/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / MNT/memory rw - cgroup cgroup rw,memory
39 31 0:36 / MNT/pids rw - cgroup cgroup rw,pids
41 31 0:38 / MNT/unified rw - cgroup2 cgroup2 rw
`
	f := fake{root: true, mounts: mounts, denied: []string{"/pids"}, swaps: "/dev/sda2 partition 1 0 -2\n", files: map[string]string{
		"memory/tasks": "", "pids/tasks": "", "cpu,cpuacct/tasks": "",
	}}
	h, mnt := f.detect(t)
	got := map[Controller]Answer{}
	for _, c := range Controllers() {
		got[c] = h.Support(c).Answer
	}
	want := map[Controller]Answer{Memory: Yes, Swap: Unknown, Pids: No, CPU: Yes, CPUAcct: Yes, IO: No}
	if d := cmp.Diff(want, got); d != "" || h.Version() != 1 {
		t.Fatalf("version %d (-want +got):\n%s", h.Version(), d)
	}
	if d := cmp.Diff([]string{mnt + "/memory/pinfold", mnt + "/cpu,cpuacct/pinfold"}, h.Dirs()); d != "" {
		t.Fatalf("dirs (-want +got):\n%s", d)
	}
	if s := h.Support(IO); !strings.Contains(s.Because, "no blkio controller is mounted") || !strings.Contains(s.Fix, "-o blkio") {
		t.Fatalf("io: %+v", s)
	}
}

// On version 1 an ordinary user is told how root shares a directory, for each
// hierarchy; what helps nobody, as a shell of root's, is not said six times.
func TestDetectV1AsUser(t *testing.T) {
	mounts := `32 31 0:29 / MNT/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / MNT/memory rw - cgroup cgroup rw,memory
`
	h, mnt := fake{mounts: mounts, denied: []string{""}, files: map[string]string{"memory/tasks": "", "cpu,cpuacct/tasks": ""}}.detect(t)
	for c, want := range map[Controller]string{
		Memory: `sudo mkdir -p MNT/memory/pinfold && sudo chown "$USER" MNT/memory/pinfold`,
		Swap:   `sudo mkdir -p MNT/memory/pinfold && sudo chown "$USER" MNT/memory/pinfold`,
		CPU:    `sudo mkdir -p MNT/cpu,cpuacct/pinfold && sudo chown "$USER" MNT/cpu,cpuacct/pinfold`,
		Pids:   "sudo mkdir -p /sys/fs/cgroup/pids && sudo mount -t cgroup -o pids cgroup /sys/fs/cgroup/pids",
	} {
		s := h.Support(c)
		if s.Answer != No || s.Fix != strings.ReplaceAll(want, "MNT", mnt) {
			t.Errorf("%s: %+v, want %q", c, s, want)
		}
	}
	if s := h.Support(Memory); !strings.Contains(s.Because, "only root makes groups") {
		t.Errorf("%+v", s)
	}
}

// Enabling writes what is missing and nothing else.
func TestPrepareV2(t *testing.T) {
	scope := "user.slice/run-1.scope"
	files := rootAnd(cgroup2(nil, scope, "domain", allOfThem, "memory\n", "4242\n"))
	files[scope+"/pinfold-host/cgroup.procs"] = ""
	files[scope+"/pinfold/cgroup.subtree_control"] = "cpu io memory pids\n"
	h, mnt := fake{own: "/" + scope, files: files}.detect(t)
	if err := h.prepare(); err != nil {
		t.Fatalf("prepare: %v", err)
	}
	want := map[string]string{
		"pinfold-host/cgroup.procs":      "0",
		"cgroup.subtree_control":         "+pids +cpu +io",
		"pinfold/cgroup.subtree_control": "cpu io memory pids\n",
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(mnt, scope, name))
		// The fake's files are not truncated by a write, as control files need not be.
		if err != nil || !strings.HasPrefix(string(got), text) {
			t.Errorf("%s = %q, %v; want %q", name, got, err, text)
		}
	}
}
