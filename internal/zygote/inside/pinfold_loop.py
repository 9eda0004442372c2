# What a zygote does for each child, and the child for itself until it is confined, as a
# table of system calls: see Loop. The packets to and from the host are described in
# package zygote (protocol.go).
from pinfold_host import HOST
from pinfold_protocol import BORN, ENDED, FAILED, READY
from pinfold_syscalls import At, At32, Table, libc

import ctypes
import os
import select
import signal
import struct


# Numbers of system calls, on x86_64 and aarch64.
CALLS = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "ppoll": (271, 73), "wait4": (61, 260), "exit_group": (231, 94),
    "recvmsg": (47, 212), "sendmsg": (46, 211), "sendto": (44, 206), "clone": (56, 220), "setns": (308, 268), "rseq": (334, 293),
    "setsid": (112, 157), "umask": (95, 166), "chdir": (80, 49), "prlimit": (302, 261), "prctl": (157, 167), "setgroups": (116, 159),
    "setresgid": (119, 149), "setresuid": (117, 147), "capset": (126, 91), "dup3": (292, 24), "openat": (257, 56), "mkdirat": (258, 34),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446), "seccomp": (317, 277),
    "getpid": (39, 172), "rt_sigprocmask": (14, 135), "signalfd": (289, 74), "close_range": (436, 436), "madvise": (28, 233),
}
MACHINE = os.uname().machine
CALLS = {name: numbers[("x86_64", "aarch64").index(MACHINE)] for name, numbers in CALLS.items()}

PR_CAPBSET_DROP, PR_SET_DUMPABLE, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 4, 47, 4
LAST_CAPABILITY = 47
CLONE_VM, CLONE_VFORK = 0x100, 0x4000
MADV_POPULATE_WRITE = 23
AT_FDCWD, O_PATH = -100, 0o10000000
MSG_DONTWAIT, MSG_NOSIGNAL, MSG_CMSG_CLOEXEC = 0x40, 0x4000, 0x40000000
SOL_SOCKET, SCM_RIGHTS = 1, 1


