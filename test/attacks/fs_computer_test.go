//go:build linux

package attacks

import (
	"os"
	"strconv"
	"strings"
)

// computer is attacks on what is made up in /proc and /sys.
func computer() []Case {
	return []Case{
		{
			ID: "FS-30", Title: "the host's computer behind the one that is made up: its boot, memory, time, and every other name of its /proc", Level: User, Severity: HostLeak, Source: "own",
			Expect: "no name of the host's /proc exists but those that are covered; no value is the host's; nothing can be opened for writing",
			Attack: Payload{Code: computerCode, Args: hostsComputer()},
			Doors: append(doors("EROFS|EACCES", "/proc/stat /proc/meminfo /proc/uptime"),
				Door{"names", "0", "[1-9].*"}, Door{"boot", "own", "host"}, Door{"memory", "own", "host"}, Door{"uptime", "own", "host"}),
			Control: Control{Without: "files of its own over a /proc that looks up no other name", Jail: true},
			Twin: &Twin{
				What:    "reading how large the sandbox is",
				Payload: Payload{Language: "shell", Code: "grep -c ^processor /proc/cpuinfo; head -c 9 /proc/meminfo; echo; cat /sys/devices/system/cpu/online; wc -c </proc/sys/kernel/random/uuid"},
				Want:    "1\nMemTotal:\n0\n37",
			},
		},
	}
}

const computerCode = `
boot, memory, names = sys.argv[1], sys.argv[2], sys.argv[3:]
covered = "cpuinfo filesystems loadavg meminfo mounts net self stat sys thread-self uptime version".split()
say("names", sum(os.path.lexists("/proc/" + n) for n in names if n not in covered))
read = lambda p: open(p).read().split()
say("boot", "host" if read("/proc/sys/kernel/random/boot_id")[0] == boot else "own")
say("memory", "host" if read("/proc/meminfo")[1] == memory else "own")
say("uptime", "host" if abs(float(read("/proc/uptime")[0]) - time.clock_gettime(time.CLOCK_BOOTTIME)) > 2 or float(read("/proc/uptime")[0]) > 60 else "own")
for p in "/proc/stat /proc/meminfo /proc/uptime".split():
    attempt(p, lambda: os.close(os.open(p, os.O_WRONLY)))
`

// hostsComputer returns the host's boot id, its memory and the names in its /proc.
func hostsComputer() []string {
	boot := strings.TrimSpace(string(must(os.ReadFile("/proc/sys/kernel/random/boot_id"))))
	memory := strings.Fields(string(must(os.ReadFile("/proc/meminfo"))))[1]
	args := []string{boot, memory}
	for _, e := range must(os.ReadDir("/proc")) {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			args = append(args, e.Name())
		}
	}
	return args
}
