package seccomp

import (
	"fmt"
	"maps"
	"strings"
)

// verdict is what happens to a call. The low 16 bits hold the error number of
// a fail verdict.
type verdict uint32

const (
	allow  verdict = iota << 16
	refuse         // EPERM, reported by name where there is a listener
	kill           // the process ends, reported by name where there is a listener
	fail           // an error number, quietly
)

// errno answers with an error number and tells nobody; with 0 the call does nothing and
// succeeds.
func errno(e uint16) verdict { return fail | verdict(e) }

// absent is the answer for calls that this policy does not know or does not
// want to have: a kernel built without them gives the same.
var absent = errno(eNOSYS)

// Error numbers. They are the same on amd64 and arm64; package syscall's are
// those of the machine that compiles.
const (
	ePERM           = 1
	eSRCH           = 3
	eNOMEM          = 12
	eINVAL          = 22
	eNOSYS          = 38
	eNOPROTOOPT     = 92
	ePROTONOSUPPORT = 93
	eOPNOTSUPP      = 95
	eAFNOSUPPORT    = 97
)

// group is a list of calls, separated by spaces, that have one verdict for one
// reason.
type group struct {
	title string // what they are, and why they have this verdict
	names string
}

// check is one condition on the low 32 bits of an argument, which is all that
// the kernel itself looks at in every call that we check: a value with high
// bits set cannot slip past. It holds when (argument & mask) is one of in, or,
// if in is nil, none of notIn. A mask of 0 means all 32 bits.
type check struct {
	at    *place // where it is made; nil: always
	arg   int
	high  bool // on the high 32 bits, of an address
	mask  uint32
	in    []uint32
	notIn []uint32
	// otherwise is the verdict when the condition does not hold. allow means
	// that the checks after this one are not for this call.
	otherwise verdict
	why       string
}

// place limits a check to calls whose argument has a value. The check holds for all others.
type place struct {
	arg int
	is  uint32
}

// rule is the verdict on one call. The checks are tried in order; the first
// that does not hold decides; if all hold the verdict does.
type rule struct {
	verdict verdict
	checks  []check
}

// rules joins the tables to one map from name to rule. mounts says that the sandbox may
// write to directories of the host's; shared, that it has no namespaces.
func rules(mounts bool, shared *Shared) (map[string]rule, error) {
	all := make(map[string]rule, 400)
	for _, t := range []struct {
		groups  []group
		verdict verdict
	}{{allowed, allow}, {refused, refuse}, {killed, kill}, {unavailable, absent}} {
		for _, g := range t.groups {
			for name := range strings.FieldsSeq(g.names) {
				if _, twice := all[name]; twice {
					return nil, fmt.Errorf("seccomp: %s is in the policy twice", name)
				}
				all[name] = rule{verdict: t.verdict}
			}
		}
	}
	checked := maps.Clone(conditions)
	if mounts {
		maps.Copy(checked, mountConditions)
	}
	if shared != nil {
		maps.Copy(checked, shared.conditions())
	}
	for name, checks := range checked {
		r, ok := all[name]
		if !ok || r.verdict != allow {
			return nil, fmt.Errorf("seccomp: conditions for %s, which is not allowed", name)
		}
		r.checks = checks
		all[name] = r
	}
	return all, nil
}
