//go:build linux

package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/seccomp"
	"pinfold/sandbox"
)

// kernelFeatures is what the running kernel offers beyond what every supported
// kernel has.
type kernelFeatures struct {
	landlock    *landlockRules // nil when there is none
	landlockErr error
	filter      *filterProgram // nil when there is none
	filterErr   error
	timeNS      error // nil when there are time namespaces
	overlay     error // nil when there are overlays
	devices     error // nil when sandboxes can have device files of their own
	quotas      []quota
}

// kernelSupport asks the kernel.
func kernelSupport() kernelFeatures {
	var k kernelFeatures
	k.landlock, k.landlockErr = newLandlockRules()
	k.filter, k.filterErr = newFilterProgram(seccomp.Probe())
	k.timeNS = timeNamespaces()
	k.overlay, k.devices = overlays(), deviceFiles()
	k.quotas = settable()
	return k
}

// timeNamespaces says whether a process can enter a new time namespace by its
// exec. Before the kernel's commit "fs/exec: switch timens when a task gets a
// new mm" it stays outside, and must then not start threads: Linux 6.1 answers
// EINVAL to each. Trying would cost every run a process, so this goes by the
// version, generously.
func timeNamespaces() error {
	if _, err := os.Lstat("/proc/self/ns/time_for_children"); err != nil {
		return err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("cannot read the kernel's version %q: %w", release, err)
	}
	if major < 6 || major == 6 && minor < 3 {
		return fmt.Errorf("on Linux %d.%d a program does not enter a time namespace when it starts: %w", major, minor, errors.ErrUnsupported)
	}
	return nil
}

// Probe reports what can be enforced here.
func (d *Driver) Probe(_ context.Context, t image.Template) (driver.Report, error) {
	r := driver.Report{Driver: Name, Level: sandbox.LevelNamespace, Blocked: userNamespacesBlocked()}
	h, err := d.prepare()
	if err != nil {
		return r, err
	}
	r.SwitchUser = h.ids.root || h.ids.sub != nil
	r.MountsAsSelf = !h.ids.root
	r.Processors = h.turn.processors()
	for _, f := range always {
		r.Findings = append(r.Findings, driver.Finding{Feature: f, Answer: driver.Yes, Because: "part of every sandbox"})
	}
	r.Findings = append(r.Findings, h.kernelFindings(h.shows(t))...)
	r.Findings = append(r.Findings, h.limitFindings()...)
	return r, nil
}

// always lists what every native sandbox enforces: making one fails otherwise.
var always = []string{
	sandbox.FeatureNetworkNone, sandbox.FeatureNetwork, sandbox.FeatureUserNS, sandbox.FeatureMountNS, sandbox.FeaturePIDNS,
	sandbox.FeatureNetNS, sandbox.FeatureIPCNS, sandbox.FeatureUTSNS, sandbox.FeatureCgroupNS,
	sandbox.FeatureNoNewPrivs, sandbox.FeatureCapabilities, sandbox.FeatureReadOnlyRoot, sandbox.FeatureAgentSealed,
	sandbox.FeatureWallTime, sandbox.FeatureCPUTime, sandbox.FeatureDisk, sandbox.FeatureInodes,
	sandbox.FeatureOutput, sandbox.FeatureOpenFiles, sandbox.FeatureFileSize,
}

func (h *host) kernelFindings(s *shown) []driver.Finding {
	k := h.features
	seccompFinding := byError(sandbox.FeatureSeccomp, k.filterErr, "boot a kernel with CONFIG_SECCOMP_FILTER")
	landlockFinding := byError(sandbox.FeatureLandlock, k.landlockErr, "boot a kernel with CONFIG_SECURITY_LANDLOCK and landlock in lsm=")
	if k.landlock != nil {
		landlockFinding.Feature += ":" + strconv.Itoa(k.landlock.level)
	}
	return []driver.Finding{
		seccompFinding, landlockFinding,
		byError(sandbox.FeatureTimeNS, k.timeNS, "boot Linux 6.3 or later, with CONFIG_TIME_NS"),
		s.filesFinding(), h.devicesFinding(),
		addressFinding(),
	}
}

// addressFinding says whether every program that is started gets an address
// layout of its own.
func addressFinding() driver.Finding {
	const file, all = "/proc/sys/kernel/randomize_va_space", "2"
	f := driver.Finding{Feature: sandbox.FeatureASLR}
	switch value, err := os.ReadFile(file); {
	case err != nil:
		f.Because = err.Error()
	case strings.TrimSpace(string(value)) == all:
		f.Answer, f.Because = driver.Yes, "the kernel gives every program that is started a layout of its own"
	default:
		f.Answer, f.Because = driver.No, file+" is not "+all
		f.Fix = sandbox.HostCommand("sudo sysctl -w kernel.randomize_va_space=" + all)
	}
	return f
}

// byError turns a check's error into a finding.
func byError(feature string, err error, fix string) driver.Finding {
	switch {
	case err == nil:
		return driver.Finding{Feature: feature, Answer: driver.Yes, Because: "the kernel has it"}
	case errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrNotExist):
		return driver.Finding{Feature: feature, Answer: driver.No, Because: err.Error(), Fix: sandbox.Text(fix)}
	}
	return driver.Finding{Feature: feature, Answer: driver.Unknown, Because: err.Error(), Fix: sandbox.Text(fix)}
}

