# Runs a Python program as "python3 FILE ARGS" would, and then has what it
# leaves as values written down: of its last expression, of open figures, of
# the exception that ended it. interpreter.go says how it is started.
#
# Every run pays for this file with its start, by the line. So it is short,
# imports only what Python has loaded already, and leaves the rest to its
# neighbours. It does not call compile(), whose first use costs as much again: 2 ms.
import io
import os
import sys
from _imp import _fix_co_filename

STARTUP = list(sys.modules)  # a program may import these. A zygote loads us first
from _operator import methodcaller
from _signal import SIG_BLOCK, SIG_SETMASK, pthread_sigmask, valid_signals
from _weakref import ref
from gc import freeze
from itertools import cycle
from time import monotonic

for name in set(sys.modules).difference(STARTUP):
    del sys.modules[name]  # a program sees what Python has loaded

FOLDER = __file__.rpartition("/")[0] + "/"
builtins = sys.modules["builtins"]
__builtins__ = dict(vars(builtins))  # the program may change its own
loaded = {}
compiles = False  # compile() has been called already, by who waits for a program


def load(name, compiled=None):
    """Return the namespace of one of our files. A zygote calls it early."""
    if name not in loaded:
        with open(FOLDER + name, "rb") as f:
            code = (compiled or code_of)(f.read(), FOLDER + name)
        space = {"__name__": name[:-3], "__file__": FOLDER + name, "__builtins__": __builtins__}
        exec(code, space, space.update(HARNESS=FOLDER, harness=globals()))
        loaded[name] = space
    return loaded[name]


class TextIOWrapper(io.TextIOWrapper):
    """One that knows whether somebody may write bytes to what is below it."""

    __module__, _looked, _hurry = "_io", False, None

    @property
    def buffer(self):
        self._looked = True
        return super().buffer

    def detach(self):
        buffer = super().detach()
        vars(buffer).pop("flush", None)  # it holds the buffer, which would never be let go and written
        return buffer


def by_line(out):
    """Return a standard output in place of one that is buffered, written line by line.

    What is printed is there when a limit strikes. The methods stay Python's own, in C: no
    trace shows a frame of ours, and no signal and no thread comes between a line and its
    end. A program that prints LINES lines in QUICK seconds gets full buffers instead, for a
    moment, as in any pipe (pinfold_hurry.py). Nothing of ours holds the stream: when the
    program and Python let it go, it is written and closed, whatever sys.stdout is by then.
    """
    if out is None or out.line_buffering or type(out.buffer) is not io.BufferedWriter:
        return out
    mode, encoding, errors, buffer = out.mode, out.encoding, out.errors, out.detach()
    text, flush, turns = TextIOWrapper(buffer, encoding, errors, "\n", True), buffer.flush, [0.0]
    text.mode, whose = mode, ref(text)

    def turn():
        flush()
        now = monotonic()
        quick, turns[0] = now - turns[0] < QUICK, now
        if quick and whose() and not whose()._looked:
            usual = pthread_sigmask(SIG_BLOCK, SIGNALS)  # what a handler raises is the program's
            try:
                load(HURRY, as_it_is)["hurry"](whose(), buffer)
            except Exception:
                whose()._looked = True  # all goes on line by line
            finally:
                pthread_sigmask(SIG_SETMASK, usual)

    buffer.flush = map(methodcaller("__call__"), cycle([flush] * (LINES - 1) + [turn])).__next__
    return text


def as_it_is(source, path):
    return source


LINES, QUICK, HURRY = 100, 0.005, "pinfold_hurry.py"
SIGNALS = valid_signals()


def run_main(argv, imports=None, report=True):
    """Run the program argv[0] as __main__, with argv as sys.argv.

    imports lists what it may import, None means everything. report says whether
    its values are wanted. This returns when the program has run to its end, and
    raises what ended it otherwise; the caller then does nothing more, so that
    the interpreter ends as it would have.
    """
    pid = os.getpid()
    path = argv[0] if argv[0][:1] == "/" else os.getcwd() + "/" + argv[0]
    value = failure = real = None
    try:
        with open(path, "rb") as f:
            real = os.readlink("/proc/self/fd/%d" % f.fileno())
            code, last = load("pinfold_last.py")["program"](f.read(), path) if report else (code_of(f.read(), path), None)
    except BaseException:
        code, last = load("pinfold_rich.py")["compile_again"](argv, path, report)
    if imports is not None:
        load("pinfold_imports.py")["limit_imports"](imports, path.rpartition("/")[0])
    space = new_main(argv, path, real or os.path.realpath(path))
    try:
        exec(code, space)
        value = last and eval(last, space)
    except BaseException as e:
        failure = e
    if value is None and failure is None and "matplotlib.pyplot" not in sys.modules:
        return
    try:
        finish = load("pinfold_rich.py")["finish"]
    except Exception:  # the program has removed it
        if failure is None:
            return
        raise failure
    held, value = [value, last], None
    finish(held, failure, report and os.getpid() == pid)


def code_of(source, path, run=exec):
    """Compile, and fail where Python has warnings for the program."""
    stderr = sys.stderr
    sys.stderr = warned = io.StringIO()
    try:
        if compiles or sys.getprofile() is not None:  # the program is being profiled
            code = compile(source, path, run.__name__, 0, True)
        else:
            code = stopped(source, path, run)
    finally:
        sys.stderr = stderr
    if warned.tell():
        raise ValueError("a program with warnings")
    return code


def stopped(source, path, run):
    """Compile without compile(): have it run, and stop it before it begins."""
    found, space = [], {}

    def stop(frame, event, _):
        if event == "call" and frame.f_globals is space:
            found.append(frame.f_code)
            raise KeyError

    sys.setprofile(stop)
    try:
        run(source, space)
    except KeyError:
        pass
    finally:
        sys.setprofile(None)
    _fix_co_filename(found[0], path)
    return found[0]


def new_main(argv, path, real):
    """Make __main__, sys.argv and sys.path what they are for "python3 FILE"."""
    sys.modules["__main__"] = main = type(sys)("__main__")
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    main.__builtins__, main.__file__, main.__cached__ = builtins, path, None
    main.__loader__ = sys.modules["_frozen_importlib_external"].SourceFileLoader("__main__", path)
    sys.argv = argv
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = sys.orig_argv[:1] + argv
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = real.rpartition("/")[0] or "/"
    return main.__dict__


def start(argv, options):
    if argv[0][:10] == "--imports=":
        options["imports"] = [name for name in argv.pop(0)[10:].split(",") if name]
    if argv[0] == "--no-results":
        options["report"] = not argv.pop(0)
    sys.stdout = sys.__stdout__ = by_line(sys.stdout)
    freeze()  # at its end Python would look at all that is loaded several times
    run_main(argv, **options)


if __name__ == "__main__":
    # With other globals, so that Python 3.9 takes our builtins for run_main.
    type(start)(start.__code__, dict(globals()))(sys.argv[1:], {})
