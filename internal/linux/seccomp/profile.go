package seccomp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// profile is what container engines take: Docker's format, which Podman reads too.
type profile struct {
	DefaultAction   string         `json:"defaultAction"`
	DefaultErrnoRet uint           `json:"defaultErrnoRet"`
	ArchMap         []profileArch  `json:"archMap"`
	Syscalls        []profileCalls `json:"syscalls"`
}

type profileArch struct {
	Architecture     string   `json:"architecture"`
	SubArchitectures []string `json:"subArchitectures"`
}

// profileCalls is a verdict on calls.
type profileCalls struct {
	Names    []string `json:"names"`
	Action   string   `json:"action"`
	ErrnoRet *uint    `json:"errnoRet,omitempty"`
}

const (
	profileAllow = "SCMP_ACT_ALLOW"
	profileErrno = "SCMP_ACT_ERRNO"
	profileKill  = "SCMP_ACT_KILL_PROCESS"
)

var profileArchs = map[string]string{"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}

// Profile returns the policy in the JSON format of container engines, as far as it goes
// by names: calls that are allowed with some arguments are allowed, and whoever takes the
// profile adds Compile's program from inside (Install). The conditions could be written
// in this format too, which compares all 64 bits of an argument where the kernel takes
// 32: as a thousand rules, for which the engine's library takes 0.4 s at each start.
//
// An engine that is older than "defaultErrnoRet" (Docker 22) answers calls that nobody
// has heard of with EPERM. Of the options only Arch counts.
func Profile(o Options) ([]byte, error) {
	m, err := machineFor(o.Arch)
	if err != nil {
		return nil, err
	}
	all, err := rules(false, nil)
	if err != nil {
		return nil, err
	}
	by := map[verdict][]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.Contains(m.calls, name) {
			by[all[name].verdict] = append(by[all[name].verdict], name)
		}
	}
	p := profile{
		DefaultAction: profileErrno, DefaultErrnoRet: eNOSYS,
		ArchMap: []profileArch{{profileArchs[m.name], []string{}}},
	}
	for _, v := range slices.Sorted(maps.Keys(by)) {
		p.Syscalls = append(p.Syscalls, v.calls(by[v]))
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("seccomp: cannot write the profile: %w", err)
	}
	return text, nil
}

// calls is the verdict on those calls.
func (v verdict) calls(names []string) profileCalls {
	number := uint(ePERM)
	switch v &^ 0xffff {
	case allow:
		return profileCalls{Names: names, Action: profileAllow}
	case kill:
		return profileCalls{Names: names, Action: profileKill}
	case fail:
		number = uint(v & 0xffff)
	}
	return profileCalls{Names: names, Action: profileErrno, ErrnoRet: &number}
}
