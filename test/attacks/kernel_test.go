//go:build linux

package attacks

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/sandbox"
)

// callNumbers are the system calls that cases make by number. Those that one
// architecture lacks are -1 there and answer ENOSYS everywhere.
var callNumbers = map[string]int{
	"ptrace": unix.SYS_PTRACE, "process_vm_readv": unix.SYS_PROCESS_VM_READV, "process_vm_writev": unix.SYS_PROCESS_VM_WRITEV,
	"process_madvise": unix.SYS_PROCESS_MADVISE, "process_mrelease": unix.SYS_PROCESS_MRELEASE, "kcmp": unix.SYS_KCMP, "pidfd_getfd": unix.SYS_PIDFD_GETFD,
	"pidfd_open": unix.SYS_PIDFD_OPEN, "pidfd_send_signal": unix.SYS_PIDFD_SEND_SIGNAL, "tgkill": unix.SYS_TGKILL,
	"prlimit64": unix.SYS_PRLIMIT64, "sched_setaffinity": unix.SYS_SCHED_SETAFFINITY, "sched_setscheduler": unix.SYS_SCHED_SETSCHEDULER, "setpriority": unix.SYS_SETPRIORITY,
	"unshare": unix.SYS_UNSHARE, "setns": unix.SYS_SETNS, "clone3": unix.SYS_CLONE3, "clone": unix.SYS_CLONE,
	"mount": unix.SYS_MOUNT, "umount2": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT, "chroot": unix.SYS_CHROOT, "fsopen": unix.SYS_FSOPEN,
	"fsconfig": unix.SYS_FSCONFIG, "fsmount": unix.SYS_FSMOUNT, "fspick": unix.SYS_FSPICK, "move_mount": unix.SYS_MOVE_MOUNT, "open_tree": unix.SYS_OPEN_TREE,
	"mount_setattr": unix.SYS_MOUNT_SETATTR, "bpf": unix.SYS_BPF, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "userfaultfd": unix.SYS_USERFAULTFD,
	"add_key": unix.SYS_ADD_KEY, "request_key": unix.SYS_REQUEST_KEY, "keyctl": unix.SYS_KEYCTL, "name_to_handle_at": unix.SYS_NAME_TO_HANDLE_AT,
	"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT, "fanotify_init": unix.SYS_FANOTIFY_INIT, "fanotify_mark": unix.SYS_FANOTIFY_MARK, "quotactl": unix.SYS_QUOTACTL,
	"settimeofday": unix.SYS_SETTIMEOFDAY, "clock_settime": unix.SYS_CLOCK_SETTIME, "adjtimex": unix.SYS_ADJTIMEX, "clock_adjtime": unix.SYS_CLOCK_ADJTIME,
	"syslog": unix.SYS_SYSLOG, "sethostname": unix.SYS_SETHOSTNAME, "setdomainname": unix.SYS_SETDOMAINNAME, "vhangup": unix.SYS_VHANGUP,
	"vmsplice": unix.SYS_VMSPLICE, "memfd_secret": unix.SYS_MEMFD_SECRET, "msgget": unix.SYS_MSGGET, "mq_open": unix.SYS_MQ_OPEN, "mq_unlink": unix.SYS_MQ_UNLINK,
	"io_uring_setup": unix.SYS_IO_URING_SETUP, "io_uring_enter": unix.SYS_IO_URING_ENTER, "io_uring_register": unix.SYS_IO_URING_REGISTER,
	"io_setup": unix.SYS_IO_SETUP, "sync": unix.SYS_SYNC, "statmount": unix.SYS_STATMOUNT, "listmount": unix.SYS_LISTMOUNT, "cachestat": unix.SYS_CACHESTAT,
	"init_module": unix.SYS_INIT_MODULE, "finit_module": unix.SYS_FINIT_MODULE, "delete_module": unix.SYS_DELETE_MODULE,
	"kexec_load": unix.SYS_KEXEC_LOAD, "reboot": unix.SYS_REBOOT, "swapon": unix.SYS_SWAPON, "swapoff": unix.SYS_SWAPOFF, "acct": unix.SYS_ACCT,
	"mbind": unix.SYS_MBIND, "move_pages": unix.SYS_MOVE_PAGES, "remap_file_pages": unix.SYS_REMAP_FILE_PAGES, "seccomp": unix.SYS_SECCOMP, "personality": unix.SYS_PERSONALITY,
	"prctl": unix.SYS_PRCTL, "socket": unix.SYS_SOCKET, "mseal_": 462, "futex_waitv": unix.SYS_FUTEX_WAITV, "lsm_list_modules": unix.SYS_LSM_LIST_MODULES,
}

