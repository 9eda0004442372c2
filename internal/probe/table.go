//go:build linux

package probe

import "pinfold/internal/container"

// questions is everything that the doctor asks, in the order of its report.
// Kernel settings are described in the kernel's Documentation/admin-guide/sysctl.
var questions = []question{
	{
		code: "kernel.version", title: "Linux is 5.15 or newer", good: Yes, bad: Problem, unknown: Warning, ask: kernelVersion,
		means: "older kernels lack system calls that a sandbox is made with",
		fix:   "sudo apt-get install --only-upgrade linux-image-amd64 && sudo reboot",
	},
	{
		code: "user.root", title: "Pinfold runs as root", good: Yes, bad: Info, unknown: Info, ask: runsAsRoot,
		means: "an ordinary user gets sandboxes too, but needs a delegated cgroup for kernel limits and subordinate ids for distinct users",
	},
	{
		code: "userns.create", title: "user namespaces with mounts can be made", good: Yes, bad: Problem, unknown: Warning, ask: userNamespace,
		means: "the native driver makes every sandbox this way",
		fix:   "sudo sysctl -w user.max_user_namespaces=15000",
	},
	{
		code: "userns.max", title: "user.max_user_namespaces allows them", good: Yes, bad: Problem, unknown: Info, ask: maxUserNamespaces,
		means: "0 forbids user namespaces; each sandbox needs one",
		fix:   setSysctl("user.max_user_namespaces", "15000"),
	},
	{
		code: "userns.debian", title: "Debian's switch lets ordinary users make user namespaces", good: Yes, bad: Problem, unknown: Info, ask: debianSwitch,
		means: "kernel.unprivileged_userns_clone=0 forbids them to everybody but root",
		fix:   setSysctl("kernel.unprivileged_userns_clone", "1"),
	},
	{
		code: "userns.apparmor", title: "AppArmor lets ordinary programs use user namespaces", good: Yes, bad: Problem, unknown: Info, ask: appArmor,
		means: "Ubuntu 23.10 and newer take every capability inside a user namespace away from programs without a profile",
	},
	{
		code: "cgroup.version", title: "cgroups are version 2", good: Yes, bad: Info, unknown: Warning, ask: cgroupVersion,
		means: "version 1 works too, with more work for each sandbox, but there only root makes groups, while on version 2 systemd can delegate limits on memory, processes and CPU to an ordinary user; without any, limits are enforced by polling or not at all",
	},
	cgroupQuestion("memory", "limits.memory_bytes of the whole process tree"),
	cgroupQuestion("swap", "keeping a sandbox's memory out of swap"),
	cgroupQuestion("pids", "limits.processes"),
	cgroupQuestion("cpu", "limits.cpus"),
	cgroupQuestion("cpuacct", "limits.cpu_time_ms of the whole process tree"),
	cgroupQuestion("io", "counting what is read and written"),
	{
		code: "seccomp.filter", title: "seccomp filters system calls", good: Yes, bad: Problem, unknown: Warning, ask: seccompFilter,
		means: "without it a program reaches every system call of the kernel",
		fix:   "sudo apt-get install --reinstall linux-image-amd64 && sudo reboot",
	},
	{
		code: "seccomp.notify", title: "seccomp reports to a supervisor", good: Yes, bad: Warning, unknown: Info, ask: seccompNotify,
		means: "without it a denied system call cannot be named in the result",
	},
	{
		code: "landlock", title: "Landlock restricts files", good: Yes, bad: Warning, unknown: Info, ask: landlockLevel,
		means: "a second layer over files, under the sandbox's own tree",
	},
	{
		code: "overlay", title: "overlay mounts work in a user namespace", good: Yes, bad: Info, unknown: Info, ask: overlay,
		means: "templates made from images could be shared between sandboxes through overlay; no template of this release uses it",
	},
	{
		code: "subids", title: "subordinate ids are there for this user", good: Yes, bad: Warning, unknown: Info, ask: subordinateIDs,
		means: "without them a sandbox of an ordinary user has one user only, which is you on the host",
	},
	{
		code: "docker", title: "a Docker daemon answers", good: Yes, bad: Info, unknown: Info, ask: docker,
		means: "a server whose settings name an image for it (drivers.docker.image) makes sandboxes as its containers, when a request asks for the driver docker",
	},
	{
		code: "gvisor", title: "gVisor's runsc is there", good: Yes, bad: Info, unknown: Info, ask: gvisor,
		means: "with it root's sandboxes have a kernel of their own, in user space, where a run asks for isolation kernel or the driver gvisor; a server wants it named (drivers.gvisor.runsc); whether it works here is tried then",
		fix:   container.HowToGetRunsc,
	},
	{
		code: "qemu", title: "QEMU and a kernel for virtual machines are there", good: Yes, bad: Info, unknown: Info, ask: qemu,
		means: "with them root's sandboxes are virtual machines, where a run asks for isolation vm or the driver qemu; a server wants to be told so (drivers.qemu.enabled)",
	},
	{
		code: "kvm", title: "KVM runs guests", good: Yes, bad: Info, unknown: Info, ask: kvmRuns,
		means: "it could run a sandbox's virtual machine faster than emulation, where a kernel boots in it (that /dev/kvm opens is no proof): the qemu driver tries that with its first machine",
	},
	{
		code: "swap", title: "no swap is in use", good: Yes, bad: Info, unknown: Info, ask: swap,
		means: "memory of programs may be written to a disk, and timings vary",
		fix:   "sudo swapoff -a",
	},
	{
		code: "cpu.smt", title: "CPU threads share no core", good: Yes, bad: Info, unknown: Info, ask: smt,
		means: "two sandboxes on one core can measure each other; matters when programs of different people hold secrets",
		fix:   "echo off | sudo tee /sys/devices/system/cpu/smt/control",
	},
	{
		code: "cpu.mitigations", title: "the CPU's known weaknesses are mitigated", good: Yes, bad: Warning, unknown: Info, ask: mitigations,
		means: "a program may read memory of the kernel or of its neighbours",
	},
	{
		code: "memory.ksm", title: "the kernel does not merge equal pages", good: Yes, bad: Warning, unknown: Info, ask: ksm,
		means: "merged pages let a program find out what others have in memory",
		fix:   "echo 2 | sudo tee /sys/kernel/mm/ksm/run",
	},
	{
		code: "core_pattern", title: "crashes start no program on the host", good: Yes, bad: Warning, unknown: Info, ask: corePattern,
		means: "the kernel hands the memory of a crashed program to a handler that runs as root outside of every sandbox",
		fix:   setSysctl("kernel.core_pattern", "core"),
	},
	{
		code: "protected_links", title: "links in shared directories are protected", good: Yes, bad: Warning, unknown: Info, ask: protectedLinks,
		means: "without it links in /tmp can trick programs of other users",
		fix:   "sudo sysctl -w fs.protected_symlinks=1 fs.protected_hardlinks=1",
	},
	{
		code: "container", title: "Pinfold runs outside of a container", good: Yes, bad: Info, unknown: Info, ask: outsideContainer,
		means: "a container takes away mounts, namespaces or cgroups unless it was started with them",
	},
}

func cgroupQuestion(controller, gives string) question {
	return question{
		code: "cgroup." + controller, title: "the " + controller + " controller can be used",
		good: Yes, bad: Warning, unknown: Warning, ask: controllerAnswer(controller), means: "needed for " + gives,
	}
}
