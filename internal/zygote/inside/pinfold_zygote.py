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
from pinfold_siblings import SUPPORT, Stdin, Unfit, before_fork, begin, go_through
from pinfold_syscalls import libc, machine_code

import ctypes
import gc
import io
import json
import os
import struct
import sys
import threading
import _socket

def check_limits(limits):
    """Limits cannot be raised again."""
    now = (ctypes.c_ulong * 2)()
    for resource, value in limits:
        if libc.getrlimit(ctypes.c_int(resource), now) == 0 and now[1] < value:
            raise Unfit("a limit of the process is lower than that of the forked interpreters is to be; perhaps a module has lowered it")


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


def rehearse(modules):
    """Do for all children what each would do for itself. Return what begins random numbers
    anew."""
    numbers = go_through(modules)
    mapped = shared_memory()
    if mapped:
        raise Unfit("a module has memory that forked interpreters would share: " + ", ".join(sorted(mapped)))
    merge_libraries()
    gc.collect()
    immortalize()
    gc.freeze()  # what is loaded now is not looked at again
    fill_holes()
    return numbers


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