class Loop(Table):
    """The life of a zygote from now on: fork when the host asks for it, tell how the
    children end."""

    def __init__(self, confinement, support, then):
        super().__init__(CALLS)
        self.d, self.then = confinement, then
        self.passed = 4 + confinement["joins"]  # descriptors that come with a request
        self.request = self.words(0, 0)
        self.control = self.space(16 + 4 * self.passed + 8)
        self.failed = self.words(FAILED, 0, 0, 0)  # the last two are the walk's
        self.born = self.words(0)  # the child's number in our namespace
        self.zygote()
        self.intermediate()
        self.child(support)
        self.at = self.finish("refused")

    def descriptor(self, n):
        """The machine, three pipes, the files by which its cgroup is entered."""
        return At32(self.control + 16 + 4 * n)

    def send(self, name, packet, words, **more):
        self.call(name, "sendto", HOST, packet, 8 * words, MSG_NOSIGNAL, 0, 0, **more)

    def message(self, packet, size, control, control_size):
        """Return the address of a struct msghdr."""
        return self.words(0, 0, self.words(packet, size), 1, control, control_size, 0)

    def zygote(self):
        blocked = self.words(1 << signal.SIGCHLD - 1)
        signals = libc.syscall(CALLS["signalfd"], -1, ctypes.c_void_p(blocked), 8, os.O_NONBLOCK | os.O_CLOEXEC)
        if signals < 0:
            raise OSError(ctypes.get_errno(), "no descriptor for signals")
        polls = self.keep(struct.pack("=ihhihh", HOST, select.POLLIN, 0, signals, select.POLLIN, 0))
        ended = self.words(ENDED, *[0] * 20)  # ..., number, status, struct rusage
        born = self.words(BORN, 0, 0)
        ready = self.ready = self.words(READY, 0, 0)
        got, intermediate = self.words(0), self.words(0)
        message = self.message(self.request, 16, self.control, 0)

        self.call("block signals", "rt_sigprocmask", signal.SIG_BLOCK, blocked, 0, 8)
        self.label("wait")
        self.call("wait", "ppoll", polls, 2, 0, 0, 0, error="wait")
        self.attempt("clear signals", "read", signals, self.space(128), 128)
        self.label("collect")
        self.call("collect", "wait4", -1, ended + 16, os.WNOHANG, ended + 24, save=ended + 8, zero="hear", error="hear")
        self.send("tell of an end", ended, 7, error="end")
        self.jump("collect")

        self.label("hear")
        rights = 16 + 4 * self.passed
        self.store(message + 40, rights)  # the kernel has changed it
        self.call("hear the host", "recvmsg", HOST, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC, save=got, error="wait")
        self.expect(At(got), 16, "end")  # 0 when the host has gone
        self.expect(At(message + 40), rights, "end")
        self.expect(At(self.request), 0, "end")
        for packet in (self.failed, born, ready):
            self.store(packet + 8, At(self.request + 8))
        for word in (self.failed + 16, self.failed + 24, self.born):
            self.store(word, 0)
        self.call("fork", "clone", CLONE_VM | CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0, save=intermediate, error="forked")
        self.store(intermediate, At(intermediate), zero="intermediate")
        self.attempt("collect", "wait4", At(intermediate), 0, 0, 0)
        self.label("forked")
        for n in range(self.passed):
            self.attempt("close", "close", self.descriptor(n))
        self.attempt("keep host dumpable", "prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)  # the intermediate one's change of ids has cleared it
        self.store(born + 16, At(self.born), zero="not born")
        self.send("tell of a birth", born, 3, error="end")
        self.jump("collect")
        self.label("not born")
        self.send("tell of a failure", self.failed, 4, error="end")
        self.jump("collect")
        self.label("end")
        self.call("end", "exit_group", 0)

    def intermediate(self):
        """The intermediate process shares the zygote's memory, and the zygote waits for
        it. It enters the machine's cgroup and namespaces, so that its own child is born
        there; forks; and ends."""
        self.label("intermediate")
        zero = self.keep(b"0")
        for n in range(4, self.passed):
            self.call("enter cgroup", "write", self.descriptor(n), zero, 1, error="gone")
        self.call("enter namespaces", "setns", self.descriptor(0), self.d["namespaces"], error="gone")
        self.function("fork", address(libc.fork), save=self.born, error="not forked")
        self.store(self.born, At(self.born), zero="child")
        self.label("gone")
        self.call("end", "exit_group", 0)
        self.label("not forked")
        self.store(self.failed + 24, At32(errno_address()))
        self.jump("gone")

    def child(self, support):
        """The child takes away from itself everything that a program must not have."""
        d, call = self.d, self.call
        self.label("child")
        if RSEQ:
            self.attempt("restartable sequences", "rseq", *RSEQ)
        if d["time_ns"]:
            call("enter time namespace", "setns", self.descriptor(0), d["time_ns"])
        call("new session", "setsid")
        call("set umask", "umask", 0o022)
        call("change directory", "chdir", self.keep(d["home"].encode()))
        for resource, value in d["rlimits"]:
            call("set resource limit", "prlimit", 0, resource, self.keep(struct.pack("=QQ", value, value)), 0)
        for c in range(LAST_CAPABILITY + 1):
            self.attempt("drop capability", "prctl", PR_CAPBSET_DROP, c, 0, 0, 0)  # fails for those that this kernel does not have
        call("drop groups", "setgroups", 0, 0)
        call("set group", "setresgid", d["gid"], d["gid"], d["gid"])
        call("set user", "setresuid", d["uid"], d["uid"], d["uid"])
        self.attempt("clear ambient capabilities", "prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
        call("clear capabilities", "capset", self.keep(struct.pack("=II", 0x20080522, 0)), self.space(24))
        call("keep dumpable", "prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)  # as after an exec
        for n in range(3):
            call("set standard streams", "dup3", self.descriptor(1 + n), n, 0)
        self.landlock()
        call("make a directory", "mkdirat", AT_FDCWD, self.keep(support.encode()), 0o755)
        call("own number", "getpid", save=self.ready + 16)
        call("unblock signals", "rt_sigprocmask", signal.SIG_SETMASK, self.words(0), 0, 8)
        control = self.filter()
        call("tell of being ready", "sendmsg", HOST, self.message(self.ready, 24, control, 24 if control else 0), MSG_NOSIGNAL)
        call("close the rest", "close_range", 3, 0xFFFFFFFF, 0)
        self.open_anew()
        self.jump(self.then)
        self.label("refused")
        self.send("tell of a failure", self.failed, 4, error="gone")
        self.jump("gone")

    def open_anew(self):
        """A newer libffi makes the code of callbacks out of its own file, which it keeps
        open. A child's must not be the zygote's: an open file has one state."""
        opened = self.words(0)
        for fd, path in libraries():
            self.attempt("open a library", "openat", AT_FDCWD, self.keep(path.encode()), os.O_CLOEXEC, 0, save=opened)
            if fd != 3:  # the lowest that is free
                self.attempt("open a library", "dup3", At(opened), fd, os.O_CLOEXEC)
                self.attempt("close", "close", At(opened))

    def landlock(self):
        d = self.d["landlock"]
        if not d:
            return
        ruleset, rules = bytes.fromhex(d["ruleset"]), self.words(0)
        self.call("make Landlock rules", "landlock_create_ruleset", self.keep(ruleset), len(ruleset), 0, save=rules)
        for tree in d["trees"]:
            path, rights = tree["path"], bytes.fromhex(tree["rights"])
            rule = self.keep(rights + bytes(16))  # and behind the rights, the descriptor
            self.call("open for Landlock " + path, "openat", AT_FDCWD, self.keep(path.encode()), O_PATH | os.O_CLOEXEC, 0, save=rule + len(rights))
            self.call("add Landlock rule for " + path, "landlock_add_rule", At(rules), 1, rule, 0)
            self.attempt("close", "close", At32(rule + len(rights)))
        self.call("apply Landlock rules", "landlock_restrict_self", At(rules), d["flags"])
        self.attempt("close", "close", At(rules))

    def filter(self):
        """Install the filter. Its listener goes into the returned control message."""
        d = self.d["filter"]
        if not d:
            return 0
        program = bytes.fromhex(d["program"])
        control = self.keep(struct.pack("=Qiiq", 20, SOL_SOCKET, SCM_RIGHTS, 0))
        self.call(
            "install system-call filter", "seccomp", 1, d["flags"], self.words(len(program) // 8, self.keep(program)),
            save=control + 16 if d["listens"] else 0,
        )
        return control if d["listens"] else 0


class Resume(Table):
    """What is left to a child: to copy the pages that it will write to, all at once, and
    to go back to Python. Which pages these are is added last, so that nothing comes
    between the rehearsal that shows them and the first fork."""

    def __init__(self):
        super().__init__(CALLS)
        self.at = self.end

    def copy(self, written):
        for start, end in written:
            self.attempt("copy pages", "madvise", start, end - start, MADV_POPULATE_WRITE)
        self.label("back")
        self.back()
        self.finish("back")


class Rehearsal(Table):
    """A fork that stays where the zygote is. The zygote waits for its end."""

    def __init__(self):
        super().__init__(CALLS)
        self.pid = self.words(-1)  # also where there is no fork
        self.function("fork", address(libc.fork), save=self.pid, error="back")
        self.store(self.pid, At(self.pid), zero="back")
        self.attempt("wait", "wait4", At(self.pid), 0, 0, 0)
        self.label("back")
        self.back()
        self.at = self.finish("back")

    def in_child(self):
        return ctypes.c_int64.from_address(self.pid).value == 0


def libraries():
    """Return the descriptors of libraries that ctypes has left open, and their files."""
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue  # that of the listing itself
        if path.startswith("/") and "/libffi.so" in path:
            yield int(fd), path


def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def errno_address():
    libc.__errno_location.restype = ctypes.c_void_p
    return libc.__errno_location()


def rseq_area():
    """Return the arguments by which the C library has told the kernel of its area
    for restartable sequences, which the first child does not have; or None."""
    try:
        offset, size = ctypes.c_ssize_t.in_dll(libc, "__rseq_offset").value, ctypes.c_uint.in_dll(libc, "__rseq_size").value
    except ValueError:
        return None
    if MACHINE != "x86_64" or size == 0:
        return None
    libc.pthread_self.restype = ctypes.c_void_p  # the thread pointer, on this machine
    return libc.pthread_self() + offset, max(size, 32), 0, 0x53053053


RSEQ = rseq_area()
