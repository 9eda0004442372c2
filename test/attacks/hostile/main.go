// Command hostile takes the agent's place in a sandbox and breaks every rule of
// the protocol, one at a time. It is what a guest that has taken over the agent
// could do. Which rule is written into the program before it is started, in
// place of the mode's placeholder.
package main

import (
	"encoding/binary"
	"io"
	"os"
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
	send(wire.KindHello, 0, string(wire.Encode(&wire.Hello{Version: wire.Version, Agent: "\x1b[2Jhostile"})))
}

// started, exited and done are what an honest agent says.
var (
	started = string(wire.Encode(&wire.Event{Kind: wire.EventStarted, PID: 7}))
	exited  = string(wire.Encode(&wire.Event{Kind: wire.EventExited, Exit: &wire.Exit{WallNS: 1, CPUNS: 1}}))
	done    = string(wire.Encode(&wire.Outcome{}))
)

// violations answer the request for a program. Each is given its channel.
var violations = map[string]func(channel uint32){
	"length-max":   func(c uint32) { raw(1<<32-1, 3, c, "x") },
	"length-2g":    func(c uint32) { raw(1<<31, 6, c, "x") },
	"empty-data":   func(c uint32) { raw(0, 3, c, "") },
	"truncated":    func(c uint32) { raw(1000, 6, c, "half"); _ = syscall.Close(connection) },
	"unknown-kind": func(c uint32) { raw(2, 99, c, "{}") },
	"host-kind":    func(c uint32) { raw(2, 2, c, "{}") },
	"no-channel":   func(uint32) { send(wire.KindEvent, 77, started) },
	"second-hello": func(uint32) { hello() },
	"endless-list": func(c uint32) {
		send(wire.KindEvent, c, "\x05files\x00\x00\xff\xff\xff\xff\x0f"+strings.Repeat("\x00", 60_000))
	},
	"no-message":    func(c uint32) { send(wire.KindClose, c, "\x00\xff") },
	"unknown-field": func(c uint32) { send(wire.KindClose, c, done+"\x01") },
	"exit-first":    func(c uint32) { send(wire.KindEvent, c, exited) },
	"exit-twice": func(c uint32) {
		send(wire.KindEvent, c, started)
		send(wire.KindEvent, c, exited)
		send(wire.KindEvent, c, exited)
	},
	"exit-999": func(c uint32) {
		send(wire.KindEvent, c, started)
		send(wire.KindEvent, c, string(wire.Encode(&wire.Event{Kind: wire.EventExited, Exit: &wire.Exit{Code: 999}})))
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
		send(wire.KindEvent, c, string(wire.Encode(&wire.Event{
			Kind: wire.EventFiles, Files: []wire.FileEntry{{Path: "../../etc/passwd", Type: wire.TypeFile, Size: 1}},
		})))
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
		send(wire.KindClose, c, done)
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
		if wire.Decode(f.Payload, &req) != nil {
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
		send(wire.KindClose, channel, moved(req.File.Size))
	case wire.OpPut:
		send(wire.KindClose, channel, moved(int64(len(req.Put.Files))))
	default:
		send(wire.KindClose, channel, done)
	}
}

func moved(n int64) string { return string(wire.Encode(&wire.Outcome{Size: n})) }

type reader struct{}

func (reader) Read(p []byte) (int, error) {
	n, err := syscall.Read(connection, p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}
