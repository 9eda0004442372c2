//go:build linux

package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"pinfold/internal/linux/cgroup"
)

// The oldest kernel that Pinfold is written for.
const (
	minMajor = 5
	minMinor = 15
)

func kernelVersion(_ context.Context, h *host) reply {
	const file = "/proc/sys/kernel/osrelease"
	release, err := h.read(file)
	if err != nil {
		return reply{answer: Unknown, probed: file + ": " + why(err)}
	}
	major, minor, ok := parseRelease(release)
	if !ok {
		return reply{answer: Unknown, probed: file + " is " + release}
	}
	return reply{answer: yesIf(major > minMajor || major == minMajor && minor >= minMinor), probed: file + " is " + release}
}

// parseRelease reads the first two numbers of "6.1.0-28-amd64".
func parseRelease(s string) (major, minor int, ok bool) {
	first, rest, found := strings.Cut(s, ".")
	if !found {
		return 0, 0, false
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(rest[:end])
	return major, minor, err1 == nil && err2 == nil
}

func runsAsRoot(_ context.Context, h *host) reply {
	return reply{answer: yesIf(h.uid == 0), probed: fmt.Sprintf("the effective user id is %d", h.uid)}
}

func userNamespace(_ context.Context, h *host) reply {
	r := h.child()
	return r.reply(stepNamespace, stepPrivate, stepTmpfs)
}

func overlay(_ context.Context, h *host) reply {
	return h.child().reply(stepNamespace, stepPrivate, stepTmpfs, stepOverlay)
}

func maxUserNamespaces(_ context.Context, h *host) reply {
	return h.setting("/proc/sys/user/max_user_namespaces", Unknown, func(v string) Answer { return yesIf(v != "0") })
}

func debianSwitch(_ context.Context, h *host) reply {
	r := h.setting("/proc/sys/kernel/unprivileged_userns_clone", Yes, func(v string) Answer { return yesIf(v != "0") })
	if r.answer == No && h.uid == 0 {
		r.severity = Info
	}
	return r
}

// appArmor asks the setting and then what happens: a program with a profile of
// its own is not restricted, and neither is root.
func appArmor(_ context.Context, h *host) reply {
	r := h.setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", Yes, func(v string) Answer { return yesIf(v == "0") })
	if r.answer != No {
		return r
	}
	tried := h.child().reply(stepNamespace, stepPrivate, stepTmpfs)
	r.answer = tried.answer
	r.probed += "; " + tried.probed
	r.fix = appArmorProfile(h.self)
	if h.uid == 0 && r.answer == Yes {
		r.probed += " (as root; ordinary users may be refused)"
	}
	return r
}

// appArmorProfile is the command that gives our program a profile: that is the
// narrow fix; switching the restriction off for everybody is the wide one.
func appArmorProfile(self string) string {
	self = strings.ReplaceAll(self, "'", "")
	return `printf '%s\n' 'abi <abi/4.0>,' 'profile pinfold "` + self +
		`" flags=(unconfined) { userns, }' | sudo tee /etc/apparmor.d/pinfold && sudo apparmor_parser -r /etc/apparmor.d/pinfold`
}

func cgroupVersion(_ context.Context, h *host) reply {
	groups, err := h.groups()
	switch {
	case err != nil:
		return reply{answer: Unknown, probed: why(err)}
	case groups.Version() == 0:
		return reply{answer: No, severity: Warning, probed: "no cgroup hierarchy is mounted"}
	}
	probed := fmt.Sprintf("/proc/self/mountinfo shows version %d", groups.Version())
	if dirs := groups.Dirs(); len(dirs) > 0 {
		probed += "; groups can be made in " + strings.Join(dirs, ", ")
	} else {
		probed += "; groups can be made nowhere"
	}
	return reply{answer: yesIf(groups.Version() == 2), probed: probed}
}

func controllerAnswer(name string) func(context.Context, *host) reply {
	return func(_ context.Context, h *host) reply {
		groups, err := h.groups()
		if err != nil {
			return reply{answer: Unknown, probed: why(err)}
		}
		s := groups.Support(cgroup.Controller(name))
		answers := map[cgroup.Answer]Answer{cgroup.Yes: Yes, cgroup.No: No}
		answer, ok := answers[s.Answer]
		if !ok {
			answer = Unknown
		}
		return reply{answer: answer, probed: s.Because, fix: s.Fix}
	}
}

// System calls and operations; seccomp(2), landlock_create_ruleset(2).
const (
	sysSeccompAMD64         = 317
	sysSeccompARM64         = 277
	seccompSetModeFilter    = 1
	sysLandlockCreate       = 444
	landlockCreateGetVesion = 1
)

// seccompFilter asks for a filter without giving one: a kernel that has
// filters complains about the address, not about the operation.
func seccompFilter(context.Context, *host) reply {
	nr, ok := map[string]uintptr{"amd64": sysSeccompAMD64, "arm64": sysSeccompARM64}[goarch]
	if !ok {
		return reply{answer: Unknown, probed: "not known for " + goarch}
	}
	_, _, errno := syscall.Syscall(nr, seccompSetModeFilter, 0, 0)
	return reply{answer: yesIf(errno == syscall.EFAULT), probed: "seccomp(SECCOMP_SET_MODE_FILTER) without a filter: " + errno.Error()}
}

func seccompNotify(_ context.Context, h *host) reply {
	const file = "/proc/sys/kernel/seccomp/actions_avail"
	r := h.setting(file, Unknown, func(v string) Answer {
		for action := range strings.FieldsSeq(v) {
			if action == "user_notif" {
				return Yes
			}
		}
		return No
	})
	return r
}

func landlockLevel(_ context.Context, h *host) reply {
	level, _, errno := syscall.Syscall(sysLandlockCreate, 0, 0, landlockCreateGetVesion)
	switch {
	case errno == 0:
		return reply{answer: Yes, probed: fmt.Sprintf("landlock_create_ruleset says level %d", level)}
	case errors.Is(errno, syscall.EOPNOTSUPP):
		return reply{answer: No, probed: "the kernel has it, but it is switched off at boot", fix: h.landlockFix()}
	}
	return reply{answer: No, probed: "landlock_create_ruleset: " + errno.Error() + "; the kernel is built without CONFIG_SECURITY_LANDLOCK"}
}

// landlockFix puts landlock before the security modules that are in use now:
// the list on the kernel's command line replaces the built-in one.
func (h *host) landlockFix() string {
	list := "landlock"
	if now, err := h.read("/sys/kernel/security/lsm"); err == nil && now != "" && !strings.ContainsAny(now, "'\"$` ") {
		list += "," + now
	}
	return bootWith(`echo 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX lsm=` + list + `"' | sudo tee /etc/default/grub.d/pinfold.cfg`)
}

// bootWith is a command that changes the boot loader's settings (those of
// Debian and Ubuntu), and then boots with them.
func bootWith(change string) string { return change + " && sudo update-grub && sudo reboot" }

func swap(_ context.Context, h *host) reply {
	text, err := h.read("/proc/swaps")
	if err != nil {
		return reply{answer: Unknown, probed: "/proc/swaps: " + why(err)}
	}
	n := strings.Count(text, "\n") // the first line is the heading
	r := reply{answer: yesIf(n == 0), probed: fmt.Sprintf("/proc/swaps lists %d", n)}
	if n > 0 && controllerAnswer("swap")(context.Background(), h).answer != Yes {
		r.severity = Warning
	}
	return r
}

func smt(_ context.Context, h *host) reply {
	return h.setting("/sys/devices/system/cpu/smt/active", Unknown, func(v string) Answer { return yesIf(v == "0") })
}

func mitigations(_ context.Context, h *host) reply {
	const dir = "/sys/devices/system/cpu/vulnerabilities"
	entries, err := os.ReadDir(filepath.Join(h.root, dir))
	if err != nil || len(entries) == 0 {
		return reply{answer: Unknown, probed: dir + " cannot be read"}
	}
	var open []string
	for _, e := range entries {
		state, err := h.read(filepath.Join(dir, e.Name()))
		if err != nil {
			return reply{answer: Unknown, probed: filepath.Join(dir, e.Name()) + ": " + why(err)}
		}
		if strings.HasPrefix(state, "Vulnerable") {
			open = append(open, e.Name())
		}
	}
	if len(open) == 0 {
		return reply{answer: Yes, probed: fmt.Sprintf("%s names %d, none open", dir, len(entries))}
	}
	r := reply{answer: No, probed: dir + " says vulnerable: " + strings.Join(open, ", ")}
	r.fix, r.probed = h.mitigationsFix(r.probed)
	return r
}

// mitigationsFix is what closes the CPU's weaknesses here: the command line that
// switched the mitigations off, or newer microcode. A virtual machine cannot
// load microcode; its host can.
func (h *host) mitigationsFix(probed string) (fix, why string) {
	if line, err := h.read("/proc/cmdline"); err == nil && slices.Contains(strings.Fields(line), "mitigations=off") {
		return bootWith("sudo sed -i 's/mitigations=off//' /etc/default/grub"), probed + "; /proc/cmdline has mitigations=off"
	}
	info, _ := h.read("/proc/cpuinfo") // unknown: both makers' packages are named
	switch {
	case strings.Contains(info, " hypervisor"):
		return "", probed + "; this is a virtual machine, whose host has to load the microcode"
	case strings.Contains(info, "GenuineIntel"):
		return "sudo apt-get install intel-microcode && sudo reboot", probed
	case strings.Contains(info, "AuthenticAMD"):
		return "sudo apt-get install amd64-microcode && sudo reboot", probed
	}
	return "sudo apt-get install intel-microcode amd64-microcode && sudo reboot", probed
}

func ksm(_ context.Context, h *host) reply {
	return h.setting("/sys/kernel/mm/ksm/run", Yes, func(v string) Answer { return yesIf(v != "1") })
}

func corePattern(_ context.Context, h *host) reply {
	return h.setting("/proc/sys/kernel/core_pattern", Unknown, func(v string) Answer { return yesIf(!strings.HasPrefix(v, "|")) })
}

func protectedLinks(_ context.Context, h *host) reply {
	r := h.setting("/proc/sys/fs/protected_symlinks", Unknown, func(v string) Answer { return yesIf(v != "0") })
	hard := h.setting("/proc/sys/fs/protected_hardlinks", Unknown, func(v string) Answer { return yesIf(v != "0") })
	if r.answer == Yes {
		r.answer = hard.answer
	}
	r.probed += "; " + hard.probed
	return r
}
