//go:build linux

package agent

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
)

// SealModes is the agent's argument in a sandbox that may write to a directory of the
// host's. The sandbox's filter keeps programs from making anything set-user-id there, by
// the modes that they give to system calls. That of openat2 is in memory, where no
// filter can look; the agent needs the call itself and keeps it from all that it starts.
const SealModes = "seal-modes"

// refuseOpenat2 adds the step that answers openat2 with ENOSYS from here on. Whoever
// uses it does without on older kernels.
func refuseOpenat2(p *spawn.Program) {
	const (
		load, jumpIfEqual, ret = 0x20, 0x15, 0x06 // BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
		retErrno, retAllow     = 0x50000, 0x7fff0000
		setModeFilter          = 1
	)
	var code []byte
	steps := []struct {
		code   uint16
		jt, jf uint8
		k      uint32
	}{
		{load, 0, 0, 0}, // the call's number; calls of other machines do not get past the sandbox's filter
		{jumpIfEqual, 0, 1, unix.SYS_OPENAT2},
		{ret, 0, 0, retErrno | uint32(unix.ENOSYS)},
		{ret, 0, 0, retAllow},
	}
	for _, s := range steps {
		code = binary.NativeEndian.AppendUint16(code, s.code)
		code = append(code, s.jt, s.jf)
		code = binary.NativeEndian.AppendUint32(code, s.k)
	}
	fprog := make([]byte, 16) // struct sock_fprog
	binary.NativeEndian.PutUint16(fprog, uint16(len(steps)))
	binary.NativeEndian.PutUint64(fprog[8:], uint64(p.Pointer(code)))
	p.Call("refuse openat2", unix.SYS_SECCOMP, setModeFilter, 0, fprog)
}
