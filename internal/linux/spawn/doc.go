// Package spawn starts a process from a table of system calls.
//
// A Program is a list of steps, each one system call with a name. Start makes
// a new process with clone (or clone3, to enter a cgroup) and that process does nothing but walk the table
// until a step replaces it (execve) or fails. The walk is a few lines of
// assembly: the new process shares its parent's memory (CLONE_VM) but uses no
// stack and runs no Go code, so the parent neither copies its page tables nor
// waits, and any number of processes can be made at once. A failure is
// reported by the name of its step and the error number.
//
// The host half uses it to build a sandbox (namespaces, mounts, seccomp, the
// agent's exec); the agent uses it to start guest processes (session, limits,
// user, exec). It is not a general os/exec: there is no PATH search, no pipe
// handling and no Wait beyond the exec itself.
//
// Not safe: a Program may not be changed after Start. Distinct Programs are
// independent.
package spawn
