//go:build linux

package probe

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// roomHost is a host with plenty of everything, changed by files and limits.
func roomHost(t *testing.T, uid int, files map[string]string, nofile, nproc uint64) *host {
	t.Helper()
	all := map[string]string{
		"proc/sys/fs/file-max": "9223372036854775807", "proc/sys/kernel/pid_max": "4194304", "proc/sys/kernel/threads-max": "4000000",
		"proc/sys/fs/epoll/max_user_watches": "5000000", "proc/meminfo": "MemTotal:  1073741824 kB\n", "proc/self/cgroup": "0::/system.slice/pinfold.service\n",
	}
	for _, kind := range strings.Fields("user mnt pid net ipc uts cgroup time") {
		all["proc/sys/user/max_"+kind+"_namespaces"] = "500000"
	}
	for name, text := range files {
		all[name] = text
	}
	root := t.TempDir()
	for name, text := range all {
		if text == "" {
			continue
		}
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &host{root: root, uid: uid, limits: func(which int) uint64 {
		if which == syscall.RLIMIT_NOFILE {
			return nofile
		}
		return nproc
	}}
}

const plenty = 1 << 20

// Each resource of which there is too little is named, with what there is, how many
// fit, and what changes it.
func TestRoomNamesWhatIsShort(t *testing.T) {
	unit := "sys/fs/cgroup/system.slice/pinfold.service/"
	for name, test := range map[string]struct {
		uid           int
		files         map[string]string
		nofile, nproc uint64
		code          string
		probed, fix   string // parts of
	}{
		"descriptors":     {nofile: 4096, code: "descriptors", probed: "need 15032", fix: "LimitNOFILE=17080"},
		"files":           {files: map[string]string{"proc/sys/fs/file-max": "50000"}, code: "files", probed: "/proc/sys/fs/file-max: 50000", fix: "fs.file-max=84096"},
		"pid_max":         {files: map[string]string{"proc/sys/kernel/pid_max": "16384"}, code: "pid_max", probed: "20512", fix: "kernel.pid_max=20512"},
		"threads-max":     {files: map[string]string{"proc/sys/kernel/threads-max": "16384"}, code: "threads-max", probed: "20512", fix: "kernel.threads-max=20512"},
		"the unit":        {files: map[string]string{unit + "pids.max": "4915"}, code: "pids.max", probed: unit + "pids.max: 4915", fix: "TasksMax=infinity"},
		"the slice":       {files: map[string]string{unit + "pids.max": "max", "sys/fs/cgroup/system.slice/pids.max": "4915"}, code: "pids.max", probed: "system.slice/pids.max: 4915", fix: "TasksMax=infinity"},
		"version 1":       {files: map[string]string{"proc/self/cgroup": "8:pids:/a/b\n4:memory:/\n", "sys/fs/cgroup/pids/a/pids.max": "4915"}, code: "pids.max", probed: "pids/a/pids.max: 4915", fix: "TasksMax=infinity"},
		"memory":          {files: map[string]string{"proc/meminfo": "MemTotal: 4194304 kB\n"}, code: "memory", probed: "4.0 GiB", fix: "capacity.sandboxes: 1792"},
		"memory of unit":  {files: map[string]string{unit + "memory.max": "1073741824"}, code: "memory.max", probed: "1.0 GiB", fix: "MemoryMax="},
		"memory, v1":      {files: map[string]string{"proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1073741824"}, code: "memory.max", probed: "1.0 GiB", fix: "MemoryMax="},
		"namespaces":      {files: map[string]string{"proc/sys/user/max_net_namespaces": "1000"}, code: "max_net_namespaces", probed: "1000", fix: "user.max_net_namespaces=5256"},
		"epoll":           {files: map[string]string{"proc/sys/fs/epoll/max_user_watches": "10000"}, code: "epoll", probed: "10000", fix: "fs.epoll.max_user_watches="},
		"tasks of a user": {uid: 1000, nproc: 4096, code: "nproc", probed: "4096", fix: "LimitNPROC=20064"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.nofile == 0 {
				test.nofile = plenty
			}
			if test.nproc == 0 {
				test.nproc = plenty
			}
			found := roomHost(t, test.uid, test.files, test.nofile, test.nproc).room(Demand{Sandboxes: 5000})
			if len(found) != 1 || found[0].Code != "capacity."+test.code || found[0].Severity != Warning || found[0].Answer != No {
				t.Fatalf("%+v", found)
			}
			f := found[0]
			if !strings.Contains(f.Probed, test.probed) || !strings.Contains(f.Fix, test.fix) || !strings.Contains(f.Fix, "capacity.sandboxes: ") {
				t.Errorf("probed: %s\nfix: %s", f.Probed, f.Fix)
			}
		})
	}
}

