// Package seccomp holds Pinfold's system-call policy, compiles it to the
// kernel's filter language, and listens to what the filter refuses.
//
// The policy is data (table_allow.go, table_refuse.go, table_checks.go): an
// allow-list by name with the reason for each group. Every call that the
// kernel has gets one of four verdicts:
//
//   - allowed, some only with certain arguments;
//   - refused: answered with EPERM and reported by name;
//   - killed: ends the process, because no benign program makes the call;
//   - absent: answered with ENOSYS, as a kernel without the call would, so that
//     C libraries fall back. Calls that nobody has heard of yet are absent.
//
// Only the machine's own instruction set may make calls. i386 calls (int 0x80)
// and x32 calls on amd64, and everything but AArch64 on arm64, kill.
//
// Compile is pure and works for both machines on any host. The result has a
// memory layout that seccomp(2) takes. Whoever installs it must have set
// no_new_privs before, in the one thread that goes on to execve.
//
// With Options.Listener, refused and killed calls go to a Listener on the host,
// which always answers with an error: it never lets a call continue, so the
// races that seccomp_unotify(2) warns of (memory and descriptors changing
// between the check and the call) do not exist here. Without a listener the
// kernel answers by itself and names are lost.
//
// The package is not a general seccomp compiler, cannot look behind pointers
// (nobody can, in a filter; hence clone3 is absent) and installs nothing.
//
// Sources: seccomp(2), seccomp_unotify(2), the kernel's
// Documentation/userspace-api/seccomp_filter.rst.
package seccomp
