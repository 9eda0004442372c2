# A zygote: a Python interpreter that loads modules and is then forked for each program,
# into a machine of the program's own. It never runs a program itself. Its protocol
# with the host is described in package zygote (protocol.go).
import pinfold_harness  # first: it notes what Python itself has loaded
from pinfold_atfork import hooks  # second: it keeps what asks to be called around a fork
import pinfold_warm
from pinfold_host import HOST, tell  # before what imports ctypes
from pinfold_immortal import immortalize
from pinfold_image import Arenas, Image, copied, fill_holes, merge_libraries, ours
from pinfold_loop import Loop, Rehearsal, Resume
from pinfold_syscalls import libc, machine_code

import ctypes
import gc
import io
import json
import os
import random
import struct
import sys
import threading
import _socket
from keyword import iskeyword

before_fork, after_fork = ctypes.pythonapi.PyOS_BeforeFork, ctypes.pythonapi.PyOS_AfterFork_Child


def check_limits(limits):
    """Limits cannot be raised again."""
    now = (ctypes.c_ulong * 2)()
    for resource, value in limits:
        if libc.getrlimit(ctypes.c_int(resource), now) == 0 and now[1] < value:
            raise Unfit("a limit of the process is lower than that of the forked interpreters is to be; perhaps a module has lowered it")


class Unfit(Exception):
    """This process cannot be forked."""


def reopen():
    """Open the standard streams anew, as they are on pipes: what the first ones
    found out about /dev/null would be wrong in a child."""
    kept = [os.dup(fd) for fd in range(3)]
    read, write = os.pipe()
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(write if fd else read, fd)
        old = getattr(sys, name)
        binary = open(fd, "wb" if fd else "rb", -1 if hasattr(old.buffer, "raw") else 0, closefd=False)
        getattr(binary, "raw", binary).name = "<" + name + ">"
        new = io.TextIOWrapper(binary, old.encoding, old.errors, "\n", old.line_buffering, old.write_through)
        new.mode = old.mode
        if name == "stdout":
            new = pinfold_harness.by_line(new)
        setattr(sys, name, new)
        setattr(sys, "__" + name + "__", new)
        os.dup2(kept[fd], fd)
    for fd in [read, write] + kept:
        os.close(fd)


def load(modules):
    before = open_descriptors()
    pinfold_warm.load(modules)
    sys.stdout.flush()
    sys.stderr.flush()
    if threading.active_count() > 1:
        raise Unfit("a module has started a thread")
    opened = open_descriptors() - before
    if opened:
        raise Unfit("a module has left something open: " + ", ".join(sorted(opened)))
    if children():
        raise Unfit("a module has started a process")
    probe()


def begin(numbers):
    """Do what a child does first. Return what it is to run."""
    after_fork()
    begin_anew(numbers)
    return pinfold_warm.receive()


class Stdin:
    """A program of our own on the standard input, as the host sends one."""

    def __init__(self, modules, value=False, results=True):
        named = [name for name in modules if not any(map(iskeyword, name.split(".")))]  # loaded, but no import can say it
        code = "".join("import " + name + "\n" for name in named) + "print(1)\n" + value * "[1][0]\n"
        job = {"file": "/tmp/rehearsal.py", "code": code, "args": [], "env": {}, "allowed_imports": None, "results": results}
        program = json.dumps(job).encode()
        read, write = os.pipe()
        os.write(write, b"%08x" % len(program) + program)
        os.close(write)
        self.usual = os.dup(0)
        os.dup2(read, 0)
        os.close(read)

    def close(self):
        os.dup2(self.usual, 0)
        os.close(self.usual)


def rehearse(modules):
    """Do for all children what each would do for itself: go through the life of one,
    so that what is compiled, cached and specialised on the way is theirs as well.
    Return what begins random numbers anew."""
    before_fork()
    after_fork()  # all locks are new now
    hooks.close()
    kept, numbers = (sys.modules["__main__"], sys.argv, list(sys.path)), []
    for n in range(REHEARSALS):
        if n == REHEARSALS // 2:  # all is loaded that there will be
            gc.collect()
            numbers = generators()
        stdin = Stdin(modules, n % 2 == 0, n % 4 != 0)
        hooks.quiet = True
        before_fork()
        pinfold_warm.become(begin(numbers))
        sys.stdout.flush()
        stdin.close()
    sys.modules["__main__"], sys.argv, sys.path[:] = kept
    for name in os.listdir(SUPPORT):
        if name == "results.jsonl":
            os.unlink(SUPPORT + "/" + name)
    os.unlink("/tmp/rehearsal.py")
    mapped = shared_memory()
    if mapped:
        raise Unfit("a module has memory that forked interpreters would share: " + ", ".join(sorted(mapped)))
    merge_libraries()
    gc.collect()
    immortalize()
    gc.freeze()  # what is loaded now is not looked at again
    fill_holes()
    return numbers


