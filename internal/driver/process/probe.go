//go:build linux

package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/linux/landlock"
	"pinfold/sandbox"
)

// landlockLevel is the level that is used here; 0 and why, when there is none of use.
func landlockLevel(most int) (int, error) {
	level, _, err := landlock.ABI()
	level = min(level, most)
	if err == nil && level < landlock.MinLevel {
		err = fmt.Errorf("the kernel's Landlock has level %d, %d is needed: %w", level, landlock.MinLevel, errors.ErrUnsupported)
	}
	if err != nil {
		return 0, err
	}
	return level, nil
}

// keepsSockets says whether a machine's own UNIX sockets can be told from the host's.
func (d *Driver) keepsSockets(level int) bool { return level >= landlock.SocketLevel }

// Abilities say that machines are plain processes.
func (d *Driver) Abilities() driver.Abilities { return driver.Abilities{Level: sandbox.LevelProcess} }

// Probe reports what can be enforced here.
func (d *Driver) Probe(_ context.Context, t image.Template) (driver.Report, error) {
	r := driver.Report{Driver: Name, Level: sandbox.LevelProcess, Places: d.o.Dir}
	h, err := d.prepare()
	if err != nil {
		return r, err
	}
	r.Blocked = cmp.Or(d.blocked(h), t.OnlyHost(Name))
	for _, f := range always {
		r.Findings = append(r.Findings, driver.Finding{Feature: f.feature, Answer: driver.Yes, Because: f.because})
	}
	level := ""
	if h.level > 0 {
		level = ":" + strconv.Itoa(h.level)
	}
	r.Findings = append(r.Findings,
		byError(sandbox.FeatureSeccomp, h.support.Filter, "boot a kernel with CONFIG_SECCOMP_FILTER"),
		byError(sandbox.FeatureLandlock+level, h.levelErr, landlockFix),
		addressFinding())
	r.Findings = append(r.Findings, d.byUser()...)
	for _, f := range never {
		r.Findings = append(r.Findings, driver.Finding{Feature: f.feature, Answer: driver.No, Because: f.because, Fix: stronger})
	}
	return r, nil
}

const landlockFix = "boot a kernel with CONFIG_SECURITY_LANDLOCK and landlock in lsm="

// stronger is what to do about what no plain process can have. Also who has named this
// driver may name another one.
var stronger = sandbox.Set("driver", "native")

// blocked says why no machine of this driver would be worth its name here.
func (d *Driver) blocked(h *host) *sandbox.Error {
	e := &sandbox.Error{Code: sandbox.CodeDriverUnavailable}
	switch {
	case h.support.Filter != nil:
		e.Message, e.Hint = "a plain process needs a system-call filter: "+h.support.Filter.Error(), "boot a kernel with CONFIG_SECCOMP_FILTER"
	case h.levelErr != nil:
		e.Message, e.Hint = "a plain process needs Landlock, which keeps it from the host's files: "+h.levelErr.Error(), landlockFix
	case !d.root && h.level < landlock.ScopeLevel:
		e.Message = fmt.Sprintf("a process of the same user could end all others of that user: Landlock keeps signals in from level %d on (Linux 6.12), and this kernel has %d", landlock.ScopeLevel, h.level)
		return e.WithAdvice(sandbox.Advice{sandbox.HostCommand("sudo -s")})
	default:
		return nil
	}
	return e
}

type said struct{ feature, because string }

// always lists what every machine enforces: making one fails otherwise.
var always = []said{
	{sandbox.FeatureNetworkNone, "the system-call filter: there are no sockets but pairs, or UNIX sockets where Landlock tells one's own from the host's"},
	{sandbox.FeatureNoNewPrivs, "part of every sandbox"},
	{sandbox.FeatureReadOnlyRoot, "Landlock: only its own directory can be written to"},
	{sandbox.FeatureAgentSealed, "part of every sandbox"},
	{sandbox.FeatureWallTime, "part of every sandbox"},
	{sandbox.FeatureCPUTime, "the process tree is watched"},
	{sandbox.FeatureOutput, "part of every sandbox"},
	{sandbox.FeatureOpenFiles, "RLIMIT_NOFILE"},
	{sandbox.FeatureFileSize, "RLIMIT_FSIZE"},
}

