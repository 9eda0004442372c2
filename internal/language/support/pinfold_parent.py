# A Python interpreter that loads modules and is then forked for each program,
# into a machine of the program's own. It never runs a program itself. What it
# says to the host, and the host to it, is described in package native (parent.go).
import pinfold_harness  # first: it notes what Python itself has loaded
import pinfold_warm

import ctypes
import gc
import io
import json
import os
import random
import select
import signal
import sys
import threading
import _socket

HOST = 3  # our connection
libc = ctypes.CDLL(None, use_errno=True)

# Numbers of system calls that the C library does not offer under a name.
MACHINE = os.uname().machine
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446  # on every machine
CALLS = {
    "x86_64": {"seccomp": 317, "setns": 308, "capset": 126, "clone": 56, "set_tid_address": 218, "rseq": 334, "set_robust_list": 273, "get_robust_list": 274},
    "aarch64": {"seccomp": 277, "setns": 268, "capset": 91, "clone": 220, "set_tid_address": 96, "rseq": 293, "set_robust_list": 99, "get_robust_list": 100},
}[MACHINE]
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_DUMPABLE, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 23, 24, 4, 47, 4
LAST_CAPABILITY = 47


def call(what, number, *args):
    """Make a system call. An integer is passed in full, bytes by their address."""
    words = [ctypes.c_long(number)]
    words += [a if isinstance(a, (bytes, ctypes.Array, type(None))) else ctypes.c_long(a) for a in args]
    got = libc.syscall(*words)
    if got < 0:
        e = ctypes.get_errno()
        raise OSError(e, what + ": " + os.strerror(e))
    return got


