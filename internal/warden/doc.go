//go:build linux

// Package warden is the first process of a virtual machine. It loads what drivers the
// kernel needs, shows the machine's disk as its root, and makes one sandbox in there with
// the kernel's own means, the same as on a host (internal/driver/native). So a program in
// a virtual machine is confined twice: who gets out of the sandbox is in a machine that
// has nothing else in it, no network, and no way out but the emulator.
//
// It answers the host (package wardenwire) and passes the agent's connection on, byte by
// byte. When it has nobody to speak to any more it switches the machine off.
package warden
