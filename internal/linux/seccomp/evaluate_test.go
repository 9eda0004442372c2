package seccomp

import (
	"encoding/binary"
	"fmt"
)

// callData is the kernel's struct seccomp_data.
type callData struct {
	nr   uint32
	arch uint32
	args [6]uint64
}

func (d callData) bytes() []byte {
	b := binary.LittleEndian.AppendUint32(nil, d.nr)
	b = binary.LittleEndian.AppendUint32(b, d.arch)
	b = binary.LittleEndian.AppendUint64(b, 0xdead_0000_beef) // instruction pointer
	for _, a := range d.args {
		b = binary.LittleEndian.AppendUint64(b, a)
	}
	return b
}

// evaluate runs a filter as the kernel does and counts the instructions. It
// fails on everything that the kernel would refuse to load.
func evaluate(p Program, d callData) (result uint32, steps int, err error) {
	data := d.bytes()
	var acc uint32
	for pc := 0; pc < len(p); pc++ {
		steps++
		in := p[pc]
		jump := func(cond bool) {
			if cond {
				pc += int(in.JT)
			} else {
				pc += int(in.JF)
			}
		}
		switch in.Code {
		case opLoad:
			if in.K%4 != 0 || int(in.K)+4 > len(data) {
				return 0, steps, fmt.Errorf("instruction %d loads from %d", pc, in.K)
			}
			acc = binary.LittleEndian.Uint32(data[in.K:])
		case opAnd:
			acc &= in.K
		case opJump:
			pc += int(in.K)
		case opJEQ:
			jump(acc == in.K)
		case opJGE:
			jump(acc >= in.K)
		case opRet:
			return in.K, steps, nil
		default:
			return 0, steps, fmt.Errorf("instruction %d has code %#x", pc, in.Code)
		}
	}
	return 0, steps, fmt.Errorf("ran past the end")
}

// expect says what the tables say about a call, without the compiler.
func expect(m machine, all map[string]rule, d callData, listener bool) uint32 {
	if d.arch != m.audit {
		return retKillProcess
	}
	if m.x32 && d.nr&x32Bit != 0 && d.nr != 0xffffffff {
		return retKillProcess
	}
	if uint64(d.nr) >= uint64(len(m.calls)) {
		return retErrno | eNOSYS
	}
	r, ok := all[m.calls[d.nr]]
	if !ok {
		return retErrno | eNOSYS
	}
	for _, c := range r.checks {
		if c.at != nil && uint32(d.args[c.at.arg]) != c.at.is {
			continue
		}
		if !c.holds(uint32(d.args[c.arg])) {
			return result(c.otherwise, listener)
		}
	}
	return result(r.verdict, listener)
}

func (c check) holds(low uint32) bool {
	if c.mask != 0 {
		low &= c.mask
	}
	for _, v := range c.in {
		if low == v {
			return true
		}
	}
	if c.in != nil {
		return false
	}
	for _, v := range c.notIn {
		if low == v {
			return false
		}
	}
	return true
}

// describe writes a filter result as people say it.
func describe(r uint32) string {
	switch r & 0xffff0000 {
	case retKillProcess:
		return "KILL"
	case retUserNotif:
		return "NOTIFY"
	case retAllow:
		return "allow"
	case retErrno:
		if r == retErrno {
			return "nothing, success"
		}
		names := map[uint32]string{
			ePERM: "EPERM", eSRCH: "ESRCH", eNOMEM: "ENOMEM", eOPNOTSUPP: "EOPNOTSUPP", eINVAL: "EINVAL", eNOSYS: "ENOSYS", eNOPROTOOPT: "ENOPROTOOPT",
			ePROTONOSUPPORT: "EPROTONOSUPPORT", eAFNOSUPPORT: "EAFNOSUPPORT",
		}
		if n := names[r&0xffff]; n != "" {
			return n
		}
	}
	return fmt.Sprintf("%#x", r)
}