REHEARSALS = 16


def survey(arenas, modules, numbers, walk):
    """Return which of our memory becomes an image, and which stretches of it a child
    writes to: a forked one shows it, in a rehearsal of a whole life."""
    hooks.quiet = True
    before_fork()
    rehearsal, (read, write), stdin = Rehearsal(), os.pipe(), Stdin(modules)
    try:
        ranges = ours(arenas)
    except OSError:  # this kernel does not say enough
        ranges = []
    rehearsal.walk(walk)
    if rehearsal.in_child():
        try:
            pinfold_warm.finish(pinfold_warm.become(begin(numbers)))
            os.write(write, b"".join(struct.pack("=QQ", *stretch) for stretch in copied(ranges))[: 1 << 16])
        finally:
            os._exit(0)
    stdin.close()
    os.close(write)
    with open(read, "rb") as f:
        words = f.read()
    return ranges, list(struct.iter_unpack("=QQ", words[: len(words) // 16 * 16]))


def open_descriptors():
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(fd + " " + os.readlink("/proc/self/fd/" + fd))
        except OSError:
            pass  # that of the listing itself
    return found


def shared_memory():
    """List the mappings through which children could write to each other."""
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
    """Fork once: libraries that bear it end their threads for that."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    if len(os.listdir("/proc/self/task")) > 1:
        raise Unfit("a library has threads that do not end for a fork")


def generators():
    """Return what begins anew all random numbers that modules have begun, also
    those that they began with a number of their own: nobody can tell."""
    anew = []
    arrays = sys.modules.get("numpy.random")
    for o in gc.get_objects():
        kind = type(o)
        if issubclass(kind, random.Random) and o is not random._inst and not issubclass(kind, random.SystemRandom):
            anew.append(lambda o=o: random.Random.seed(o))
        elif arrays and kind is arrays.MT19937 and state_of(o):
            anew.append(lambda at=state_of(o): ctypes.memmove(at, os.urandom(MT19937_KEY), MT19937_KEY))
        elif arrays and issubclass(kind, (arrays.BitGenerator, arrays.SeedSequence)):
            anew.append(lambda o=o, kind=kind: kind.__init__(o))
        elif arrays and issubclass(kind, arrays.RandomState):  # it keeps every second number; its generator is another object
            o.set_state(dict(o.get_state(legacy=False), has_gauss=0, gauss=0.0))
    if "_sqlite3" in sys.modules:
        try:
            randomness = ctypes.CDLL(sys.modules["_sqlite3"].__file__).sqlite3_randomness
            anew.append(lambda: randomness(0, None))
        except (AttributeError, OSError):
            raise Unfit("random numbers of this sqlite cannot be begun anew")
    return anew


MT19937_KEY = 624 * 4


def state_of(generator):
    """Return where the key of numpy's usual generator lies, or None. Random bytes
    put there do what making it anew would do, by writing to a page, not to a hundred."""
    at = generator.ctypes.state_address
    return at if ctypes.string_at(at, MT19937_KEY) == generator.state["state"]["key"].tobytes() else None


def begin_anew(generators):
    """Make a child's own what it must not share with its siblings. Python itself
    does so for the module random, and OpenSSL for its own numbers."""
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


SUPPORT = os.path.dirname(os.path.abspath(__file__))


def main():
    reopen()
    host = _socket.socket(fileno=HOST)
    first = json.loads(host.recvmsg(1 << 16)[0])
    try:
        walk, alloc, free = machine_code([bytes.fromhex(piece) for piece in first["code"]])
        arenas = Arenas(alloc, free)
        modules = first["setup"]["modules"] or []
        load(modules)
        check_limits(first["confinement"]["rlimits"])
        resume = Resume()
        loop = Loop(first["confinement"], SUPPORT, resume)
        numbers = rehearse(modules)
        ranges, written = survey(arenas, modules, numbers, walk)
        image = Image(ranges, loop)
        resume.copy(written)
    except Unfit as e:
        tell(host, {"unfit": str(e)[:500]})
        os._exit(1)
    except BaseException as e:
        tell(host, {"failed": (type(e).__name__ + ": " + str(e))[:500]})
        os._exit(1)
    tell(host, {"loaded": True, "calls": loop.names})
    host.detach()
    image.walk(walk, loop.failed + 16)  # returns in each child
    job = begin(numbers)
    pinfold_warm.end(pinfold_warm.become(job))


if __name__ == "__main__":
    # The program gets this namespace; what goes on here lives in a module.
    import pinfold_zygote

    pinfold_zygote.main()
