//go:build linux

package spawn

import (
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"
)

// Setsid makes the process the leader of a new session.
func (p *Program) Setsid() { p.Call("new session", unix.SYS_SETSID) }

// Setresgid gives the process one group id, and no supplementary groups.
// It must come before Setresuid.
func (p *Program) Setresgid(gid int) {
	p.Call("drop groups", unix.SYS_SETGROUPS, 0, nil)
	p.Call("set group", unix.SYS_SETRESGID, gid, gid, gid)
}

// Setresuid gives the process one user id.
func (p *Program) Setresuid(uid int) {
	p.Call("set user", unix.SYS_SETRESUID, uid, uid, uid)
}

// Rlimit sets the soft and the hard limit of a resource.
func (p *Program) Rlimit(resource int, value uint64) {
	limit := make([]byte, 16)
	binary.NativeEndian.PutUint64(limit, value)
	binary.NativeEndian.PutUint64(limit[8:], value)
	p.Call("set resource limit", unix.SYS_PRLIMIT64, 0, resource, limit, nil)
}

// Chdir changes the working directory.
func (p *Program) Chdir(path string) { p.Call("change directory", unix.SYS_CHDIR, path) }

// Dup2 makes descriptor to a copy of from. The copy survives the exec.
func (p *Program) Dup2(from, to int) {
	if from == to {
		p.Call("keep descriptor", unix.SYS_FCNTL, from, unix.F_SETFD, 0)
		return
	}
	p.Call("duplicate descriptor", unix.SYS_DUP3, from, to, 0)
}

// CloseOnExecFrom marks every descriptor from low on to be closed by the exec.
func (p *Program) CloseOnExecFrom(low int) {
	p.Call("mark descriptors", unix.SYS_CLOSE_RANGE, low, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// lastCapability is the highest capability number of any kernel we know of,
// with room for more; dropping one that does not exist is ignored.
const lastCapability = 47

// DropBounding removes every capability but the given ones from the bounding
// set, so that no exec can gain one.
func (p *Program) DropBounding(keep ...int) {
	var kept uint64
	for _, c := range keep {
		kept |= 1 << c
	}
	for c := range lastCapability + 1 {
		if kept&(1<<c) == 0 {
			p.Optional("drop capability", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
	}
}

// ClearCapabilities empties the effective, permitted, inheritable and ambient
// sets.
func (p *Program) ClearCapabilities() {
	p.Optional("clear ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	p.SetCapabilities(0, 0)
}

// SetCapabilities sets the effective and permitted sets to one mask, and the
// inheritable set to the other.
func (p *Program) SetCapabilities(mask, inheritable uint64) {
	header := make([]byte, 8)
	binary.NativeEndian.PutUint32(header, unix.LINUX_CAPABILITY_VERSION_3)
	data := make([]byte, 24)
	for i := range 2 {
		binary.NativeEndian.PutUint32(data[12*i:], uint32(mask>>(32*i)))          //nolint:gosec // the half is meant
		binary.NativeEndian.PutUint32(data[12*i+4:], uint32(mask>>(32*i)))        //nolint:gosec // the half is meant
		binary.NativeEndian.PutUint32(data[12*i+8:], uint32(inheritable>>(32*i))) //nolint:gosec // the half is meant
	}
	p.Call("set capabilities", unix.SYS_CAPSET, header, data)
}

// NoNewPrivs makes set-user-id programs harmless from here on.
func (p *Program) NoNewPrivs() {
	p.Call("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// resetSignals makes every signal do again what it does by default. The child
// has copies of our handlers, which are code of the Go runtime. (An exec would
// do the same, but too late: see UnblockSignals.)
func (p *Program) resetSignals() {
	byDefault := make([]byte, 32) // struct sigaction
	for signal := 1; signal <= 64; signal++ {
		if signal != int(unix.SIGKILL) && signal != int(unix.SIGSTOP) {
			p.Call("reset signals", unix.SYS_RT_SIGACTION, signal, byDefault, nil, 8)
		}
	}
}

// UnblockSignals empties the signal mask. It belongs directly before the exec:
// the process starts with every signal blocked.
func (p *Program) UnblockSignals() {
	p.Call("unblock signals", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, make([]byte, 8), nil, 8)
}

// Exec replaces the process by a program. It must be the last step.
func (p *Program) Exec(path string, argv, env []string) {
	p.Call("exec", unix.SYS_EXECVE, path, argv, env)
}

// ExecFD replaces the process by the program behind a descriptor. It must be
// the last step.
func (p *Program) ExecFD(fd int, argv, env []string) {
	p.Call("exec", unix.SYS_EXECVEAT, fd, "", argv, env, unix.AT_EMPTY_PATH)
}

// SendDescriptors sends descriptors over a unix socket, with one byte of data
// that says how many.
func (p *Program) SendDescriptors(socket int, fds []Cell) {
	control := make([]byte, unix.CmsgSpace(4*len(fds))+8) // CellAt writes eight bytes
	binary.NativeEndian.PutUint64(control, uint64(unix.CmsgLen(4*len(fds))))
	binary.NativeEndian.PutUint32(control[8:], unix.SOL_SOCKET)
	binary.NativeEndian.PutUint32(control[12:], unix.SCM_RIGHTS)
	for i, fd := range fds {
		p.Call("copy descriptor", unix.SYS_FCNTL, fd.Ref(), unix.F_DUPFD_CLOEXEC, 0)
		p.SaveTo(p.CellAt(control, unix.CmsgLen(0)+4*i))
	}
	iov := make([]byte, 16)
	binary.NativeEndian.PutUint64(iov, uint64(p.Pointer([]byte{byte(len(fds))})))
	binary.NativeEndian.PutUint64(iov[8:], 1)
	header := make([]byte, 56) // struct msghdr
	binary.NativeEndian.PutUint64(header[16:], uint64(p.Pointer(iov)))
	binary.NativeEndian.PutUint64(header[24:], 1)
	binary.NativeEndian.PutUint64(header[32:], uint64(p.Pointer(control)))
	binary.NativeEndian.PutUint64(header[40:], uint64(unix.CmsgSpace(4*len(fds))))
	p.Positive("send descriptors", unix.SYS_SENDMSG, socket, header, unix.MSG_NOSIGNAL)
}
