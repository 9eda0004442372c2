package docker

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/container"
	"pinfold/sandbox"
)

// verify looks whether what the engine made is what the plan says, by what the kernel says
// of the container's first process. An engine that sees other mounts than we do, or a
// runtime that leaves something out, would otherwise make a weaker machine, and nobody
// would know.
func (m *machine) verify() error {
	for _, check := range []func() error{m.verifyStatus, m.verifyNamespaces, m.verifyMounts, m.verifyMemory} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", m.Agent.PID, name) }

// verifyStatus looks at who the process is and what it may do (proc(5)).
func (m *machine) verifyStatus() error {
	text, err := os.ReadFile(m.proc("status"))
	if err != nil {
		return err
	}
	four := func(id int) string { return strings.TrimSpace(strings.Repeat(strconv.Itoa(id)+"\t", 4)) }
	const none = "0000000000000000"
	want := map[string]string{
		"Uid": four(m.Plan.User.UID), "Gid": four(m.Plan.User.GID), "NoNewPrivs": "1",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
	}
	if m.Plan.Enforces(sandbox.FeatureSeccomp) {
		want["Seccomp"] = "2"
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if wanted, ok := want[key]; ok && strings.TrimSpace(value) != wanted {
			return fmt.Errorf("its first process has %s %q and not %q", key, strings.TrimSpace(value), wanted)
		}
		delete(want, key)
	}
	if len(want) > 0 {
		return fmt.Errorf("the kernel does not say all of its first process: %v", want)
	}
	return nil
}

// verifyNamespaces looks whether the process shares a namespace with us.
func (m *machine) verifyNamespaces() error {
	own := []string{"mnt", "pid", "net", "ipc", "uts"}
	if m.Plan.Enforces(sandbox.FeatureCgroupNS) {
		own = append(own, "cgroup")
	}
	for _, ns := range own {
		theirs, err := os.Readlink(m.proc("ns/" + ns))
		if err != nil {
			return err
		}
		if ours, err := os.Readlink("/proc/self/ns/" + ns); err != nil || ours == theirs {
			return fmt.Errorf("its %s namespace is the host's", ns)
		}
	}
	return nil
}

// enginesOwn are what engines mount without being asked, files of root's, and where there are
// file systems of the kernel's.
var enginesOwn = regexp.MustCompile(`^/(etc/(hosts|hostname|resolv\.conf)|run/\.containerenv|(proc|dev|sys)(/.*)?)$`)

// verifyMounts looks whether the root is read-only and the devices are the container's, and
// whether each writable place is on the machine's disk, and no other one there: an engine
// that does not see our mount would show what is below it, and Podman mounts file systems of
// its own, which have no limit.
func (m *machine) verifyMounts() error {
	var disk unix.Stat_t
	if err := unix.Stat(m.disk(), &disk); err != nil {
		return err
	}
	device := fmt.Sprintf("%d:%d", unix.Major(disk.Dev), unix.Minor(disk.Dev))
	text, err := os.ReadFile(m.proc("mountinfo"))
	if err != nil {
		return err
	}
	want := map[string]string{}
	for _, p := range container.Places(m.Plan.User.Home) {
		want[p.Path] = device + " /" + p.Dir
	}
	readOnly := false
	for line := range strings.Lines(string(text)) { // 36 35 98:0 /root /mountpoint rw,noatime ...
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		ro := strings.HasPrefix(f[5]+",", "ro,")
		switch {
		case f[4] == "/":
			readOnly = ro
		case want[f[4]] == f[2]+" "+f[3]:
			delete(want, f[4])
		case !ro && !enginesOwn.MatchString(f[4]):
			return fmt.Errorf("%s can be written to, and is not on the machine's disk", sandbox.SafeText(f[4], 100))
		}
		if f[4] == "/dev/null" && m.Plan.Enforces(sandbox.FeatureDevicesOwn) {
			return fmt.Errorf("its device files are the host's")
		}
	}
	switch {
	case !readOnly:
		return fmt.Errorf("its root can be written to")
	case len(want) > 0:
		return fmt.Errorf("%v are not on the machine's disk: does the engine see the mounts of this process?", want)
	}
	return nil
}

// verifyMemory looks at the limit in force.
func (m *machine) verifyMemory() error {
	if got, want := m.meter.Group.MemoryLimit(), m.Plan.Limits.MemoryBytes; m.Plan.Enforces(sandbox.FeatureMemory) && (got == 0 || got > want) {
		return fmt.Errorf("its memory limit is %d and not %d", got, want)
	}
	return nil
}