// never lists what a plain process cannot have, and what there is instead.
var never = []said{
	{sandbox.FeatureMemory, "the process tree's memory is watched, and it is ended when it has more; no process can have much more at once (RLIMIT_DATA)"},
	{sandbox.FeatureSwap, "without a cgroup the kernel may swap it out"},
	{sandbox.FeatureCPUs, "without a cgroup it may use all processors; it is placed on as many as it is given"},
	{sandbox.FeatureDisk, "its directory is on the host's disk and is watched: a program that has written more is ended"},
	{sandbox.FeatureInodes, "its directory is on the host's disk and is watched: a program that has made more is ended"},
	{sandbox.FeatureIO, "without a cgroup nothing bounds what it reads and writes each second"},
	{sandbox.FeatureUserNS, "it is a plain process of the host's"},
	{sandbox.FeatureMountNS, "it can ask for the host's files by name, for their sizes and times, and watch that they are used; Landlock keeps it from what is in them, but for system directories that everybody may read"},
	{sandbox.FeaturePIDNS, "it sees the host's processes and their command lines in /proc; it can neither signal them nor see what is in them"},
	{sandbox.FeatureNetNS, "it may read the host's network counters in /proc/net; it has no sockets"},
	{sandbox.FeatureIPCNS, "System V shared memory and semaphores are refused, and so is /dev/shm, where named semaphores lie"},
	{sandbox.FeatureUTSNS, "it sees the host's name"},
	{sandbox.FeatureCgroupNS, "it sees the names of its cgroups, which are the server's"},
	{sandbox.FeatureTimeNS, "it sees for how long the host has been up"},
	{sandbox.FeatureFilesOwn, "it reads the host's own files: what it reads stays in the host's memory, and it may lock what it can read"},
	{sandbox.FeatureDevicesOwn, "it uses the host's /dev/null, zero, full, random, urandom and tty"},
}

// byUser reports what depends on whether each machine has a user id of its own.
func (d *Driver) byUser() []driver.Finding {
	if d.root {
		return []driver.Finding{
			{Feature: sandbox.FeatureCapabilities, Answer: driver.Yes, Because: "part of every sandbox"},
			{Feature: sandbox.FeatureUIDBlock, Answer: driver.Yes, Because: "a user id of its own for each sandbox"},
			{Feature: sandbox.FeatureProcesses, Answer: driver.Yes, Because: "RLIMIT_NPROC, which counts the sandbox's user id, to within two"},
		}
	}
	root := sandbox.HostCommand("sudo -s")
	return []driver.Finding{
		{Feature: sandbox.FeatureCapabilities, Answer: driver.No, Because: "an ordinary user cannot empty the bounding set; with no_new_privs nothing can be gained from it", Fix: root},
		{
			Feature: sandbox.FeatureUIDBlock, Answer: driver.No, Fix: root,
			Because: "the sandbox's user is the user that runs Pinfold; the system-call filter refuses to change modes, owners and times of files by their names",
		},
		{Feature: sandbox.FeatureProcesses, Answer: driver.No, Because: "the process tree is watched, and ended when it is far beyond; RLIMIT_NPROC counts all processes of the user, so a flood of forks may go on until its time is over", Fix: root},
	}
}

// addressFinding says whether every program that is started gets an address layout of
// its own.
func addressFinding() driver.Finding {
	const file, all = "/proc/sys/kernel/randomize_va_space", "2"
	value, err := os.ReadFile(file)
	switch {
	case err != nil:
		return driver.Finding{Feature: sandbox.FeatureASLR, Because: err.Error()}
	case strings.TrimSpace(string(value)) == all:
		return driver.Finding{Feature: sandbox.FeatureASLR, Answer: driver.Yes, Because: "the kernel gives every program that is started a layout of its own"}
	}
	return driver.Finding{
		Feature: sandbox.FeatureASLR, Answer: driver.No, Because: file + " is not " + all,
		Fix: sandbox.HostCommand("sudo sysctl -w kernel.randomize_va_space=" + all),
	}
}

// byError turns a check's error into a finding.
func byError(feature string, err error, fix string) driver.Finding {
	f := driver.Finding{Feature: feature, Answer: driver.Yes, Because: "the kernel has it"}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		f.Answer, f.Because, f.Fix = driver.No, err.Error(), sandbox.Text(fix)
	case err != nil:
		f.Answer, f.Because, f.Fix = driver.Unknown, err.Error(), sandbox.Text(fix)
	}
	return f
}
