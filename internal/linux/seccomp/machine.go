package seccomp

import "strconv"

// machine is an instruction set with its own table of calls.
type machine struct {
	name  string   // as Go names it
	audit uint32   // AUDIT_ARCH_*, include/uapi/linux/audit.h
	x32   bool     // numbers with x32Bit are calls of another kind
	calls []string // by number; empty where there is none
}

var machines = []machine{
	{name: "amd64", audit: 0xc000003e, x32: true, calls: callsX8664[:]},
	{name: "arm64", audit: 0xc00000b7, calls: callsAArch64[:]},
}

// callName is the name of a call, or its number if it has none.
func (m machine) callName(nr int32) string {
	if nr >= 0 && int(nr) < len(m.calls) && m.calls[nr] != "" {
		return m.calls[nr]
	}
	return "syscall_" + strconv.FormatInt(int64(nr), 10)
}
