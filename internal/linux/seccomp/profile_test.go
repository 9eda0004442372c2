package seccomp

import (
	"encoding/json"
	"slices"
	"testing"
)

func readProfile(t *testing.T, arch string) (p profile) {
	t.Helper()
	text, err := Profile(Options{Arch: arch})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// decide says what a profile says about a call, and how many of its entries name it.
func (p profile) decide(name string) (result uint32, entries int) {
	result = retErrno | uint32(p.DefaultErrnoRet)
	for _, c := range p.Syscalls {
		if !slices.Contains(c.Names, name) {
			continue
		}
		entries++
		switch c.Action {
		case profileAllow:
			result = retAllow
		case profileKill:
			result = retKillProcess
		default:
			result = retErrno | uint32(*c.ErrnoRet)
		}
	}
	return result, entries
}

// A container engine's profile decides about every call as the tables do, but for
// conditions on arguments.
func TestProfileDecidesAsTheTables(t *testing.T) {
	for _, m := range machines {
		p := readProfile(t, m.name)
		all, err := rules(false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, r := range all {
			want := result(r.verdict, false)
			if !slices.Contains(m.calls, name) {
				want = retErrno | eNOSYS
			}
			if got, entries := p.decide(name); got != want || entries > 1 {
				t.Errorf("%s %s: %d entries say %s, the tables %s", m.name, name, entries, describe(got), describe(want))
			}
		}
	}
}

// What a profile does not name is refused, and no other instruction set is let in.
func TestProfileIsShutByDefault(t *testing.T) {
	for _, m := range machines {
		p := readProfile(t, m.name)
		if p.DefaultAction != profileErrno || p.DefaultErrnoRet != eNOSYS || len(p.ArchMap) != 1 || len(p.ArchMap[0].SubArchitectures) != 0 {
			t.Errorf("%s: %s %d, %v", m.name, p.DefaultAction, p.DefaultErrnoRet, p.ArchMap)
		}
		if p.ArchMap[0].Architecture == "" {
			t.Errorf("%s has no name there", m.name)
		}
	}
	if _, err := Profile(Options{Arch: "sparc"}); err == nil {
		t.Error("a profile for a machine that the policy does not know")
	}
}