// All that is short is named at once; where nothing is, what is scarcest; and what
// cannot be read or has no limit does not count.
func TestRoom(t *testing.T) {
	h := roomHost(t, 0, map[string]string{"proc/sys/kernel/pid_max": "1000", "proc/sys/user/max_net_namespaces": "1000"}, 1024, plenty)
	if found := h.room(Demand{Sandboxes: 1024}); len(found) != 3 {
		t.Errorf("three things are short, said: %+v", found)
	}
	h = roomHost(t, 0, map[string]string{"proc/sys/user/max_time_namespaces": "", "sys/fs/cgroup/system.slice/pinfold.service/pids.max": "max"}, 1<<63, plenty)
	found := h.room(Demand{Sandboxes: 5000})
	if len(found) != 1 || found[0].Severity != OK || !strings.Contains(found[0].Probed, "8188") || !strings.Contains(found[0].Probed, "ids") {
		t.Errorf("with plenty: %+v", found)
	}
	if found := roomHost(t, 0, nil, 17080, plenty).room(Demand{Sandboxes: 5000}); found[0].Severity != OK {
		t.Errorf("with the descriptors that were said to be enough: %+v", found)
	}
	if found := h.room(Demand{Sandboxes: 9000}); len(found) != 1 || found[0].Code != "capacity.ids" {
		t.Errorf("more than there are ids: %+v", found)
	}
	if found := roomHost(t, 1000, nil, plenty, plenty).room(Demand{Sandboxes: 9000}); len(found) != 1 || found[0].Severity != OK {
		t.Errorf("an ordinary user's all have the same ids: %+v", found)
	}
}

// What fits while most are idle, but not when all use what they may, is said and
// is no fault.
func TestRoomWhenAllAreBusy(t *testing.T) {
	h := roomHost(t, 0, map[string]string{"proc/sys/kernel/pid_max": "32768", "proc/meminfo": "MemTotal: 33554432 kB\n"}, plenty, plenty)
	found := h.room(Demand{Sandboxes: 1024, Memory: 1 << 42, Processes: 64})
	codes := map[string]string{}
	for _, f := range found {
		if f.Severity == Warning {
			t.Errorf("%+v", f)
		}
		codes[f.Code] = f.Probed + " " + f.Fix
	}
	if len(found) != 3 || !strings.Contains(codes["capacity.memory"], "4096.0 GiB, of 32.0 GiB") || !strings.Contains(codes["capacity.pid_max"], "69632 tasks, of 32768") {
		t.Errorf("%+v", found)
	}
	if !strings.Contains(codes["capacity.memory"], "capacity.memory: 29491MiB") {
		t.Errorf("%+v", codes)
	}
}

// The real host answers every question that it should.
func TestRoomOfThisHost(t *testing.T) {
	h := realHost(t.Context(), "pinfold")
	for _, r := range resources() {
		if have, how := r.have(h); have <= 0 && r.code != "max_time_namespaces" {
			t.Errorf("%s: %d, %s", r.code, have, how)
		}
	}
	if found := Room(Demand{Sandboxes: 1}); len(found) != 1 || found[0].Severity != OK {
		t.Errorf("one sandbox: %+v", found)
	}
}

// A server that may have few descriptors is told how many sandboxes fit, and never to have
// none, which the configuration refuses.
func TestRoomForFew(t *testing.T) {
	for nofile, want := range map[uint64]string{160: "capacity.sandboxes: 21 in", 63: "", 64: ""} {
		found := roomHost(t, 0, nil, nofile, plenty).room(Demand{Sandboxes: 100})
		if len(found) != 1 || !strings.Contains(found[0].Fix, "LimitNOFILE=") || !strings.Contains(found[0].Fix, want) || strings.Contains(found[0].Fix, ": 0") {
			t.Errorf("%d descriptors: %+v", nofile, found)
		}
		if first := strings.Contains(found[0].Means, "the first one"); first != (want == "") {
			t.Errorf("%d descriptors: %s", nofile, found[0].Means)
		}
	}
	found := roomHost(t, 0, map[string]string{"proc/meminfo": "MemTotal: 262144 kB\n"}, plenty, plenty).room(Demand{Sandboxes: 100})
	if len(found) != 1 || found[0].Fix != "" {
		t.Errorf("little memory: %+v", found)
	}
}

// Every command that sets something for good leaves what the others have set, so that all
// of them can be pasted, in any order and twice.
func TestSettingsStayBesideEachOther(t *testing.T) {
	h := roomHost(t, 0, map[string]string{"proc/sys/kernel/pid_max": "1000", "proc/sys/fs/file-max": "1000"}, plenty, plenty)
	fixes := []string{}
	for _, f := range h.room(Demand{Sandboxes: 5000}) {
		fixes = append(fixes, f.Fix)
	}
	for _, q := range questions {
		fixes = append(fixes, q.fix)
	}
	set := 0
	for _, fix := range fixes {
		if strings.Contains(fix, "sysctl.d") {
			set++
			if !strings.Contains(fix, "| sudo tee -a /etc/sysctl.d/92-pinfold.conf &&") {
				t.Errorf("%s", fix)
			}
		}
	}
	if set != 5 {
		t.Errorf("%d commands that set something", set)
	}
}