func number(name string) int {
	n, ok := callNumbers[name]
	if !ok {
		panic("no number for " + name)
	}
	return n
}

// The calls by how the sandbox answers them.
const (
	callsRefused = `ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd unshare setns
		mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree mount_setattr bpf perf_event_open
		userfaultfd add_key request_key keyctl name_to_handle_at fanotify_init fanotify_mark quotactl settimeofday clock_settime
		adjtimex clock_adjtime syslog sethostname setdomainname vhangup vmsplice memfd_secret msgget mq_open mq_unlink`
	callsAbsent = `io_uring_setup io_uring_enter io_uring_register clone3 io_setup sync statmount listmount cachestat mbind
		move_pages remap_file_pages futex_waitv lsm_list_modules`
	callsKilled = `init_module finit_module delete_module kexec_load reboot swapon swapoff acct open_by_handle_at`
)

// probeCalls makes each call in a process of its own, with arguments that no
// handler accepts: what answers is either the filter or the handler.
func probeCalls() string {
	var b strings.Builder
	for _, n := range strings.Fields(callsRefused + " " + callsAbsent + " " + callsKilled) {
		args := "-1, -1, -1, -1, -1"
		switch n {
		case "ptrace", "kcmp", "process_vm_readv", "process_vm_writev", "keyctl", "reboot":
			args = "-1, -1, 0, 0, 0, 0"
		case "process_mrelease":
			args = "-1, 0"
		}
		fmt.Fprintf(&b, "say(%q, child(lambda: call(%d, %s)))\n", n, number(n), args)
	}
	return b.String()
}

