// Command hostile takes the agent's place in a sandbox and breaks every rule of
// the protocol, one at a time. It is what a guest that has taken over the agent
// could do. Which rule is written into the program before it is started, in
// place of the mode's placeholder.
package main

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pinfold/internal/wire"
)

// mode is replaced in the executable. It must be a variable of this exact length.
var mode = "@@PINFOLD-HOSTILE-MODE@@................"

// connection is where the agent finds the host.
const connection = 3

func send(kind wire.Kind, channel uint32, payload string) {
	_, _ = syscall.Write(connection, wire.AppendFrame(nil, kind, channel, []byte(payload)))
}

// raw sends a header that says what it likes.
func raw(length uint32, kind byte, channel uint32, payload string) {
	b := binary.BigEndian.AppendUint32(nil, length)
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, channel)
	_, _ = syscall.Write(connection, append(b, payload...))
}

func hello() {
	b, _ := json.Marshal(wire.Hello{Version: wire.Version, Agent: "\x1b[2Jhostile"})
	send(wire.KindHello, 0, string(b))
}

// started and exited are what an honest agent says.
const (
	started = `{"kind":"started","pid":7}`
	exited  = `{"kind":"exited","exit":{"code":0,"signal":0,"wall_ns":1,"cpu_ns":1}}`
)

// violations answer the request for a program. Each is given its channel.
var violations = map[string]func(channel uint32){
	"length-max":    func(c uint32) { raw(1<<32-1, 3, c, "x") },
	"length-2g":     func(c uint32) { raw(1<<31, 6, c, "x") },
	"empty-data":    func(c uint32) { raw(0, 3, c, "") },
	"truncated":     func(c uint32) { raw(1000, 6, c, "half"); _ = syscall.Close(connection) },
	"unknown-kind":  func(c uint32) { raw(2, 99, c, "{}") },
	"host-kind":     func(c uint32) { raw(2, 2, c, "{}") },
	"no-channel":    func(uint32) { send(wire.KindEvent, 77, started) },
	"second-hello":  func(uint32) { hello() },
	"deep":          func(c uint32) { send(wire.KindEvent, c, strings.Repeat("[", 60_000)) },
	"not-json":      func(c uint32) { send(wire.KindClose, c, "\x00\xff") },
	"unknown-field": func(c uint32) { send(wire.KindClose, c, `{"root":true}`) },
	"exit-first":    func(c uint32) { send(wire.KindEvent, c, exited) },
	"exit-twice": func(c uint32) {
		send(wire.KindEvent, c, started)
		send(wire.KindEvent, c, exited)
		send(wire.KindEvent, c, exited)
	},
	"exit-999": func(c uint32) {
		send(wire.KindEvent, c, started)
		send(wire.KindEvent, c, strings.Replace(exited, `"code":0`, `"code":999`, 1))
	},
	"overrun": func(c uint32) {
		send(wire.KindEvent, c, started)
		for range 100 {
			send(wire.KindData, c, "\x01"+strings.Repeat("x", 60_000))
		}
	},
	"grant":   func(c uint32) { raw(5, 5, c, "\x00\xff\xff\xff\xff") },
	"stream9": func(c uint32) { send(wire.KindData, c, "\x09x") },
	"events": func(c uint32) {
		send(wire.KindEvent, c, started)
		for range 100_000 {
			send(wire.KindEvent, c, started)
		}
	},
	"files": func(c uint32) {
		send(wire.KindEvent, c, `{"kind":"files","files":[{"path":"../../etc/passwd","type":"file","size":1}]}`)
	},
	"rights": func(c uint32) {
		fds := make([]int, 253)
		for i := range fds {
			fds[i], _ = syscall.Dup(0)
		}
		_ = syscall.Sendmsg(connection, []byte{0}, syscall.UnixRights(fds...), nil, 0)
		raw(1<<32-1, 3, c, "")
	},
	"silence": func(uint32) { time.Sleep(time.Hour) },
	"gone":    func(uint32) { os.Exit(0) },
	"claim":   func(c uint32) { send(wire.KindEvent, c, started); time.Sleep(time.Hour) },
	"stuck": func(c uint32) { // says that the program has ended, and then nothing
		send(wire.KindEvent, c, started)
		send(wire.KindEvent, c, exited)
		send(wire.KindClose, c, "{}")
		time.Sleep(time.Hour)
	},
	"bomb": func(c uint32) {
		send(wire.KindEvent, c, started)
		for {
			pid, _, _ := syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
			_ = pid
		}
	},
	"escape": escape,
}

func main() {
	which := strings.TrimRight(strings.TrimPrefix(mode, "@@"), ".")
	if which == "mute" {
		time.Sleep(time.Hour)
	}
	if which == "talk-first" {
		raw(2, 8, 1, "{}")
	}
	hello()
	frames := wire.NewReader(reader{}, wire.Host)
	for {
		f, err := frames.Next()
		if err != nil {
			os.Exit(0)
		}
		if f.Kind != wire.KindOpen {
			continue
		}
		var req wire.Request
		if json.Unmarshal(f.Payload, &req) != nil {
			os.Exit(1)
		}
		serve(which, f.Channel, req)
	}
}

// serve is obedient until the program is to be started.
func serve(which string, channel uint32, req wire.Request) {
	switch req.Op {
	case wire.OpStart:
		violations[which](channel)
	case wire.OpWrite:
		send(wire.KindClose, channel, `{"size":`+number(req.File.Size)+`}`)
	case wire.OpPut:
		send(wire.KindClose, channel, `{"size":`+number(int64(len(req.Put.Files)))+`}`)
	default:
		send(wire.KindClose, channel, `{}`)
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

type reader struct{}

func (reader) Read(p []byte) (int, error) {
	n, err := syscall.Read(connection, p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}
