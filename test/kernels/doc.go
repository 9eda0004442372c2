// Package kernels proves under another kernel what the machine that runs the
// tests may not have: it compiles test binaries of other packages, boots a
// Debian kernel with cgroup version 2 in QEMU and runs them there, as root and
// as an ordinary user. It has tests only.
package kernels
