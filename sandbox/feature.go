package sandbox

import (
	"slices"
	"strconv"
	"strings"
)

// Feature is one thing that a driver may enforce. Its Name stands in
// Isolation.Enforced and may be asked for with Spec.Require. A feature with a
// level is written "name:level" ("landlock:6"); a requirement without a level
// accepts any, and a requirement with a number accepts that level or higher.
type Feature struct {
	Name    string
	Meaning string
}

// Feature names.
const (
	FeatureNetworkNone  = "network:none"
	FeatureNetwork      = "network:declared"
	FeatureMemory       = "memory"
	FeatureSwap         = "swap"
	FeatureCPUTime      = "cpu_time"
	FeatureCPUs         = "cpus"
	FeatureWallTime     = "wall_time"
	FeatureProcesses    = "processes"
	FeatureDisk         = "disk"
	FeatureInodes       = "inodes"
	FeatureOutput       = "output"
	FeatureOpenFiles    = "open_files"
	FeatureFileSize     = "file_size"
	FeatureIO           = "io"
	FeatureSeccomp      = "seccomp"
	FeatureLandlock     = "landlock"
	FeatureNoNewPrivs   = "no_new_privs"
	FeatureCapabilities = "capabilities:none"
	FeatureUserNS       = "namespace:user"
	FeatureMountNS      = "namespace:mount"
	FeaturePIDNS        = "namespace:pid"
	FeatureNetNS        = "namespace:net"
	FeatureIPCNS        = "namespace:ipc"
	FeatureUTSNS        = "namespace:uts"
	FeatureCgroupNS     = "namespace:cgroup"
	FeatureTimeNS       = "namespace:time"
	FeatureUIDBlock     = "uid:distinct"
	FeatureReadOnlyRoot = "root:read-only"
	FeatureFilesOwn     = "files:own"
	FeatureDevicesOwn   = "devices:own"
	FeatureASLR         = "aslr:fresh"
	FeatureAgentSealed  = "agent:sealed"
)

// Features lists every feature there is, in the order in which results name
// them.
func Features() []Feature { return slices.Clone(features) }

var features = []Feature{
	{FeatureNetworkNone, "no network: a network namespace with loopback only"},
	{FeatureNetwork, "nothing can be reached but the declared endpoints, through the host; no network at all is that, too"},
	{FeatureMemory, "limits.memory_bytes over the whole process tree, by the kernel"},
	{FeatureSwap, "no swap for the sandbox"},
	{FeatureCPUTime, "limits.cpu_time_ms over the whole process tree"},
	{FeatureCPUs, "limits.cpus, by the kernel's CPU bandwidth control"},
	{FeatureWallTime, "limits.wall_time_ms"},
	{FeatureProcesses, "limits.processes over the whole process tree, by the kernel"},
	{FeatureDisk, "limits.disk_bytes over every writable place"},
	{FeatureInodes, "limits.inodes over every writable place"},
	{FeatureOutput, "limits.output_bytes of each stream"},
	{FeatureOpenFiles, "limits.open_files of each process"},
	{FeatureFileSize, "limits.file_size_bytes of each file"},
	{FeatureIO, "a limit on the bandwidth of block devices"},
	{FeatureSeccomp, "an allow-list of system calls"},
	{FeatureLandlock, "Landlock as a second layer over files; the level is the kernel's ABI"},
	{FeatureNoNewPrivs, "no_new_privs: set-user-id programs gain nothing"},
	{FeatureCapabilities, "no capability in any set"},
	{FeatureUserNS, "an own user namespace"},
	{FeatureMountNS, "an own mount namespace with its own root"},
	{FeaturePIDNS, "an own pid namespace"},
	{FeatureNetNS, "an own network namespace"},
	{FeatureIPCNS, "an own IPC namespace"},
	{FeatureUTSNS, "an own host name"},
	{FeatureCgroupNS, "an own cgroup namespace"},
	{FeatureTimeNS, "an own time namespace"},
	{FeatureUIDBlock, "host user ids that no other sandbox has"},
	{FeatureReadOnlyRoot, "everything but the declared writable places is read-only"},
	{FeatureFilesOwn, "what is shown of the host's files is seen through a layer of the sandbox's own: nothing done to it reaches the host or another sandbox"},
	{FeatureDevicesOwn, "device files of the sandbox's own"},
	{FeatureASLR, "an address layout, and what else a program takes from its start, that no other has"},
	{FeatureAgentSealed, "Pinfold's own program inside is sealed against writing"},
}

// splitFeature separates a feature's name from its level. Names that
// themselves contain a colon ("network:none") have no level.
func splitFeature(s string) (name string, level int, hasLevel bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, 0, false
	}
	n, err := strconv.Atoi(s[i+1:])
	if err != nil || n < 0 {
		return s, 0, false
	}
	return s[:i], n, true
}

// Satisfies says whether an enforced feature answers a required one. A
// requirement may name a level ("landlock:6"): the enforced level must be at
// least that. A bare family name ("network", "capabilities") does not match.
func Satisfies(enforced, required string) bool {
	if enforced == required || enforced == FeatureNetworkNone && required == FeatureNetwork {
		return true
	}
	en, el, ehas := splitFeature(enforced)
	rn, rl, rhas := splitFeature(required)
	if en != rn {
		return false
	}
	if !rhas {
		return true
	}
	return ehas && el >= rl
}

// KnownFeature says whether the table has a feature of that name, with or
// without a level.
func KnownFeature(s string) bool {
	name, _, _ := splitFeature(s)
	return slices.ContainsFunc(features, func(f Feature) bool { return f.Name == name })
}
