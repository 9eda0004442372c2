// Package vm runs programs under another kernel: it boots a Debian kernel in
// QEMU, without KVM, with a root file system that lives in memory, and brings
// back each program's output and exit status. Tests use it to prove what the
// build machine's own kernel cannot show (cgroup version 2, say).
//
// It is test support, not a way to run untrusted code: the guest is our own,
// and the machine is as bare as it gets.
package vm
