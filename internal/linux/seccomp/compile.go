package seccomp

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
)

// Instruction is one instruction of a classic BPF program, laid out as the
// kernel's struct sock_filter.
type Instruction struct {
	Code uint16
	JT   uint8 // instructions to skip when the condition holds
	JF   uint8 // and when it does not
	K    uint32
}

// Bytes returns the instruction as the kernel reads it.
func (i Instruction) Bytes() []byte {
	b := binary.NativeEndian.AppendUint16(nil, i.Code)
	return binary.NativeEndian.AppendUint32(append(b, i.JT, i.JF), i.K)
}

// Program is a compiled filter. It is read-only and may be shared.
type Program []Instruction

// MaxInstructions is the longest program that seccomp(2) takes (BPF_MAXINSNS).
const MaxInstructions = 4096

// Options says for what to compile.
type Options struct {
	// Arch is the machine as Go names it: "amd64" or "arm64". Empty means the
	// machine that this program was built for.
	Arch string
	// Listener sends refused and killed calls to a listener. The filter must
	// then be installed with InstallFlags(true), and the descriptor served by a
	// Listener: a call to which nobody answers waits for ever.
	Listener bool
	// Mounts says that the sandbox may write to directories of the host's.
	Mounts bool
	// Shared is for a process in the host's own namespaces.
	Shared *Shared
}

// Shared says what a filter has to make up for where there are no namespaces.
type Shared struct {
	// Sockets says that something else keeps UNIX sockets away from the host's. Without
	// it there are none but pairs. There are no other sockets in any case.
	Sockets bool
	// Identity says that the user id is the host's own as well: nobody else's files and
	// processes can be changed by what no other mechanism looks at.
	Identity bool
}

// Classic BPF operations, include/uapi/linux/bpf_common.h.
const (
	opLoad = 0x20 // BPF_LD|BPF_W|BPF_ABS
	opAnd  = 0x54 // BPF_ALU|BPF_AND|BPF_K
	opJump = 0x05 // BPF_JMP|BPF_JA
	opJEQ  = 0x15 // BPF_JMP|BPF_JEQ|BPF_K
	opJGE  = 0x35 // BPF_JMP|BPF_JGE|BPF_K
	opRet  = 0x06 // BPF_RET|BPF_K
)

// Offsets in struct seccomp_data. Both machines are little-endian: the low half
// of an argument comes first.
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
)

// Filter results, include/uapi/linux/seccomp.h.
const (
	retKillProcess = 0x80000000
	retErrno       = 0x00050000
	retUserNotif   = 0x7fc00000
	retAllow       = 0x7fff0000
)

// Compile makes the filter. It takes well under a millisecond and touches
// nothing. It fails for a machine that the policy does not know, and if the
// tables contradict themselves (which a test excludes).
//
// The program checks the machine first and then finds the call by binary
// search over ranges of numbers. It decides unconditional calls from the
// number alone, so that the kernel (5.11 and later) caches their verdict and
// runs no filter for them at all.
func Compile(o Options) (Program, error) {
	m, err := machineFor(o.Arch)
	if err != nil {
		return nil, err
	}
	all, err := rules(o.Mounts, o.Shared)
	if err != nil {
		return nil, err
	}
	p := Program{
		{Code: opLoad, K: offArch},
		{Code: opJEQ, JT: 1, K: m.audit},
		{Code: opRet, K: retKillProcess},
		{Code: opLoad, K: offNr},
	}
	p = append(p, search(segments(m, all, o.Listener))...)
	if len(p) > MaxInstructions {
		return nil, errors.New("seccomp: the filter is too long for the kernel")
	}
	return p, nil
}

func machineFor(arch string) (machine, error) {
	arch = cmp.Or(arch, runtime.GOARCH)
	for _, m := range machines {
		if m.name == arch {
			return m, nil
		}
	}
	return machine{}, fmt.Errorf("seccomp: no policy for machine %q", arch)
}

// segment is a range of numbers, from first up to the next segment's first,
// with the code that decides about them.
type segment struct {
	first uint32
	code  []Instruction
}

// segments covers every 32-bit number.
func segments(m machine, all map[string]rule, listener bool) []segment {
	var out []segment
	add := func(first uint32, r rule) {
		code := leaf(r, listener)
		if n := len(out); n == 0 || !slices.Equal(out[n-1].code, code) {
			out = append(out, segment{first, code})
		}
	}
	unknown := rule{verdict: absent}
	for nr, name := range m.calls {
		r, ok := all[name]
		if !ok {
			r = unknown
		}
		add(uint32(nr), r)
	}
	add(uint32(len(m.calls)), unknown)
	if m.x32 {
		// The bit that marks an x32 call. -1 is no call: it is what a tracer
		// writes to skip one.
		out = append(out, segment{x32Bit, []Instruction{{Code: opRet, K: retKillProcess}}})
		add(0xffffffff, unknown)
	}
	return out
}

const x32Bit = 0x40000000

// search is a binary search over the segments, each half laid out behind the
// other, with the segments' own code at the leaves.
func search(s []segment) []Instruction {
	if len(s) == 1 {
		return s[0].code
	}
	middle := len(s) / 2
	low, high := search(s[:middle]), search(s[middle:])
	var out []Instruction
	if n := len(low); n <= 255 {
		out = append(out, Instruction{Code: opJGE, JT: uint8(n), K: s[middle].first})
	} else { // conditional jumps reach 255 instructions
		out = append(out,
			Instruction{Code: opJGE, JF: 1, K: s[middle].first},
			Instruction{Code: opJump, K: uint32(n)})
	}
	return slices.Concat(out, low, high)
}

// leaf is the code that decides about one call.
func leaf(r rule, listener bool) []Instruction {
	var out []Instruction
	for _, c := range r.checks {
		code := checked(c, result(c.otherwise, listener))
		if c.at != nil { // at most 255 instructions, which a conditional jump reaches
			out = append(out, Instruction{Code: opLoad, K: offArgs + 8*uint32(c.at.arg)}, Instruction{Code: opJEQ, JF: uint8(len(code)), K: c.at.is})
		}
		out = append(out, code...)
	}
	return append(out, Instruction{Code: opRet, K: result(r.verdict, listener)})
}

// checked falls through when the condition holds and returns otherwise.
func checked(c check, otherwise uint32) []Instruction {
	half := uint32(0)
	if c.high {
		half = 4
	}
	out := []Instruction{{Code: opLoad, K: offArgs + 8*uint32(c.arg) + half}}
	if c.mask != 0 {
		out = append(out, Instruction{Code: opAnd, K: c.mask})
	}
	return append(out, compare(c, otherwise)...)
}

// compare falls through when the condition holds and returns otherwise.
func compare(c check, otherwise uint32) []Instruction {
	values, hit, miss := c.in, 1, 0 // a hit jumps over the return
	if c.in == nil {
		values, hit, miss = c.notIn, 0, 1 // a hit jumps to it
	}
	var out []Instruction
	for i, v := range values {
		rest := len(values) - 1 - i
		jump := Instruction{Code: opJEQ, JT: uint8(rest + hit), K: v}
		if rest == 0 {
			jump.JF = uint8(miss)
		}
		out = append(out, jump)
	}
	return append(out, Instruction{Code: opRet, K: otherwise})
}

// result is the filter's return value for a verdict.
func result(v verdict, listener bool) uint32 {
	switch v &^ 0xffff {
	case allow:
		return retAllow
	case fail:
		return retErrno | uint32(v&0xffff)
	}
	switch {
	case listener:
		return retUserNotif
	case v == kill:
		return retKillProcess
	}
	return retErrno | ePERM
}