class Confinement:
    """What a fork does to itself, in the order in which it has to be done."""

    def __init__(self, d):
        self.d = d
        if d["landlock"]:
            self.ruleset = bytes.fromhex(d["landlock"]["ruleset"])
            self.trees = [(path, bytes.fromhex(attr)) for path, attr in d["landlock"]["trees"]]
        if d["filter"]:
            self.program = bytes.fromhex(d["filter"]["program"])

    def check(self):
        """Limits cannot be raised again."""
        now = (ctypes.c_ulong * 2)()
        for resource, value in self.d["rlimits"]:
            if libc.getrlimit(ctypes.c_int(resource), now) == 0 and now[1] < value:
                raise Unfit("a limit of the process is lower than that of its forks is to be; perhaps a module has lowered it")

    def enter(self, machine):
        """Become a process whose children are born in the machine."""
        call("enter namespaces", CALLS["setns"], machine, self.d["namespaces"])

    def take_on(self, machine, pipes):
        """Take away everything that a program must not have. Returns the
        filter's listener, or None."""
        d = self.d
        if d["time_ns"]:
            call("enter time namespace", CALLS["setns"], machine, d["time_ns"])
        os.setsid()
        os.umask(0o022)
        os.chdir(d["home"])
        for resource, value in d["rlimits"]:
            prlimit(resource, value)
        for c in range(LAST_CAPABILITY + 1):
            libc.prctl(PR_CAPBSET_DROP, c, 0, 0, 0)  # fails for those that this kernel does not have
        os.setgroups([])
        os.setresgid(d["gid"], d["gid"], d["gid"])
        os.setresuid(d["uid"], d["uid"], d["uid"])
        libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
        call("clear capabilities", CALLS["capset"], CAP_HEADER, b"\0" * 24)
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # as after an exec
        for fd, pipe in enumerate(pipes):
            os.dup2(pipe, fd)
        self.restrict()
        if not d["filter"]:
            return None
        fprog = Fprog(len(self.program) // 8, self.program)
        got = call("install system-call filter", CALLS["seccomp"], 1, d["filter"]["flags"], ctypes.addressof(fprog))
        return got if d["filter"]["listens"] else None

    def restrict(self):
        if not self.d["landlock"]:
            return
        rules = call("make Landlock rules", LANDLOCK_CREATE, self.ruleset, len(self.ruleset), 0)
        for path, attr in self.trees:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            call("add Landlock rule for " + path, LANDLOCK_ADD, rules, 1, attr + fd.to_bytes(4, sys.byteorder), 0)
            os.close(fd)
        call("apply Landlock rules", LANDLOCK_RESTRICT, rules, self.d["landlock"]["flags"])
        os.close(rules)


CAP_HEADER = (0x20080522).to_bytes(4, sys.byteorder) + b"\0" * 4


class Fprog(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def prlimit(resource, value):
    # Through setrlimit of the C library, which every machine has under that name.
    if libc.setrlimit(ctypes.c_int(resource), (ctypes.c_ulong * 2)(value, value)) != 0:
        e = ctypes.get_errno()
        raise OSError(e, "set resource limit: " + os.strerror(e))


class Unfit(Exception):
    """This process cannot be forked."""


def reopen():
    """Open the standard streams anew, as they are on pipes: what the first ones
    found out about /dev/null would be wrong in a fork."""
    kept = [os.dup(fd) for fd in range(3)]
    read, write = os.pipe()
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(write if fd else read, fd)
        old = getattr(sys, name)
        binary = open(fd, "wb" if fd else "rb", -1 if hasattr(old.buffer, "raw") else 0, closefd=False)
        getattr(binary, "raw", binary).name = "<" + name + ">"
        new = io.TextIOWrapper(binary, old.encoding, old.errors, "\n", old.line_buffering, old.write_through)
        new.mode = old.mode
        setattr(sys, name, new)
        setattr(sys, "__" + name + "__", new)
        os.dup2(kept[fd], fd)
    for fd in [read, write] + kept:
        os.close(fd)


def load(modules):
    before = open_descriptors()
    pinfold_harness.load("pinfold_rich.py")
    pinfold_harness.load("pinfold_imports.py")
    for name in modules:
        __import__(name)
    sys.stdout.flush()
    sys.stderr.flush()
    if threading.active_count() > 1:
        raise Unfit("a module has started a thread")
    opened = open_descriptors() - before
    if opened:
        raise Unfit("a module has left something open: " + ", ".join(sorted(opened)))
    if children():
        raise Unfit("a module has started a process")
    rehearse()
    mapped = shared_memory()
    if mapped:
        raise Unfit("a module has memory that forks would share: " + ", ".join(sorted(mapped)))
    gc.collect()
    found = generators()
    gc.freeze()  # what is loaded now is not looked at again
    probe()
    return found


REHEARSAL = "print(1)\n[1][0]\n"


def rehearse():
    """Go through all that a fork will do with its program, with one of our own:
    what is compiled, cached and specialised for it then needs not be, in memory of
    its own, by every fork."""
    kept = sys.modules["__main__"], sys.argv, list(sys.path)
    for n in range(REHEARSALS):
        pinfold_warm.become({"file": "/tmp/rehearsal.py", "code": REHEARSAL, "args": [], "env": {}, "allowed_imports": None, "results": n % 2 == 0})
        sys.stdout.flush()
        json.loads(json.dumps({"ready": n, "pid": n}))
    sys.modules["__main__"], sys.argv, sys.path[:] = kept
    for name in os.listdir(SUPPORT):
        if name == "results.jsonl":
            os.unlink(SUPPORT + "/" + name)
    os.unlink("/tmp/rehearsal.py")


REHEARSALS = 16


def open_descriptors():
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(fd + " " + os.readlink("/proc/self/fd/" + fd))
        except OSError:
            pass  # that of the listing itself
    return found


def shared_memory():
    """List the mappings through which forks could write to each other."""
    found = set()
    with open("/proc/self/smaps") as f:
        for line in f:
            words = line.split()
            if words[0] == "VmFlags:" and "sh" in words and "mw" in words:
                found.add(name)
            elif "-" in words[0]:
                name = " ".join(words[5:]) or "without a name"
    return found


def children():
    try:
        return os.waitpid(-1, os.WNOHANG) is not None
    except ChildProcessError:
        return False


def probe():
    """Fork once: threads of libraries that can be forked end for it."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    if len(os.listdir("/proc/self/task")) > 1:
        raise Unfit("a library has threads that do not end for a fork")


def generators():
    """Return what begins anew all random numbers that modules have begun, also
    those that they began with a number of their own: nobody can tell."""
    anew, last = [], []
    arrays = sys.modules.get("numpy.random")
    for o in gc.get_objects():
        kind = type(o)
        if issubclass(kind, random.Random) and o is not random._inst and not issubclass(kind, random.SystemRandom):
            anew.append(lambda o=o: random.Random.seed(o))
        elif arrays and issubclass(kind, (arrays.BitGenerator, arrays.SeedSequence)):
            anew.append(lambda o=o, kind=kind: kind.__init__(o))
        elif arrays and issubclass(kind, arrays.RandomState):
            last.append(lambda o=o: o.set_state(dict(o.get_state(legacy=False), has_gauss=0, gauss=0.0)))
    if "_sqlite3" in sys.modules:
        try:
            randomness = ctypes.CDLL(sys.modules["_sqlite3"].__file__).sqlite3_randomness
            anew.append(lambda: randomness(0, None))
        except (AttributeError, OSError):
            raise Unfit("random numbers of this sqlite cannot be begun anew")
    return anew + last


def begin_anew(generators):
    """Make what a fork must not share with its siblings its own. Python itself
    does so for the module random, OpenSSL for its own."""
    for begin in generators:
        begin()
    threading.main_thread()._set_native_id()  # Python forgets to
    loaded = sys.modules.get
    if loaded("uuid"):  # its library keeps a node, a sequence and a time
        sys.modules["uuid"]._generate_time_safe = sys.modules["uuid"]._last_timestamp = None
        sys.modules["uuid"]._node = int.from_bytes(os.urandom(6), "big") | 1 << 40
    if loaded("tempfile"):
        sys.modules["tempfile"]._name_sequence = None
    if loaded("multiprocessing.process"):
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)


def say(what, descriptor=None):
    send = _socket.socket(fileno=os.dup(HOST))
    try:
        rights = descriptor is not None and [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptor.to_bytes(4, sys.byteorder))]
        send.sendmsg([json.dumps(what).encode()], rights or [])
    finally:
        send.close()


def serve(host, confinement, generators):
    """Fork whenever the host asks for it, and say how the forks end."""
    wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    poll.register(host, select.POLLIN)
    poll.register(wake, select.POLLIN)
    running = {}
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if wake in ready:
            os.read(wake, 4096)
        collect(running)
        if HOST not in ready:
            continue
        data, ancillary, _, _ = host.recvmsg(4096, _socket.CMSG_SPACE(4 * 16))
        if not data:
            os._exit(0)
        job = json.loads(data)
        rights = b"".join(data for _, _, data in ancillary)
        fds = [int.from_bytes(rights[i : i + 4], sys.byteorder) for i in range(0, len(rights), 4)]
        pid = fork(job["fork"], fds, confinement)
        if pid == 0:  # we are the fork
            begin_anew(generators)
            return
        if pid is not None:
            running[pid] = job["fork"]
        for fd in fds:
            os.close(fd)


def collect(running):
    while True:
        try:
            pid, status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in running:
            say({"exit": running.pop(pid), "status": status, "cpu_ns": int((used.ru_utime + used.ru_stime) * 1e9)})


def fork(job, fds, confinement):
    """Fork into a machine. Returns the fork's number, None if it came to
    nothing, and 0 in the fork."""
    read, write = os.pipe2(os.O_CLOEXEC)
    gate, opens = os.pipe2(os.O_CLOEXEC)
    first = os.fork()
    if first == 0:
        os.close(opens)
        try:
            for fd in fds[4:]:
                os.write(fd, b"0")
            confinement.enter(fds[0])
            number = double()
        except BaseException as e:
            say({"failed": str(e), "fork": job})
            os._exit(1)
        os.write(write, number.to_bytes(4, "little"))
        os.read(gate, 1)  # until the memory is ours alone
        become(job, fds, confinement)
        return 0
    os.close(write)
    os.close(gate)
    number = os.read(read, 4)
    os.close(read)
    os.kill(first, signal.SIGKILL)
    _, status = os.waitpid(first, 0)
    os.close(opens)
    if not number:  # it may have been killed before it could say why
        say({"exit": job, "status": status, "cpu_ns": 0})
        return None
    return int.from_bytes(number, "little")


CLONE_VM, CLONE_VFORK, CLONE_PARENT_SETTID, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x100, 0x4000, 0x100000, 0x200000, 0x1000000
PR_GET_TID_ADDRESS = 40


def double():
    """Go on as a child of this process, born in the pid namespace that this one
    has entered, and return its number as the parent sees it.

    Only the child returns. It takes over our memory, which saves copying the page
    tables once more: the kernel lets us sleep until the child has ended, and the
    parent kills us before that. What the C library keeps of a thread is told to the
    kernel again for the child."""
    mine, head, length = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    if libc.prctl(PR_GET_TID_ADDRESS, ctypes.byref(mine), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this kernel does not say where a thread's number is kept (CONFIG_CHECKPOINT_RESTORE)")
    libc.syscall(CALLS["get_robust_list"], 0, ctypes.byref(head), ctypes.byref(length))
    number, nowhere = ctypes.c_int(), ctypes.c_int()
    libc.syscall(CALLS["set_tid_address"], ctypes.byref(nowhere))  # our end must not change the child's
    flags = CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | signal.SIGCHLD
    last = (mine, None) if MACHINE == "x86_64" else (None, mine)
    got = libc.syscall(CALLS["clone"], ctypes.c_long(flags), None, ctypes.byref(number), *last)
    if got != 0:
        if got > 0:
            os._exit(1)  # never: the parent has killed us
        raise OSError(ctypes.get_errno(), "fork: " + os.strerror(ctypes.get_errno()))
    libc.syscall(CALLS["set_robust_list"], head, length)
    if RSEQ:
        libc.syscall(CALLS["rseq"], *RSEQ)
    return number.value


def rseq_area():
    """Return the arguments by which the C library has told the kernel of its area
    for restartable sequences, or None where it has none or we cannot tell."""
    try:
        offset, size = ctypes.c_ssize_t.in_dll(libc, "__rseq_offset").value, ctypes.c_uint.in_dll(libc, "__rseq_size").value
    except ValueError:
        return None
    if MACHINE != "x86_64" or size == 0:
        return None
    libc.pthread_self.restype = ctypes.c_void_p  # the thread pointer, on this machine
    return ctypes.c_void_p(libc.pthread_self() + offset), max(size, 32), 0, 0x53053053


RSEQ = rseq_area()


def become(job, fds, confinement):
    """Be a process of the machine and of nothing else."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener = confinement.take_on(fds[0], fds[1:4])
        os.mkdir(SUPPORT, 0o755)
        say({"ready": job, "pid": os.getpid()}, listener)
    except BaseException as e:
        say({"failed": str(e), "fork": job})
        os._exit(1)
    os.closerange(3, 1 << 16)


SUPPORT = os.path.dirname(os.path.abspath(__file__))


def main():
    reopen()
    host = _socket.socket(fileno=HOST)
    first = json.loads(host.recvmsg(1 << 16)[0])
    try:
        found = load(first["setup"]["modules"] or [])
        confinement = Confinement(first["confinement"])
        confinement.check()
    except Unfit as e:
        say({"unfit": str(e)[:500]})
        os._exit(1)
    except BaseException as e:
        say({"failed": (type(e).__name__ + ": " + str(e))[:500]})
        os._exit(1)
    say({"loaded": True})
    serve(host, confinement, found)
    host.detach()
    job = json.loads(pinfold_warm.read_exactly(int(pinfold_warm.read_exactly(8), 16)))
    pinfold_warm.end(pinfold_warm.become(job))


if __name__ == "__main__":
    # The program gets this namespace; what goes on here lives in a module.
    import pinfold_parent

    pinfold_parent.main()
