//go:build linux

package probe

import (
	"strings"
	"testing"

	"pinfold/sandbox"
)

func TestAdvise(t *testing.T) {
	finding := func(code string, answer Answer, severity Severity) Finding {
		return Finding{Code: code, Title: code, Answer: answer, Severity: severity, Fix: "mend " + code}
	}
	good := []Finding{
		finding("user.root", Yes, OK), finding("landlock", Yes, OK), finding("seccomp.filter", Yes, OK),
		finding("cpu.smt", No, Info), finding("cgroup.memory", No, Warning), finding("container", No, Info),
	}
	without := append([]Finding{finding("gvisor", No, Info)}, good...)
	with := append([]Finding{finding("gvisor", Yes, OK)}, good...)
	machines := append([]Finding{finding("qemu", Yes, OK)}, without...)
	both := append([]Finding{finding("qemu", Yes, OK)}, with...)
	noRoot := []Finding{finding("gvisor", Yes, OK), finding("user.root", No, Info)}
	broken := append([]Finding{finding("userns.create", No, Problem)}, good...)
	for _, test := range []struct {
		name, who    string
		found        []Finding
		level, drive string
		first        string // codes
		do           []string
	}{
		{"an agent", "My own agent", without, sandbox.LevelNamespace, "native", "cgroup.memory", []string{"pinfold run main.py"}},
		{"students", "students", without, sandbox.LevelNamespace, "native", "cgroup.memory", []string{"--tenant"}},
		{"no namespaces", "agent", broken, sandbox.LevelNamespace, "", "userns.create cgroup.memory", []string{"--isolation process"}},
		{"anybody, with gVisor", "anyone on the internet", with, sandbox.LevelKernel, "gvisor", "cpu.smt cgroup.memory", []string{"--isolation kernel", "runsc: runsc", "virtual machine"}},
		{"anybody, with QEMU", "internet", machines, sandbox.LevelKernel, "qemu", "cpu.smt cgroup.memory", []string{"--isolation vm", "enabled: true"}},
		{"anybody, with both", "internet", both, sandbox.LevelKernel, "gvisor", "cpu.smt cgroup.memory", []string{"--isolation kernel", "--isolation vm"}},
		{"anybody, without", "internet", without, sandbox.LevelKernel, "", "cpu.smt cgroup.memory", []string{"mend gvisor", "virtual machine"}},
		{"anybody, as a user", "internet", noRoot, sandbox.LevelKernel, "", "user.root", []string{"virtual machine"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, err := Advise(test.who, test.found)
			if err != nil {
				t.Fatal(err)
			}
			var first []string
			for _, f := range a.First {
				first = append(first, f.Code)
			}
			if a.Isolation != test.level || a.Driver != test.drive || strings.Join(first, " ") != test.first || a.Why == "" || a.Means == "" {
				t.Errorf("%+v", a)
			}
			for _, do := range test.do {
				if !strings.Contains(strings.Join(a.Do, "\n"), do) {
					t.Errorf("%q does not say %q", a.Do, do)
				}
			}
		})
	}
	if _, err := Advise("studnets", nil); err == nil || !strings.Contains(sandbox.AsError(err).Hint, "did you mean students?") {
		t.Errorf("%+v", err)
	}
}

// What the advice goes by are questions that are asked.
func TestThreatsAskWhatIsAsked(t *testing.T) {
	asked := map[string]bool{}
	for _, q := range questions {
		asked[q.code] = true
	}
	for _, threat := range threats {
		for _, code := range threat.codes {
			if !asked[code] {
				t.Errorf("%s goes by %s, which nobody asks", threat.name, code)
			}
		}
	}
}
