package probe

import (
	"slices"
	"strings"

	"pinfold/internal/nearest"
	"pinfold/sandbox"
)

// Advice says which isolation a threat needs, and what of that this host has.
type Advice struct {
	Threat string `json:"threat"`
	Means  string `json:"means"` // who they are, and what they would do

	Isolation string `json:"isolation"`        // the least level that is enough
	Driver    string `json:"driver,omitempty"` // what gives it here; "": nothing does
	Why       string `json:"why"`

	Do    []string  `json:"do"`    // commands and settings, in their order
	First []Finding `json:"first"` // what is to be mended before, or accepted
}

// threat is somebody whose programs run, by what they would do.
type threat struct {
	name  string
	said  []string // other words for it
	means string
	level string
	codes []string // of findings that matter to it, beside problems
}

var threats = []threat{
	{
		name: "agent", said: []string{"my own agent", "own agent", "my agent", "me", "myself"},
		means: "your own code, or your agent's: it errs, and does what a page that it read told it to. It has no plan to break out",
		level: sandbox.LevelNamespace,
		codes: []string{"cgroup.memory", "cgroup.pids", "cgroup.cpu", "landlock"},
	},
	{
		name: "students", said: []string{"a class", "class", "colleagues", "employees", "people whom you know"},
		means: "people whom you can call to account: they try what they can, and look at each other's work, but nobody spends weeks on it",
		level: sandbox.LevelNamespace,
		codes: []string{
			"cgroup.memory", "cgroup.swap", "cgroup.pids", "cgroup.cpu", "cgroup.cpuacct", "landlock", "seccomp.notify", "user.root",
			"cpu.mitigations", "core_pattern", "protected_links", "memory.ksm",
		},
	},
	{
		name: "internet", said: []string{"anyone", "anybody", "strangers", "anyone on the internet", "everybody"},
		means: "anybody: some know a hole in the kernel that nobody has mended yet, and use it",
		level: sandbox.LevelKernel,
		codes: []string{
			"cgroup.memory", "cgroup.swap", "cgroup.pids", "cgroup.cpu", "cgroup.cpuacct", "landlock", "seccomp.notify", "user.root",
			"cpu.mitigations", "cpu.smt", "core_pattern", "protected_links", "memory.ksm", "swap",
		},
	},
}

// Threats names those that there is advice for.
func Threats() (names []string) {
	for _, t := range threats {
		names = append(names, t.name)
	}
	return names
}

// Advise says what to do about a threat on a host of which that was found. The error names
// the threats.
func Advise(who string, found []Finding) (Advice, error) {
	i := slices.IndexFunc(threats, func(t threat) bool {
		who := strings.ToLower(strings.TrimSpace(who))
		return who == t.name || slices.Contains(t.said, who)
	})
	if i < 0 {
		hint := "the threats are " + strings.Join(Threats(), ", ")
		if near := nearest.Word(strings.ToLower(who), Threats()); near != "" {
			hint = "did you mean " + near + "? " + hint
		}
		return Advice{}, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "threat", Message: "no threat \"" + sandbox.SafeText(who, 60) + "\"", Hint: hint}
	}
	t := threats[i]
	a := Advice{Threat: t.name, Means: t.means, Isolation: t.level, Do: []string{}, First: []Finding{}}
	for _, f := range found {
		if f.Severity == Problem || f.Answer == No && slices.Contains(t.codes, f.Code) {
			a.First = append(a.First, f)
		}
	}
	if t.level == sandbox.LevelKernel {
		a.ownKernel(found)
	} else {
		a.sharedKernel(found)
	}
	return a, nil
}

func answer(found []Finding, code string) Answer {
	for _, f := range found {
		if f.Code == code {
			return f.Answer
		}
	}
	return Unknown
}

// sharedKernel is enough for whoever does not attack the kernel.
func (a *Advice) sharedKernel(found []Finding) {
	switch {
	case !Impossible(found):
		a.Driver = "native"
		a.Why = "namespaces, with the kernel's limits, its filter of system calls and Landlock, hold everything that does not break the kernel itself; it costs milliseconds"
		a.Do = append(a.Do, "pinfold run main.py")
	case answer(found, "landlock") == Yes && answer(found, "seccomp.filter") == Yes:
		a.Why = "this host makes no namespaces. What it can make is weaker: plain processes that Landlock and a filter hold; they see the host's processes and file names, and limits are watched, not enforced"
		a.Do = append(a.Do, "pinfold run --isolation process main.py")
	default:
		a.Why = "this host makes no namespaces, and cannot hold plain processes either"
	}
	if a.Threat == "students" {
		a.Do = append(a.Do,
			"pinfold serve --example > pinfold.yaml    # quotas: what each tenant may have at once",
			"pinfold key create --tenant ann           # a tenant for each, who sees nothing of the others",
			"sudo apt-get update && sudo apt-get upgrade  # the host's kernel is what holds: keep it new")
	}
}

// ownKernel is what it takes against those who do.
func (a *Advice) ownKernel(found []Finding) {
	root := answer(found, "user.root") == Yes
	hasGVisor, hasQEMU := root && answer(found, "gvisor") == Yes, root && answer(found, "qemu") == Yes
	const falls = "a sandbox that shares the host's kernel falls with it"
	switch {
	case hasGVisor:
		a.Driver = "gvisor"
		a.Why = falls + ". gVisor gives each a kernel of its own, in user space: two walls have to be broken, one after the other"
		a.Do = append(a.Do,
			"pinfold run --isolation kernel main.py           # finds whether runsc works here",
			"echo 'drivers: {gvisor: {runsc: runsc}}' >> pinfold.yaml  # for a server: pinfold serve --config pinfold.yaml")
		if hasQEMU {
			a.Do = append(a.Do, "pinfold run --isolation vm main.py               # stronger still, and slower: a virtual machine for each")
		}
	case hasQEMU:
		a.Driver = "qemu"
		a.Why = falls + ". QEMU gives each a machine with a kernel of its own, emulated, and so slow, where there is no KVM: the machine has to be broken, then QEMU, then what holds that"
		a.Do = append(a.Do,
			"pinfold run --isolation vm main.py",
			"echo 'drivers: {qemu: {enabled: true}}' >> pinfold.yaml  # for a server, whose machines wait: pinfold serve --config pinfold.yaml")
	default:
		a.Why = falls + ", and nothing here gives one another kernel yet. One of these does, as root: gVisor, which is faster, or QEMU with a kernel"
		for _, code := range []string{"gvisor", "qemu"} {
			for _, f := range found {
				if f.Code == code && f.Answer != Yes && f.Fix != "" {
					a.Do = append(a.Do, f.Fix)
				}
			}
		}
	}
	a.Do = append(a.Do, "put the whole server into a virtual machine that holds nothing worth stealing, and throw that away from time to time")
}
