//go:build linux

package native

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
)

// The first words of packets from a zygote and its forks, see zygote.go.
const (
	packetBorn = iota + 1
	packetFailed
	packetReady
	packetEnded
)

// packetWords is how many words the packets have.
var packetWords = map[int64]int{packetBorn: 3, packetFailed: 4, packetReady: 3, packetEnded: 7}

// packet is a packet from the zygote or a fork.
type packet struct {
	Loaded bool     `json:"loaded"`
	Calls  []string `json:"calls"`
	Unfit  string   `json:"unfit"`
	Failed string   `json:"failed"`

	Born  int64 `json:"-"` // the fork that was born, with PID
	Fork  int64 `json:"-"` // the fork that failed, with call and errno
	Ready int64 `json:"-"` // the fork that is ready, with PID and fds
	PID   int64 `json:"-"`
	call  int64
	errno unix.Errno

	Exit int64 `json:"-"` // who has ended, with exit
	exit driver.ChildExit

	fds []int
}

// decodePacket understands a packet. It returns its descriptors in any case.
func decodePacket(b []byte, fds []int) (s packet, ok bool) {
	s.fds = fds
	if len(b) > 0 && b[0] == '{' {
		return s, json.Unmarshal(b, &s) == nil
	}
	w := make([]int64, len(b)/8)
	for i := range w {
		w[i] = int64(binary.NativeEndian.Uint64(b[8*i:])) //nolint:gosec // as it was written
	}
	if len(w) == 0 || len(b)%8 != 0 || packetWords[w[0]] != len(w) || w[1] <= 0 {
		return s, false
	}
	switch w[0] {
	case packetBorn:
		s.Born, s.PID = w[1], w[2]
	case packetFailed:
		s.Fork, s.call, s.errno = w[1], w[2], unix.Errno(max(w[3], -w[3])) //nolint:gosec // small, or nonsense of its own
	case packetReady:
		s.Ready, s.PID = w[1], w[2]
	case packetEnded:
		s.Exit, s.exit = w[1], exitOf(w[2], w[3:])
	}
	return s, true
}

// exitOf is how a fork ended: a status of wait(2), and the times of a struct rusage.
func exitOf(status int64, times []int64) driver.ChildExit {
	s := unix.WaitStatus(status) //nolint:gosec // as wait(2) gives it
	e := driver.ChildExit{CPU: time.Duration(times[0]+times[2])*time.Second + time.Duration(times[1]+times[3])*time.Microsecond}
	if s.Signaled() {
		e.Signal = int(s.Signal())
	} else {
		e.Code = s.ExitStatus()
	}
	return e
}

// encodePacket is a packet for a zygote.
func encodePacket(w ...int64) []byte {
	b := make([]byte, 0, 8*len(w))
	for _, v := range w {
		b = binary.NativeEndian.AppendUint64(b, uint64(v)) //nolint:gosec // as it is read
	}
	return b
}

// rights returns the descriptors of a message.
func rights(control []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		if err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}
