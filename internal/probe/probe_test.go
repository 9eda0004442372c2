//go:build linux

package probe

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pinfold/internal/linux/cgroup"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildCommand {
		os.Exit(Child(os.Args[2:], os.Stdout))
	}
	os.Exit(m.Run())
}

// TestRunOnThisHost holds for any host: every question has an answer, what is
// not fine says what it means, and the whole is bounded in time.
func TestRunOnThisHost(t *testing.T) {
	start := time.Now()
	found := Run(context.Background(), "pinfold")
	if took := time.Since(start); took > 2*childTime {
		t.Errorf("took %v", took)
	}
	seen := map[string]bool{}
	for _, f := range found {
		t.Logf("%-8s %-16s %-15s %s", f.Severity, f.Code, f.Answer, f.Probed)
		if seen[f.Code] {
			t.Errorf("code %s twice", f.Code)
		}
		seen[f.Code] = true
		if f.Probed == "" || f.Title == "" || f.Means == "" {
			t.Errorf("%s: a finding without words: %+v", f.Code, f)
		}
		if f.Severity == Problem && f.Fix == "" {
			t.Errorf("%s: a problem without a fix", f.Code)
		}
	}
	if len(found) != len(questions) {
		t.Errorf("%d findings for %d questions", len(found), len(questions))
	}
}

// fakeHost is a host with these files on which every trial works.
func fakeHost(t *testing.T, files map[string]string) *host {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &host{
		root: root, uid: 1000, user: "ann", self: "/opt/pin fold",
		child:  func() childReport { return parseSteps("private 0\ntmpfs 0\noverlay 0\n") },
		groups: func() (*cgroup.Hierarchy, error) { return nil, errors.New("no cgroups in this test") },
		lookup: func(string) (string, error) { return "", os.ErrNotExist },
		run:    func(context.Context, string, ...string) (string, error) { return "", os.ErrNotExist },
	}
}

func withQEMU(h *host) {
	h.lookup = func(name string) (string, error) { return "/usr/bin/" + name, nil }
	h.run = func(context.Context, string, ...string) (string, error) {
		return "QEMU emulator version 7.2\nCopyright", nil
	}
}

func TestQuestions(t *testing.T) {
	refused := func(h *host) {
		h.child = func() childReport { return parseSteps("private 0\ntmpfs 13\n") }
	}
	for name, c := range map[string]struct {
		code   string
		files  map[string]string
		change func(*host)
		answer Answer
		sev    Severity
		fix    string // is part of the fix
	}{
		"new kernel":         {"kernel.version", map[string]string{"proc/sys/kernel/osrelease": "6.1.0-28-amd64"}, nil, Yes, OK, ""},
		"oldest kernel":      {"kernel.version", map[string]string{"proc/sys/kernel/osrelease": "5.15.0"}, nil, Yes, OK, ""},
		"old kernel":         {"kernel.version", map[string]string{"proc/sys/kernel/osrelease": "5.4.0-99"}, nil, No, Problem, "apt-get"},
		"odd kernel":         {"kernel.version", map[string]string{"proc/sys/kernel/osrelease": "weird"}, nil, Unknown, Warning, ""},
		"no user namespaces": {"userns.max", map[string]string{"proc/sys/user/max_user_namespaces": "0"}, nil, No, Problem, "user.max_user_namespaces=15000"},
		"debian off":         {"userns.debian", map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "0"}, nil, No, Problem, "sysctl"},
		"debian off, root":   {"userns.debian", map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "0"}, func(h *host) { h.uid = 0 }, No, Info, ""},
		"not debian":         {"userns.debian", nil, nil, Yes, OK, ""},
		"ubuntu refuses":     {"userns.apparmor", map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, refused, No, Problem, `profile pinfold "/opt/pin fold" flags=(unconfined)`},
		"ubuntu, profile":    {"userns.apparmor", map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, nil, Yes, OK, ""},
		"mount refused":      {"userns.create", nil, refused, No, Problem, ""},
		"overlay unreached":  {"overlay", nil, refused, No, Info, ""},
		"no overlay":         {"overlay", nil, func(h *host) { h.child = func() childReport { return parseSteps("private 0\ntmpfs 0\noverlay 19\n") } }, No, Info, ""},
		"child failed":       {"userns.create", nil, func(h *host) { h.child = func() childReport { return childReport{err: errors.New("x")} } }, Unknown, Warning, ""},
		"no subids":          {"subids", nil, nil, No, Warning, "usermod --add-subuids"},
		"subids, no helper":  {"subids", map[string]string{"etc/subuid": "ann:100000:65536", "etc/subgid": "1000:100000:65536"}, nil, No, Warning, "uidmap"},
		"subids":             {"subids", map[string]string{"etc/subuid": "ann:100000:65536", "etc/subgid": "1000:100000:65536"}, func(h *host) { h.lookup = func(string) (string, error) { return "/usr/bin/newuidmap", nil } }, Yes, OK, ""},
		"swap":               {"swap", map[string]string{"proc/swaps": "Filename Type\n/dev/sda2 partition"}, nil, No, Warning, "swapoff"},
		"no swap":            {"swap", map[string]string{"proc/swaps": "Filename Type"}, nil, Yes, OK, ""},
		"vulnerable":         {"cpu.mitigations", map[string]string{"sys/devices/system/cpu/vulnerabilities/mds": "Vulnerable: no microcode", "sys/devices/system/cpu/vulnerabilities/l1tf": "Not affected"}, nil, No, Warning, "microcode"},
		"mitigated":          {"cpu.mitigations", map[string]string{"sys/devices/system/cpu/vulnerabilities/mds": "Mitigation: x"}, nil, Yes, OK, ""},
		"ksm":                {"memory.ksm", map[string]string{"sys/kernel/mm/ksm/run": "1"}, nil, No, Warning, "ksm/run"},
		"apport":             {"core_pattern", map[string]string{"proc/sys/kernel/core_pattern": "|/usr/share/apport/apport %p"}, nil, No, Warning, "core_pattern"},
		"links":              {"protected_links", map[string]string{"proc/sys/fs/protected_symlinks": "1", "proc/sys/fs/protected_hardlinks": "0"}, nil, No, Warning, "protected_hardlinks=1"},
		"in docker":          {"container", map[string]string{".dockerenv": ""}, nil, No, Info, ""},
		"in lxc":             {"container", map[string]string{"proc/1/environ": "a=b\x00container=lxc\x00"}, nil, No, Info, ""},
		"no notify":          {"seccomp.notify", map[string]string{"proc/sys/kernel/seccomp/actions_avail": "kill trap errno"}, nil, No, Warning, ""},
		"no docker":          {"docker", nil, nil, No, Info, ""},
		"no gvisor":          {"gvisor", nil, nil, No, Info, ""},
		"no qemu":            {"qemu", nil, nil, No, Info, "qemu-system-x86"},
		"no kernel":          {"qemu", nil, withQEMU, No, Info, "linux-image-cloud-amd64"},
		"no modules":         {"qemu", map[string]string{"boot/vmlinuz-6.1": ""}, withQEMU, No, Info, "linux-image-cloud-amd64"},
		"qemu":               {"qemu", map[string]string{"boot/vmlinuz-6.1": "", "lib/modules/6.1/modules.dep": ""}, withQEMU, Yes, OK, ""},
		"mitigations off":    {"cpu.mitigations", map[string]string{"sys/devices/system/cpu/vulnerabilities/mds": "Vulnerable", "proc/cmdline": "quiet mitigations=off"}, nil, No, Warning, "sed -i 's/mitigations=off//' /etc/default/grub && sudo update-grub"},
		"vulnerable AMD":     {"cpu.mitigations", map[string]string{"sys/devices/system/cpu/vulnerabilities/mds": "Vulnerable", "proc/cpuinfo": "vendor_id : AuthenticAMD"}, nil, No, Warning, "install amd64-microcode &&"},
		"no cgroups":         {"cgroup.memory", nil, nil, Unknown, Warning, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(t, c.files)
			if c.change != nil {
				c.change(h)
			}
			f := ask(t, h, c.code)
			if diff := cmp.Diff([]any{c.answer, c.sev}, []any{f.Answer, f.Severity}); diff != "" {
				t.Fatalf("%+v (-want +got):\n%s", f, diff)
			}
			if !strings.Contains(f.Fix, c.fix) {
				t.Fatalf("fix %q does not contain %q", f.Fix, c.fix)
			}
		})
	}
}

