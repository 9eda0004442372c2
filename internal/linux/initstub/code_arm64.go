//go:build linux

package initstub

// machine is EM_AARCH64.
const machine = 183
