//go:build linux

package sleeper

// machine is EM_X86_64.
const machine = 62
