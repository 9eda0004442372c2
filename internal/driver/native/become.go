//go:build linux

package native

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/initstub"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/wire"
)

// become ends the table: the process becomes the agent, or, where the program
// is forked into it, the init stub, which waits until the agent is needed.
func (n *initSpec) become(p *spawn.Program) {
	if n.initStub <= 0 {
		p.CloseOnExecFrom(wire.ConnFD)
		p.Dup2(n.socket, wire.ConnFD)
		thrift(p)
		p.UnblockSignals()
		p.ExecFD(n.agent, append(slices.Clone(agentArgs), n.agentArgs...), agentEnvironment)
		return
	}
	// Whatever their numbers are here, none is in another's place.
	program := p.Result("copy descriptor", unix.SYS_FCNTL, n.initStub, unix.F_DUPFD_CLOEXEC, initstub.AgentFD+1)
	agent := p.Result("copy descriptor", unix.SYS_FCNTL, n.agent, unix.F_DUPFD_CLOEXEC, initstub.AgentFD+1)
	p.CloseOnExecFrom(initstub.ConnFD)
	p.Dup2(n.socket, initstub.ConnFD)
	p.Call("duplicate descriptor", unix.SYS_DUP3, agent.Ref(), initstub.AgentFD, 0)
	thrift(p)
	ignore := make([]byte, 32) // struct sigaction
	binary.NativeEndian.PutUint64(ignore, 1)
	p.Call("let orphans go", unix.SYS_RT_SIGACTION, int(unix.SIGCHLD), ignore, nil, 8)
	p.UnblockSignals()
	p.Call("exec", unix.SYS_EXECVEAT, program.Ref(), "", agentArgs, agentEnvironment, unix.AT_EMPTY_PATH)
}

// agentArgs are the agent's arguments.
var agentArgs = []string{"pinfold-agent"}

// agentEnvironment tells the Go runtime that the agent has use for one CPU only
// and none for a profile of its memory, for which it would soon look up its
// own stack.
var agentEnvironment = []string{"GOMAXPROCS=1", "GODEBUG=memprofilerate=0"}

// thrift makes the agent's start cheaper, which is most of what it ever does.
//
// The Go runtime's monitor wakes up every 20 µs while the agent works: with
// more slack for timers, every millisecond. The runtime looks for a CPU quota
// in /proc/self/cgroup and mountinfo, which takes it a fifth of its start:
// without a descriptor to spare it cannot. The agent raises that limit again
// before it does anything else. Neither is worth a failure.
func thrift(p *spawn.Program) {
	p.Optional("set timer slack", unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1_000_000, 0, 0, 0)
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		limit := binary.NativeEndian.AppendUint64(nil, agentDescriptors)
		limit = binary.NativeEndian.AppendUint64(limit, files.Max)
		p.Optional("limit descriptors", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, limit, nil)
	}
}

// agentDescriptors are those that the agent starts with: /dev/null three times
// and its connection.
const agentDescriptors = 4
