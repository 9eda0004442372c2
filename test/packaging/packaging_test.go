// Package packaging tests what is installed beside the program: the systemd
// unit, the drop-in for a server without root, and what the documents say
// about installing them.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pinfold/internal/access"
)

const dir = "../../packaging"

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// settings are the keys of a unit's [Service] section, comments left out.
func settings(t *testing.T, file string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for line := range strings.SplitSeq(read(t, filepath.Join(dir, file)), "\n") {
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			all[key] = append(all[key], value)
		}
	}
	return all
}

// What the native driver cannot do without, and what would break it in silence.
func TestUnitLeavesTheDriverWhatItNeeds(t *testing.T) {
	unit := settings(t, "pinfold.service")
	for key, want := range map[string]string{
		"Type": "notify", "Delegate": "yes", "OOMPolicy": "continue", "KillMode": "mixed", "TasksMax": "infinity",
		"RuntimeDirectoryPreserve": "yes", "NoNewPrivileges": "yes", "StateDirectoryMode": "0700",
	} {
		if got := unit[key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s=%q, want %q", key, got, want)
		}
	}
	comments := read(t, filepath.Join(dir, "pinfold.service"))
	for _, key := range []string{
		"ProtectKernelTunables", "ProtectKernelLogs", "ProtectControlGroups", "RestrictNamespaces", "ProtectHostname", "PrivateUsers",
		"SystemCallFilter", "MemoryDenyWriteExecute", "RestrictAddressFamilies", "RestrictSUIDSGID", "LockPersonality", "PrivateDevices",
	} {
		if len(unit[key]) > 0 {
			t.Errorf("%s is set: sandboxes cannot be made or are no longer what results say", key)
		}
		if !regexp.MustCompile(`(?m)^#.*\b` + key + `=`).MatchString(comments) {
			t.Errorf("the unit does not say why it has no %s", key)
		}
	}
	for _, caps := range unit["CapabilityBoundingSet"] {
		if !strings.HasPrefix(caps, "~") {
			t.Errorf("CapabilityBoundingSet=%s is not a list of what is taken away", caps)
		}
		for _, needed := range []string{
			"CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETFCAP", "CAP_KILL", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER",
			"CAP_SYS_PTRACE", "CAP_SYS_RESOURCE", "CAP_SYS_CHROOT", "CAP_DAC_READ_SEARCH", "CAP_MKNOD",
		} {
			if strings.Contains(caps+" ", needed+" ") {
				t.Errorf("%s is taken away, which making sandboxes needs", needed)
			}
		}
	}
}

// systemd itself accepts the unit, alone and with the drop-in.
func TestSystemdAcceptsTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("PINFOLD_TEST_ALL") != "" {
			t.Fatal("systemd-analyze is not here, and nothing may be missing (apt-get install systemd)")
		}
		t.Skip("systemd-analyze is not here (apt-get install systemd): the unit is not verified")
	}
	tmp := t.TempDir()
	program := filepath.Join(tmp, "pinfold")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	unit := filepath.Join(tmp, "pinfold.service")
	text := strings.ReplaceAll(read(t, filepath.Join(dir, "pinfold.service")), "/usr/local/bin/pinfold", program)
	if !strings.Contains(text, program) {
		t.Fatal("the unit starts another program than the one that is installed")
	}
	verify := func(what string) {
		t.Helper()
		cmd := exec.Command(analyze, "verify", "--man=no", unit)
		cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=warning")
		out, err := cmd.CombinedOutput()
		// Other units of the machine are looked at too; only ours matters.
		for line := range strings.SplitSeq(string(out), "\n") {
			if strings.Contains(line, "pinfold") {
				t.Errorf("%s: %s", what, line)
			}
		}
		if err != nil && !strings.Contains(string(out), ":") {
			t.Errorf("%s: %v: %s", what, err, out)
		}
	}
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	verify("unit")
	if err := os.Mkdir(unit+".d", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(unit+".d", "user.conf"), []byte(read(t, filepath.Join(dir, "pinfold-user.conf"))), 0o600); err != nil {
		t.Fatal(err)
	}
	verify("unit with user.conf")

	// The control: what systemd does not know is found.
	if err := os.WriteFile(unit, []byte(text+"\n[Service]\nNoSuchSetting=yes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput()
	if !strings.Contains(string(out), "NoSuchSetting") {
		t.Errorf("systemd-analyze finds nothing wrong with NoSuchSetting: %s", out)
	}
}

// Every file that the document installs exists, and everything in packaging/
// is installed by it.
func TestInstallLinesPaste(t *testing.T) {
	doc := read(t, "../../docs/server.md")
	installed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^    install -D -m \d+ (\S+) (/\S+)$`).FindAllStringSubmatch(doc, -1) {
		installed[filepath.Base(m[1])] = true
		if strings.HasPrefix(m[1], "bin/") {
			continue // made by make build
		}
		if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil {
			t.Errorf("%s: %v", m[0], err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !installed[e.Name()] {
			t.Errorf("docs/server.md does not install %s", e.Name())
		}
	}
	if unit := settings(t, "pinfold.service"); !strings.Contains(unit["ExecStart"][0], "/etc/pinfold/pinfold.yaml") || !strings.Contains(doc, " /etc/pinfold/pinfold.yaml\n") {
		t.Error("the unit reads another configuration than the one that is installed")
	}
}

// The document explains every scope, and names keys of the configuration as a file
// has them: queue_timeout alone is none.
func TestServerPageSpeaksOfKeys(t *testing.T) {
	doc := read(t, "../../docs/server.md")
	for _, scope := range access.Scopes() {
		if !strings.Contains(doc, "\n| `"+scope+"` | ") {
			t.Errorf("the scope %s is not explained", scope)
		}
	}
	for _, key := range []string{"queue", "queue_timeout"} {
		if strings.Contains(doc, "`"+key+"`") || !strings.Contains(doc, "`capacity."+key+"`") {
			t.Errorf("%s is not named with the key above it", key)
		}
	}
}
