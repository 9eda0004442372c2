package zygote

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"syscall"
	"time"
)

// # Protocol
//
// The host and a zygote exchange packets on descriptor FD of the zygote, a
// SOCK_SEQPACKET socket. The first, to the zygote, is a Setup, in JSON. The zygote loads
// its modules and answers, in JSON, with one of
//
//	{"loaded": true, "calls": [names of the calls that it and its children make]}
//	{"unfit": "why it cannot be forked"}
//	{"failed": "why it could not load its modules"}
//
// From then on packets are words of 64 bits, in the machine's byte order. For each
// child the host sends
//
//	0, child
//
// where child is a number above 0 that the host has chosen, and with it these
// descriptors: the pidfd of the machine's first process; the child's standard input, output
// and error; and as many files as Confinement.Joins says, to each of which "0" is to be
// written to join the machine's cgroup. The zygote and the child answer
//
//	Born, child, pid            it was born, with that number in the zygote's namespace
//	Failed, child, call, -errno it was not, or ended: call is an index into calls, or 0
//	Ready, child, pid           it is confined and waits, with that number in its own namespace
//	Ended, pid, status, user seconds, microseconds, system seconds, microseconds
//
// Ready comes from the child, with the listener of its filter where Filter.Listens says
// so; the others come from the zygote, but for the Failed of a child that cannot be
// confined. Ended says how a child ended: pid is its number in the zygote's
// namespace, status is as of wait(2), the times are of its struct rusage.

// FD is the zygote's end of the connection.
const FD = 3

// The first words of packets from a zygote and its children.
const (
	Born = iota + 1
	Failed
	Ready
	Ended
)

// protocolFile is the module by which the inner side has the constants from here.
const protocolFile = "pinfold_protocol.py"

func protocolModule() []byte {
	return fmt.Appendf(nil, "# Constants of package zygote (protocol.go).\nFD = %d\nBORN, FAILED, READY, ENDED = %d, %d, %d, %d\n", FD, Born, Failed, Ready, Ended)
}

// packetWords is how many words the packets have.
var packetWords = map[int64]int{Born: 3, Failed: 4, Ready: 3, Ended: 7}

// maxPacket bounds a packet from a zygote, in bytes.
const maxPacket = 4 << 10

// Setup is the first packet to a zygote.
type Setup struct {
	Setup       json.RawMessage `json:"setup"` // for the program, as it is: see Modules
	Confinement Confinement     `json:"confinement"`
	Code        [3]Hex          `json:"code"` // machine code of package walker: Walk, Alloc, Free
}

// Modules is the Setup.Setup of an interpreter.
type Modules struct {
	Modules []string `json:"modules"`
}

// Hex is bytes that are written in hexadecimal.
type Hex []byte

// MarshalText implements encoding.TextMarshaler.
func (h Hex) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h), nil }

// Packet is a packet from a zygote or a child of it.
type Packet struct {
	// The answer to the Setup. Kind is 0.
	Loaded bool     `json:"loaded"`
	Calls  []string `json:"calls"`
	Unfit  string   `json:"unfit"`
	Failed string   `json:"failed"`

	Kind  int64         `json:"-"` // Born, Failed, Ready or Ended
	Child int64         `json:"-"` // the host's number of the child; not in Ended
	PID   int64         `json:"-"` // of Born, Ready and Ended
	Call  int64         `json:"-"` // of Failed
	Errno syscall.Errno `json:"-"` // of Failed
	Exit  Exit          `json:"-"` // of Ended
}

// Exit is how a child ended. Signal is 0 when it exited.
type Exit struct {
	Code, Signal int
	CPU          time.Duration // since the fork
}

// decode reads a packet. ok is false where there is no such packet.
func decode(b []byte) (p Packet, ok bool) {
	if len(b) > 0 && b[0] == '{' {
		return p, json.Unmarshal(b, &p) == nil
	}
	w := make([]int64, len(b)/8)
	for i := range w {
		w[i] = int64(binary.NativeEndian.Uint64(b[8*i:])) //nolint:gosec // as it was written
	}
	if len(w) == 0 || len(b)%8 != 0 || packetWords[w[0]] != len(w) || w[1] <= 0 {
		return p, false
	}
	p.Kind = w[0]
	switch p.Kind {
	case Born, Ready:
		p.Child, p.PID = w[1], w[2]
	case Failed:
		p.Child, p.Call, p.Errno = w[1], w[2], syscall.Errno(max(w[3], -w[3])) //nolint:gosec // small, or nonsense of its own
	case Ended:
		p.PID, p.Exit = w[1], exitOf(w[2], w[3:])
	}
	return p, true
}

// exitOf is how a child ended: a status of wait(2), and the times of a struct rusage.
func exitOf(status int64, times []int64) Exit {
	s := syscall.WaitStatus(status) //nolint:gosec // as wait(2) gives it
	e := Exit{CPU: time.Duration(times[0]+times[2])*time.Second + time.Duration(times[1]+times[3])*time.Microsecond}
	if s.Signaled() {
		e.Signal = int(s.Signal())
	} else {
		e.Code = s.ExitStatus()
	}
	return e
}

// Request is the packet that asks for a child.
func Request(child int64) []byte {
	return binary.NativeEndian.AppendUint64(make([]byte, 8, 16), uint64(child)) //nolint:gosec // above 0
}
