//go:build linux

package sleeper

// machine is EM_AARCH64.
const machine = 183