// limitFindings reports what depends on cgroups and on user ids.
func (h *host) limitFindings() []driver.Finding {
	found := []driver.Finding{
		h.byController(sandbox.FeatureMemory, cgroup.Memory, "memory is only watched every few milliseconds"),
		h.byController(sandbox.FeatureSwap, cgroup.Swap, ""),
		h.byController(sandbox.FeatureCPUs, cgroup.CPU, ""),
	}
	processes := h.byController(sandbox.FeatureProcesses, cgroup.Pids, "")
	if processes.Answer != driver.Yes {
		processes = driver.Finding{
			Feature: sandbox.FeatureProcesses, Answer: driver.Yes,
			Because: "by RLIMIT_NPROC, which the kernel counts for each user namespace (Linux 5.14 and later), to within two",
		}
	}
	found = append(found, processes, h.identityFinding())
	return append(found, driver.Finding{
		Feature: sandbox.FeatureIO, Answer: driver.No,
		// Without a fix: this driver cannot do it, whatever the host has.
		Because: "the sandbox's disk is memory, and reading the host's read-only files is not throttled; this driver has no means to",
	})
}

func (h *host) byController(feature string, c cgroup.Controller, instead string) driver.Finding {
	s := h.hierarchy.Support(c)
	f := driver.Finding{Feature: feature, Answer: driver.Answer(s.Answer), Because: s.Because}
	switch {
	case s.Command:
		f.Fix = sandbox.HostCommand(s.Fix)
	case s.Fix != "":
		f.Fix = sandbox.Text(s.Fix)
	}
	if f.Answer != driver.Yes && instead != "" {
		f.Because += "; " + instead
	}
	return f
}

func (h *host) identityFinding() driver.Finding {
	f := driver.Finding{Feature: sandbox.FeatureUIDBlock, Answer: driver.Yes, Because: "a block of 32,768 host ids for each sandbox"}
	switch {
	case h.ids.root:
		return f
	case h.ids.sub != nil:
		f.Because = "all sandboxes of this user share one range of subordinate ids"
	default:
		f.Because = "the sandbox's user is the user that runs Pinfold, in a user namespace with one id (" + h.ids.why + ")"
	}
	f.Answer = driver.No
	f.Because += "; only root can give each sandbox ids of its own"
	f.Fix = rootShell
	return f
}

// rootShell is a shell in which Pinfold runs as root.
var rootShell = sandbox.HostCommand("sudo -s")

// blockers are the settings by which hosts forbid user namespaces to ordinary
// users.
var blockers = []struct {
	file, bad   string
	message     string
	fix         string
	rootBlocked bool // it stops root as well
}{
	{
		"/proc/sys/user/max_user_namespaces", "0",
		"this host allows no user namespaces (user.max_user_namespaces is 0)",
		"sudo sysctl -w user.max_user_namespaces=15000", true,
	},
	{
		"/proc/sys/kernel/unprivileged_userns_clone", "0",
		"this host allows user namespaces to root only (kernel.unprivileged_userns_clone is 0)",
		"sudo sysctl -w kernel.unprivileged_userns_clone=1", false,
	},
	{
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
		"AppArmor forbids this program to use user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1)",
		"sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0", false,
	},
}

// userNamespacesBlocked says why user namespaces cannot work here, nil when
// nothing is known against them. An AppArmor profile may allow them for this
// program even where they are restricted; then the program runs confined and the
// restriction does not count.
func userNamespacesBlocked() *sandbox.Error {
	root := os.Geteuid() == 0
	for _, b := range blockers {
		if root && !b.rootBlocked {
			continue
		}
		value, err := os.ReadFile(b.file)
		if err != nil || strings.TrimSpace(string(value)) != b.bad {
			continue
		}
		if strings.Contains(b.file, "apparmor") && confinedByProfile() {
			continue
		}
		return (&sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: b.message}).WithAdvice(sandbox.Advice{sandbox.HostCommand(b.fix)})
	}
	return nil
}

// confinedByProfile says whether an AppArmor profile other than "unconfined"
// applies to this process.
func confinedByProfile() bool {
	label, err := os.ReadFile("/proc/self/attr/apparmor/current")
	if err != nil {
		label, err = os.ReadFile("/proc/self/attr/current")
	}
	return err == nil && !strings.HasPrefix(string(label), "unconfined") && len(label) > 0
}

// explainStep adds what is known about a step that hosts are known to refuse.
func explainStep(step string, e *sandbox.Error) *sandbox.Error {
	for _, known := range refusedSteps {
		if strings.HasPrefix(step, known.step) {
			e.Message += " (" + known.why + ")"
			e = e.WithAdvice(sandbox.Advice{known.fix})
		}
	}
	return e
}

var refusedSteps = []struct {
	step, why string
	fix       sandbox.Fix
}{
	{"clone", "the host refused new namespaces", sandbox.Text("run pinfold doctor; inside Docker, start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined")},
	{"make mounts private", "a new user namespace got no rights: AppArmor or another security module restricts it", sandbox.HostCommand("sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")},
	{"mount overlay", "the kernel makes no overlay of the host's directories here; see files:own in what pinfold doctor says", sandbox.HostCommand("pinfold doctor")},
	{"mount proc", "parts of /proc are hidden here, as in a container, so the kernel allows no fresh one", sandbox.Text("start the container with --security-opt systempaths=unconfined")},
}