// A guest cannot load microcode: a command that changes nothing is no fix.
func TestNoFixWhereNothingHelps(t *testing.T) {
	h := fakeHost(t, map[string]string{
		"sys/devices/system/cpu/vulnerabilities/mds": "Vulnerable", "proc/cpuinfo": "vendor_id : GenuineIntel\nflags : fpu hypervisor lahf_lm",
	})
	if f := ask(t, h, "cpu.mitigations"); f.Answer != No || f.Fix != "" || !strings.Contains(f.Probed, "virtual machine") {
		t.Errorf("%+v", f)
	}
	for _, code := range []string{"overlay"} { // KVM the qemu driver tries
		for _, q := range questions {
			if q.code == code && (q.fix != "" || q.bad != Info || !strings.Contains(q.means, "of this release uses it")) {
				t.Errorf("%s suggests what no driver uses: %+v", code, q.means)
			}
		}
	}
}

// TestFixesAreCommands: what is said as a fix can be pasted into a shell.
func TestFixesAreCommands(t *testing.T) {
	h := fakeHost(t, map[string]string{"sys/kernel/security/lsm": "capability,apparmor"})
	fixes := []string{h.landlockFix()}
	for _, q := range questions {
		fixes = append(fixes, q.fix)
	}
	for _, fix := range fixes {
		if fix == "" {
			continue
		}
		if first, _, _ := strings.Cut(fix, " "); first != "sudo" && first != "echo" && first != "printf" {
			t.Errorf("%q is no command", fix)
		}
		if err := exec.CommandContext(t.Context(), "/bin/sh", "-n", "-c", fix).Run(); err != nil {
			t.Errorf("%q: %v", fix, err)
		}
	}
	if !strings.Contains(fixes[0], "lsm=landlock,capability,apparmor\"") {
		t.Errorf("%q", fixes[0])
	}
}

func ask(t *testing.T, h *host, code string) Finding {
	t.Helper()
	for _, q := range questions {
		if q.code == code {
			return q.finding(q.ask(context.Background(), h))
		}
	}
	t.Fatalf("no question %s", code)
	return Finding{}
}

func TestChildThatHangsIsEnded(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	if _, err := startChild(ctx, askNamespaces, &syscall.SysProcAttr{}); err == nil {
		t.Fatal("no error from a child that had no time")
	}
}

func FuzzParseSteps(f *testing.F) {
	f.Add("private 0\ntmpfs 13\n")
	f.Add("tmpfs 99999999999\n")
	f.Fuzz(func(t *testing.T, text string) {
		r := parseSteps(text)
		if r.err == nil && r.reply(stepNamespace).answer != Yes {
			t.Fatalf("%q: a namespace that was made does not count", text)
		}
	})
}
