package docker

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	ours "pinfold/internal/container"
	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/wire"
)

// Where a container has what is ours, and what the agent is told of it. It is
// executable and cannot be read, listed or changed inside: nobody there shares anything
// by it.
const (
	insideDir   = "/.pinfold"
	insideAgent = insideDir + "/agent"
	insideHost  = insideDir + "/host"
	fetch       = "fetch" // the agent's Fetch
)

// masked is what programs have no use for: with what the engine itself masks, the host's
// devices, interrupts, memory and modules.
var masked = []string{
	"/proc/acpi", "/proc/asound", "/proc/buddyinfo", "/proc/bus", "/proc/cgroups", "/proc/cmdline", "/proc/config.gz", "/proc/consoles",
	"/proc/crypto", "/proc/devices", "/proc/diskstats", "/proc/dma", "/proc/driver", "/proc/fb", "/proc/fs", "/proc/interrupts",
	"/proc/iomem", "/proc/ioports", "/proc/irq", "/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg",
	"/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/locks", "/proc/mdstat", "/proc/misc",
	"/proc/modules", "/proc/mtrr", "/proc/pagetypeinfo", "/proc/partitions", "/proc/pressure", "/proc/sched_debug", "/proc/schedstat",
	"/proc/scsi", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/slabinfo", "/proc/softirqs", "/proc/swaps", "/proc/sysrq-trigger", "/proc/sysvipc", "/proc/timer_list",
	"/proc/timer_stats", "/proc/tty", "/proc/vmallocinfo", "/proc/vmstat", "/proc/zoneinfo",
}

// name is a machine's container.
func name(id string) string { return "pinfold-" + id }

// Labels of containers, and of the engine's copies of templates.
const (
	labelID     = "pinfold.id"
	labelState  = "pinfold.state"
	labelRecord = "pinfold.record" // the file that is there for as long as the template is
)

// copiesName names the engine's copies of templates; a hash of what is in them is the tag.
// Podman and Docker understand the same by it.
const copiesName = "localhost/pinfold-template"

// image is what the engine calls what a template shows: the configured image is its host.
// Who has another state directory has copies of his own.
func (o Options) image(t image.Template) string {
	if len(t.Layers.Dirs) == 0 {
		return o.Image
	}
	h := sha256.New()
	t.Name, t.Env, t.Programs, t.Commands = "", nil, nil, nil         // which are not in it
	_ = json.NewEncoder(h).Encode([]any{copiesFormat, o.StateDir, t}) // which never fails
	return fmt.Sprintf("%s:%x", copiesName, h.Sum(nil))
}

// copiesFormat changes with what we make of a template.
const copiesFormat = 1

// oomScore has the kernel end what is in a container before anything of the host's.
const oomScore = 500

// options are the container of a machine whose directory is dir, with our seccomp list as
// the engine wants it, and more limits.
func (o Options) options(plan driver.Plan, dir, seccomp string, more []ours.Rlimit) client.ContainerCreateOptions {
	l := plan.Limits
	user := fmt.Sprintf("%d:%d", plan.User.UID, plan.User.GID)
	tasks := l.Processes + wire.MaxTasks
	return client.ContainerCreateOptions{
		Name: name(plan.ID),
		Config: &container.Config{
			Image: o.image(plan.Template), Hostname: plan.Hostname, User: user, WorkingDir: "/", NetworkDisabled: true,
			Entrypoint: []string{insideAgent, fetch, insideHost}, Env: []string{"GOMAXPROCS=1"},
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, // the image's would run inside
			Labels:      map[string]string{labelID: plan.ID, labelState: o.StateDir},
		},
		HostConfig: &container.HostConfig{
			Runtime: o.Runtime, NetworkMode: "none", IpcMode: container.IPCModePrivate, CgroupnsMode: container.CgroupnsModePrivate,
			ReadonlyRootfs: true, CapDrop: []string{"ALL"}, OomScoreAdj: oomScore,
			SecurityOpt:   []string{"no-new-privileges", "seccomp=" + seccomp},
			LogConfig:     container.LogConfig{Type: "none"},
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			MaskedPaths:   slices.Clone(masked),
			ReadonlyPaths: []string{"/proc/sys"},
			Mounts:        mounts(plan, dir),
			Sysctls:       sysctls(plan),
			Resources: container.Resources{
				Memory: l.MemoryBytes, MemorySwap: l.MemoryBytes, // together: no swap
				CPUQuota: l.CPUQuota(ours.CPUPeriodUS), CPUPeriod: ours.CPUPeriodUS, PidsLimit: &tasks,
				Ulimits: ulimits(more),
			},
		},
	}
}

// ulimits are the limits that hold for the agent and all it starts.
func ulimits(more []ours.Rlimit) []*container.Ulimit {
	var all []*container.Ulimit
	for _, u := range append(ours.Rlimits(), more...) {
		all = append(all, &container.Ulimit{Name: u.Name, Soft: u.Value, Hard: u.Value})
	}
	return all
}

// mounts are what a container has over the image.
func mounts(plan driver.Plan, dir string) []mount.Mount {
	var all []mount.Mount
	show := func(source, target string, readOnly bool) {
		all = append(all, mount.Mount{
			Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: true},
		})
	}
	show(filepath.Join(dir, inDir), insideDir, true)
	show(filepath.Join(dir, runDir), "/run", true) // Podman would have a tmpfs without a limit there
	for _, p := range ours.Places(plan.User.Home) {
		show(filepath.Join(dir, diskDir, p.Dir), p.Path, false)
	}
	for _, f := range ours.ShownFiles {
		show(filepath.Join(dir, shownDir, f), f, true)
	}
	// The engine would lay the host's cgroups over ours.
	for _, f := range []string{"/sys", "/sys/fs/cgroup"} {
		show(filepath.Join(dir, shownDir, f), f, true)
	}
	for _, m := range plan.Mounts { // that the engine keeps: Create refuses others
		show(m.Host, m.Guest, true)
	}
	for _, f := range ownFiles(plan) {
		show(filepath.Join(dir, shownDir, f.Path), f.Path, true)
	}
	return all
}

// ownFiles are what a machine with doors shows of them over the image, which many machines
// share.
func ownFiles(plan driver.Plan) []image.File {
	if len(plan.Doors) == 0 {
		return nil
	}
	plan.Template = image.NetworkFiles()
	return plan.Inside().Files
}

// sysctls let the agent, who is no root, listen at ports below 1024, where there are doors.
// Programs may, too, and reach nobody by it.
func sysctls(plan driver.Plan) map[string]string {
	if len(plan.Doors) == 0 {
		return nil
	}
	return map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"}
}

// Names in a machine's directory.
const (
	record   = "machine.json"
	inDir    = "in"
	diskDir  = "disk"
	shownDir = "shown"
	runDir   = "run"
	socket   = "s"
	profile  = "seccomp.json"
)
