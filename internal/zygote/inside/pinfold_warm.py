# A Python interpreter that waits for one program. It loads the modules that it
# is told, says that it is ready, reads what to run from its standard input, and
# becomes that program. It never runs a second one. What it reads is described in package
# zygote (handover.go).
import pinfold_harness  # first: it notes what Python itself has loaded

import atexit
import gc
import io
import json
import os
import sys
import time
from _weakref import ref

__builtins__ = pinfold_harness.__builtins__  # the program may change its own


def read_exactly(n):
    parts = []
    while n > 0:
        part = os.read(0, min(n, 1 << 16))
        if not part:
            os._exit(0)  # nobody needs this interpreter any more
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def load(modules):
    """Load what programs want, and what the harness has for them."""
    pinfold_harness.load("pinfold_last.py")
    pinfold_harness.load("pinfold_rich.py")
    pinfold_harness.load("pinfold_imports.py")
    pinfold_harness.load(pinfold_harness.HURRY, pinfold_harness.as_it_is)
    for name in modules:
        __import__(name)
    compile("", "", "exec")
    pinfold_harness.compiles = True


def wait(marker, modules):
    sys.stdout = sys.__stdout__ = pinfold_harness.by_line(sys.stdout)
    load(modules)
    gc.collect()
    gc.freeze()  # what is loaded now is not looked at again
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(1, marker.encode() + b"\n")
    return receive()


def receive():
    """Read what to run from the standard input."""
    return json.loads(read_exactly(int(read_exactly(8), 16)))


def write(name, content):
    """Write a file, without what makes Python's own files convenient: each child of a
    zygote would pay for that with copied pages."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        while content:
            content = content[os.write(fd, content) :]
    finally:
        os.close(fd)


def place(cpus):
    """Use only these processors of the host."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError:
        pass  # the sandbox may have others; the quota is what holds


streams = []  # those that the program begins with, and what is below them, wherever it keeps them


def become(job):
    """Run the program and return its exit status."""
    streams[:] = [ref(o) for text in (sys.stdout, sys.stderr) for o in (text, io.TextIOWrapper.buffer.__get__(text))]
    if job.get("cpus"):
        place(job["cpus"])
    if job.get("code") is not None:
        write(job["file"], job["code"].encode())
    if job["env"]:
        os.environ.update(job["env"])
        if "TZ" in job["env"]:
            time.tzset()
    try:
        pinfold_harness.run_main([job["file"]] + (job["args"] or []), job["allowed_imports"], job["results"])
    except SystemExit as e:
        return exit_status(e.code)
    except BaseException as e:
        sys.excepthook(type(e), e, e.__traceback__)  # it has been shown; this ends showing it
        return -2 if type(e) is KeyboardInterrupt or isinstance(e, KeyboardInterrupt) and sys.version_info >= (3, 14) else 1
    return 0


def exit_status(code):
    """Return what the interpreter makes of the argument of sys.exit, and show it if it
    is none."""
    if code is None:
        return 0
    if isinstance(code, int):
        code = int.__index__(code)  # whatever its class makes of operators
        return code & 0xFF if -1 << 63 <= code < 1 << 63 else 0xFF
    stderr = getattr(sys, "stderr", None)
    try:
        sys.stdout.flush()
    except Exception:
        pass
    try:
        text = str(code)
    except BaseException:
        text = ""
    try:
        print(text, file=sys.__stderr__ if stderr is None else stderr)
    except BaseException:
        pass
    return 1


def finish(status):
    """Do what the interpreter does at its end, but for taking apart what was
    loaded before the program: threads, exit functions, the program's objects.
    Return the exit status, -2 for the end by an interrupt."""
    if "threading" in sys.modules:
        try:
            sys.modules["threading"]._shutdown()
        except BaseException as e:
            ignore(sys.modules["threading"], e)
    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass  # shown already
    theirs = sys.unraisablehook
    sys.unraisablehook = lambda args: theirs(without_us(args))
    for name in {"last_exc", "last_type", "last_value", "last_traceback"}.intersection(vars(sys)):
        setattr(sys, name, None)
    main = sys.modules.pop("__main__", None)
    left = ref(main) if isinstance(main, type(sys)) else type(None)
    del main
    gc.collect()  # what ends with the program's module still finds what is in it
    if left():
        space = left().__dict__
        for name in sorted(space, key=lambda name: name[:1] != "_" or name[1:2] == "_"):
            if name != "__builtins__":
                space[name] = None  # in the interpreter's order
        del space
        gc.collect()
    sys.unraisablehook = theirs
    for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception as e:
            status = status or 120  # as Python does
            if stream is getattr(sys, "stdout", None):
                ignore(stream, e)
    for stream in streams:
        try:
            stream().flush()  # the interpreter lets them go, which writes what is left
        except Exception:
            pass  # it was closed, or has gone
    return status


def without_us(args):
    """What ends here ends, at the interpreter's own end, below no frame of Python's."""
    tb = args.exc_traceback
    if tb is None or tb.tb_frame.f_code.co_filename != __file__:
        return args
    if args.exc_value is not None:
        args.exc_value.__traceback__ = None
    return type(args)((args.exc_type, args.exc_value, None, args.err_msg, args.object))


def ignore(place, e):
    """Show an exception that ends nothing."""
    stderr = getattr(sys, "stderr", None)
    if stderr is not None:
        try:
            print("Exception ignored in:", place, file=stderr)
            sys.__excepthook__(type(e), e.with_traceback(e.__traceback__.tb_next), None)
        except Exception:
            pass


def end(status):
    status = finish(status)
    if status == -2:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


if __name__ == "__main__":
    # The program gets this namespace; what goes on here lives in a module.
    import pinfold_warm

    pinfold_warm.end(pinfold_warm.become(pinfold_warm.wait(sys.argv[1], sys.argv[2:])))