func keCases() []Case {
	amd64 := runtime.GOARCH == "amd64"
	foreign := `
import subprocess
src = r'''
#include <stdio.h>
int main(int c, char **v) { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(c > 1 ? 102 : 20), "b"(1), "c"(0) : "memory"); printf("%d\n", r > 0 || r == -14); return 0; }
'''
open("i.c", "w").write(src); subprocess.run(["gcc", "-o", "i", "i.c"], check=True)
say("getpid32", child(lambda: os.execv("./i", ["i"])) or "ran")
say("socketcall", child(lambda: os.execv("./i", ["i", "s"])) or "ran")
say("x32", child(lambda: call(0x40000000 + 39)))
`
	cases := []Case{
		{
			ID: "KE-05", Title: "new namespaces: unshare, clone, clone3, setns with each flag", Level: User, Severity: Escape, Source: "sandboxed-api",
			Expect: "EPERM; clone3 ENOSYS",
			Attack: Payload{Code: fmt.Sprintf(`
flags = dict(NS=0x20000, CGROUP=0x2000000, UTS=0x4000000, IPC=0x8000000, USER=0x10000000, PID=0x20000000, NET=0x40000000, TIME=0x80)
for n, f in flags.items():
    say("unshare." + n, child(lambda: call(%d, f)))
    if n != "TIME":
        def c():
            r = libc.syscall(%d, f | 17, 0, 0, 0, 0)
            if r == 0: os._exit(0)
            return "ok" if r > 0 else name(ctypes.get_errno())
        say("clone." + n, child(c))
        say("clone_high." + n, child(lambda: call(%d, (f | 17) + (1 << 40), 0, 0, 0, 0)) if not JAIL else "ok")
    say("setns." + n, child(lambda: call(%d, os.open("/proc/self/ns/" + dict(NS="mnt", TIME="time").get(n, n.lower()), os.O_RDONLY), f)))
say("clone3", call(%d, ctypes.create_string_buffer(64), 64))
`, number("unshare"), number("clone"), number("clone"), number("setns"), number("clone3"))},
			Doors: slices.Concat(
				doors("EPERM|ENOSYS", "unshare.NS unshare.CGROUP unshare.UTS unshare.IPC unshare.USER unshare.PID unshare.NET unshare.TIME clone.NS clone.CGROUP clone.UTS clone.IPC clone.USER clone.PID clone.NET"),
				doors("EPERM|ENOSYS|EINVAL", "clone_high.NS clone_high.USER clone_high.NET"),
				doors("EPERM", "setns.NS setns.UTS setns.IPC setns.PID setns.NET setns.CGROUP"),
				[]Door{{"clone3", "ENOSYS", ""}}),
			Control: Control{Without: "the filter", Jail: true},
			Twin:    &Twin{What: "threads and processes", Payload: Payload{Code: "import threading, subprocess\nt = threading.Thread(target=lambda: say('thread', 1)); t.start(); t.join(); print(subprocess.check_output(['echo', 'child']).decode())"}, Want: "thread 1\nchild"},
		},
		{
			ID: "KE-15", Title: "options with which a connection outlives its sandbox, and filters of sockets", Level: User, Severity: HostDoS, Source: "own",
			Expect: "ENOPROTOOPT each",
			Attack: Payload{Code: `
import socket, struct
def option(key, level, number, value): attempt(key, lambda: socket.socket().setsockopt(level, number, value))
option("minttl", 0, 21, 255)
option("source_route", 0, 4, b"\x83\x07\x04\x7f\x00\x00\x02\x01")
option("md5", 6, 14, bytes(8))
option("delay", 6, 37, 1000000)
keep = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
filter = struct.pack("HxxxxxxQ", 1, ctypes.addressof(keep))
option("filter", 1, 26, filter)
option("reuseport_filter", 1, 51, filter)
option("bpf", 1, 50, -1)
`},
			Doors: slices.Concat(doors("ENOPROTOOPT", "minttl filter"),
				[]Door{{"source_route", "ENOPROTOOPT", ""}, {"md5", "ENOPROTOOPT", "EINVAL"}, {"delay", "ENOPROTOOPT", "ok|EPERM"}, {"reuseport_filter", "ENOPROTOOPT", "ok|EINVAL"}, {"bpf", "ENOPROTOOPT", "EBADF|EPERM"}}),
			Control: Control{Without: "the filter", Jail: true},
			Twin: &Twin{What: "the options that servers and clients use", Payload: Payload{Code: `
import socket
s = socket.socket()
for level, number, value in ((1, 2, 1), (1, 9, 1), (1, 15, 1), (1, 13, b"\1\0\0\0\5\0\0\0"), (0, 1, 16), (0, 2, 64), (0, 24, 1), (6, 1, 1), (6, 3, 0), (6, 4, 60), (6, 5, 10), (6, 6, 5), (6, 9, 1), (6, 12, 1), (6, 13, b"reno"), (6, 18, 30000), (6, 23, 5), (6, 25, 1 << 14)):
    s.setsockopt(level, number, value)
socket.socket(socket.AF_INET6).setsockopt(41, 26, 1)
say("ok", 1)`}, Want: "ok"},
		},
		{
			ID: "KE-06", Title: "calls that no program in a sandbox needs, with senseless arguments", Level: User, Severity: Escape, Source: "security.md I-20; amicontained",
			Expect:  "EPERM, ENOSYS or SIGSYS from the filter, never an answer of the handler",
			Attack:  Payload{Code: probeCalls()},
			Doors:   slices.Concat(doors("EPERM", callsRefused), doors("ENOSYS", callsAbsent), doors("SIGSYS", callsKilled)),
			Control: Control{Without: "the filter", Jail: true},
		},
		{
			ID: "KE-07", Title: "a call that kills is named in the result", Level: User, Severity: Integrity, Source: "dify-sandbox #274",
			Expect: "cause syscall, with the call's name",
			Attack: Payload{Code: fmt.Sprintf("call(%d, -1, -1, -1)", number("open_by_handle_at"))},
			Judge: func(t *trial) error {
				if t.result.Cause.Syscall != "open_by_handle_at" {
					return fmt.Errorf("the call is %q", t.result.Cause.Syscall)
				}
				return t.ended(sandbox.StatusFailed, sandbox.CauseSyscall)
			},
			Control: Control{Without: "the filter", Run: func(a *arena) error {
				out, err := a.jail(Payload{Code: fmt.Sprintf("say('call', call(%d, -1, -1, -1))", number("open_by_handle_at"))})
				if err != nil || !strings.Contains(out, "call E") {
					return fmt.Errorf("%q %w", out, err)
				}
				return nil
			}},
		},
		{
			ID: "KE-08", Title: "sockets of every family and type", Level: User, Severity: Escape, Source: "isolate 2.6 (VSOCK), CVE-2026-31431 (ALG)",
			Expect: "only UNIX, INET and INET6 without raw sockets; the rest EAFNOSUPPORT or EPERM",
			Attack: Payload{Code: fmt.Sprintf(`
got = {}
for f in range(0, 47):
    for t in (1, 2, 3, 4, 5, 10):
        r = libc.syscall(%d, f, t, 0)
        if r >= 0: got.setdefault(f, []).append(t); os.close(r)
say("families", ",".join(map(str, sorted(got))))
for n, f in dict(NETLINK=16, PACKET=17, VSOCK=40, KEY=15, ALG=38, BLUETOOTH=31, CAN=29, XDP=44, TIPC=30, SMC=43, RDS=21, NFC=39, KCM=41, QIPCRTR=42, MCTP=45).items():
    say(n, "open" if f in got else "shut")
say("raw", "open" if call(%d, 2, 3, 1) == "ok" else "shut")
say("high", call(%d, (1 << 40) + 16, 3, 0))
say("mptcp", call(%d, 2, 1, 262))
`, number("socket"), number("socket"), number("socket"), number("socket"))},
			Doors:   slices.Concat([]Door{{"families", "1,2,10", ""}, {"high", "EAFNOSUPPORT|EPERM", "ok"}, {"mptcp", "EPROTONOSUPPORT", "ok"}}, doors("shut", "NETLINK PACKET VSOCK KEY ALG BLUETOOTH CAN XDP TIPC SMC RDS NFC KCM QIPCRTR MCTP raw")),
			Control: Control{Without: "the filter", Jail: true},
			Twin:    &Twin{What: "TCP, UDP and unix sockets on loopback", Payload: Payload{Code: loopbackCode}, Want: "tcp hello\nudp hello\nunix hello\nabstract hello"},
		},
		{
			ID: "KE-10", Title: "typing for the user of a terminal (TIOCSTI) and changing its driver", Level: User, Severity: Escape, Source: "CVE-2017-5226; TIOCLINUX",
			Expect: "EPERM on a terminal made inside, also with high bits set in the command",
			Attack: Payload{Code: `
import fcntl, pty
m, s = pty.openpty()
def io(cmd):
    r = libc.ioctl(s, ctypes.c_ulong(cmd), ctypes.create_string_buffer(b"x" + bytes(31)))
    return "ok" if r >= 0 else name(ctypes.get_errno())
say("sti", io(0x5412)); say("sti_high", io(0x100005412)); say("linux", io(0x541c)); say("setd", io(0x5423)); say("cons", io(0x541d))
`},
			Doors:   []Door{{"sti", "EPERM", "ok"}, {"sti_high", "EPERM", "ok"}, {"linux", "EPERM", ""}, {"setd", "EPERM", ""}, {"cons", "EPERM", ""}},
			Control: Control{Without: "the filter", Jail: true},
			Twin:    &Twin{What: "a terminal", Payload: Payload{Code: "import pty, termios, fcntl, struct\nm, s = pty.openpty()\nfcntl.ioctl(s, termios.TIOCSWINSZ, struct.pack('HHHH', 3, 7, 0, 0)); print(os.get_terminal_size(s))\nos.write(s, b'over'); print(os.read(m, 10))"}, Want: "columns=7, lines=3[^$]*over"},
		},
		{
			ID: "KE-11", Title: "undoing the filter or adding to it: listeners, personality, prctl", Level: User, Severity: Escape, Source: "own",
			Expect: "EPERM or EINVAL; one filter before and after on every thread; no_new_privs cannot be unset",
			Attack: Payload{Code: fmt.Sprintf(`
import threading
class Prog(ctypes.Structure): _fields_ = [("n", ctypes.c_ushort), ("p", ctypes.c_void_p)]
rule = ctypes.create_string_buffer(bytes([6, 0, 0, 0, 0, 0, 0xff, 0x7f]))
prog = Prog(1, ctypes.cast(rule, ctypes.c_void_p))
say("listener", child(lambda: call(%d, 1, 8, ctypes.byref(prog))))
say("no_randomize", call(%d, 0x40000)); say("read_implies_exec", call(%d, 0x400000))
say("set_mm", call(%d, 35, 1, 0, 0, 0))
say("core_sched", call(%d, 62, 1, 0, 1, 0))
def f(): say("filters", open("/proc/thread-self/status").read().split("Seccomp_filters:")[1].split()[0])
t = threading.Thread(target=f); t.start(); t.join()
`, number("seccomp"), number("personality"), number("personality"), number("prctl"), number("prctl"))},
			Doors:   []Door{{"listener", "EPERM", "ok"}, {"no_randomize", "EPERM", "ok"}, {"read_implies_exec", "EPERM", "ok"}, {"set_mm", "EINVAL", "ok|EFAULT|EPERM|ENOENT"}, {"core_sched", "EINVAL", "ok|ENODEV"}, {"filters", "1", "0"}},
			Control: Control{Without: "the filter", Jail: true},
			Twin:    &Twin{What: "a filter of its own", Payload: Payload{Code: "say('strict', child(lambda: libc.prctl(22, 1, 0) or os._exit(0)))"}, Want: "strict"},
		},
		{
			ID: "KE-12", Title: "a nested user namespace to mount in", Level: User, Severity: Escape, Source: "most kernel bugs of the last years begin so",
			Expect: "unshare(1) fails; nothing is mounted",
			Attack: Payload{Language: "shell", Code: `unshare -Ur true >/dev/null 2>&1 && echo "user open" || echo "user shut"
unshare -Urm sh -c 'mount -t tmpfs t /mnt' >/dev/null 2>&1 && echo "mount open" || echo "mount shut"`},
			Doors:   doors("shut", "user mount"),
			Control: Control{Without: "the filter", Jail: true},
		},
		{
			ID: "KE-14", Title: "capabilities in any set, through any door", Level: User, Severity: Inside, Source: "posture of gVisor",
			Expect: "all five sets are empty and stay empty",
			Attack: Payload{Code: `
st = open("/proc/self/status").read()
for k in "CapInh CapPrm CapEff CapBnd CapAmb".split(): say(k, st.split(k + ":")[1].split()[0])
attempt("setuid", os.setuid, 0); attempt("setgid", os.setgid, 0); attempt("setgroups", os.setgroups, [0]); attempt("chroot", os.chroot, "/")
say("ambient", call(%d, 47, 2, 0, 0, 0))
`},
			Doors:   append(doors("0+", "CapPrm CapEff CapBnd"), doors("EPERM|EINVAL", "setuid setgid setgroups chroot")...),
			Control: Control{Without: "dropping them", Jail: true},
		},
	}
	for i := range cases {
		cases[i].Attack.Code = regexp.MustCompile(`call\(%d, 47`).ReplaceAllString(cases[i].Attack.Code, fmt.Sprintf("call(%d, 47", number("prctl")))
	}
	if amd64 {
		cases = append(cases, Case{
			ID: "KE-03", Title: "system calls in a foreign convention: int 0x80, socketcall, x32", Level: User, Severity: Escape, Source: "moby/profiles 3c28324",
			Expect:  "SIGSYS",
			Attack:  Payload{Code: foreign},
			Doors:   []Door{{"getpid32", "SIGSYS", "ran"}, {"socketcall", "SIGSYS", "ran"}, {"x32", "SIGSYS", "ok"}},
			Control: Control{Without: "the filter", Jail: true},
		})
	}
	return cases
}

const loopbackCode = `
import socket, threading
def pair(kind, family, address):
    s = socket.socket(family, socket.SOCK_STREAM); s.bind(address); s.listen()
    c = socket.socket(family, socket.SOCK_STREAM); c.connect(s.getsockname()); a, _ = s.accept()
    c.sendall(b"hello"); say(kind, a.recv(9).decode())
pair("tcp", socket.AF_INET, ("127.0.0.1", 0))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0)); u.sendto(b"hello", u.getsockname()); say("udp", u.recv(9).decode())
pair("unix", socket.AF_UNIX, "/tmp/s"); pair("abstract", socket.AF_UNIX, "\0name")
`
